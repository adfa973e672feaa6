package simulate

// cacheKey names what a KV cache holds as one: the context of a session, or the prefix that the sessions of a cache affinity
// key share.
type cacheKey uint64

func sessionContext(session uint64) cacheKey { return cacheKey(session << 1) }
func sharedPrefix(key uint64) cacheKey       { return cacheKey(key<<1 | 1) }

// kvCache is the KV cache of a cluster. It holds what its running requests need, and keeps what they leave behind until
// the room is needed, the least recently used first. It never holds more than its capacity.
type kvCache struct {
	capacity int64
	// used is what all entries hold, pinned what those of running requests do.
	used, pinned int64
	index        map[cacheKey]int32
	entries      []kvEntry
	free         []int32
	// oldest and newest of the entries that no running request needs, -1: there is none.
	oldest, newest int32
}

type kvEntry struct {
	key cacheKey
	// held is the room that the entry takes, in tokens; valid is how long a beginning of the context it can serve.
	held, valid int64
	// pins is the number of running requests that need the entry.
	pins         int32
	older, newer int32
}

func newKVCache(capacity int64) *kvCache {
	return &kvCache{capacity: capacity, index: map[cacheKey]int32{}, oldest: -1, newest: -1}
}

// demand is what a request needs of a KV cache.
type demand struct {
	session, prefix cacheKey
	// input tokens, of which the first shared are the prefix and the first reusable are the session's context of before.
	input, shared, reusable int64
	output                  int64
}

// tokens that the request occupies at its end.
func (k *demand) tokens() int64 { return k.input + k.output }

// admit makes room for a request and pins it, and tells how many of the input tokens the cache serves. It changes nothing
// and is false when running requests leave too little room.
func (c *kvCache) admit(k *demand) (reused int64, ok bool) {
	growth := c.growth(k.session, k.tokens()-k.shared)
	if k.shared > 0 {
		growth += c.growth(k.prefix, k.shared)
	}
	if c.pinned+growth > c.capacity {
		return 0, false
	}
	whole := true
	if k.shared > 0 {
		prefix := c.pin(k.prefix, k.shared)
		reused = min(prefix.valid, k.shared)
		whole = prefix.valid >= k.shared
		prefix.valid = k.shared
	}
	session := c.pin(k.session, k.tokens()-k.shared)
	if whole {
		reused = max(reused, min(session.valid, k.reusable))
	}
	session.valid = k.input
	for c.used > c.capacity {
		c.evict()
	}
	return reused, true
}

// release unpins what a request has used. Its answer is part of the session's context now.
func (c *kvCache) release(k *demand) {
	c.unpin(k.session).valid = k.tokens()
	if k.shared > 0 {
		// After the session's own part, so that it is evicted after it: what follows a prefix is of no use without it.
		c.unpin(k.prefix)
	}
}

// growth is how many more tokens are pinned when an entry has to hold so many.
func (c *kvCache) growth(key cacheKey, tokens int64) int64 {
	if i, ok := c.index[key]; ok && c.entries[i].pins > 0 {
		return max(0, tokens-c.entries[i].held)
	}
	return tokens
}

// pin takes an entry for a running request. One that other running requests need does not shrink.
func (c *kvCache) pin(key cacheKey, tokens int64) *kvEntry {
	c.pinned += c.growth(key, tokens)
	i, ok := c.index[key]
	if !ok {
		i = c.add(key)
	} else if c.entries[i].pins == 0 {
		c.unlink(i)
	}
	e := &c.entries[i]
	if e.pins > 0 {
		tokens = max(tokens, e.held)
	}
	c.used += tokens - e.held
	e.held = tokens
	e.pins++
	return e
}

func (c *kvCache) unpin(key cacheKey) *kvEntry {
	i := c.index[key]
	e := &c.entries[i]
	e.pins--
	if e.pins == 0 {
		c.pinned -= e.held
		e.older, e.newer = c.newest, -1
		if c.newest >= 0 {
			c.entries[c.newest].newer = i
		} else {
			c.oldest = i
		}
		c.newest = i
	}
	return e
}

func (c *kvCache) evict() {
	i := c.oldest
	c.unlink(i)
	c.used -= c.entries[i].held
	delete(c.index, c.entries[i].key)
	c.free = append(c.free, i)
}

func (c *kvCache) add(key cacheKey) int32 {
	i := int32(len(c.entries))
	if last := len(c.free) - 1; last >= 0 {
		i, c.free = c.free[last], c.free[:last]
	} else {
		c.entries = append(c.entries, kvEntry{})
	}
	c.entries[i] = kvEntry{key: key}
	c.index[key] = i
	return i
}

func (c *kvCache) unlink(i int32) {
	e := &c.entries[i]
	if e.older >= 0 {
		c.entries[e.older].newer = e.newer
	} else {
		c.oldest = e.newer
	}
	if e.newer >= 0 {
		c.entries[e.newer].older = e.older
	} else {
		c.newest = e.older
	}
}
