package simulate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// slowCache is a KV cache of the same rules, written for clarity: entries in order of use, the oldest first.
type slowCache struct {
	capacity int64
	entries  []slowEntry
}

type slowEntry struct {
	key         cacheKey
	held, valid int64
	pins        int
}

func (c *slowCache) take(key cacheKey) slowEntry {
	i := slices.IndexFunc(c.entries, func(e slowEntry) bool { return e.key == key })
	if i < 0 {
		return slowEntry{key: key}
	}
	e := c.entries[i]
	c.entries = slices.Delete(c.entries, i, i+1)
	return e
}

func (c *slowCache) used(pinned bool) (sum int64) {
	for _, e := range c.entries {
		if !pinned || e.pins > 0 {
			sum += e.held
		}
	}
	return sum
}

func (c *slowCache) admit(d *demand) (int64, bool) {
	before := slices.Clone(c.entries)
	hold := func(key cacheKey, tokens int64) (valid int64) {
		e := c.take(key)
		if e.pins > 0 {
			tokens = max(tokens, e.held)
		}
		e.held = tokens
		e.pins++
		c.entries = append(c.entries, e)
		return e.valid
	}
	prefix := int64(0)
	if d.shared > 0 {
		prefix = min(hold(d.prefix, d.shared), d.shared)
	}
	own := min(hold(d.session, d.input+d.output-d.shared), d.reusable)
	if c.used(true) > c.capacity {
		c.entries = before
		return 0, false
	}
	for c.used(false) > c.capacity {
		i := slices.IndexFunc(c.entries, func(e slowEntry) bool { return e.pins == 0 })
		c.entries = slices.Delete(c.entries, i, i+1)
	}
	c.entries[len(c.entries)-1].valid = d.input
	reused := own
	if d.shared > 0 {
		c.entries[len(c.entries)-2].valid = d.shared
		reused = max(prefix, own)
		if prefix < d.shared {
			reused = prefix
		}
	}
	return reused, true
}

func (c *slowCache) release(d *demand) {
	end := func(key cacheKey, valid int64) {
		e := c.take(key)
		e.pins--
		e.valid = valid
		c.entries = append(c.entries, e)
	}
	end(d.session, d.input+d.output)
	if d.shared > 0 {
		end(d.prefix, d.shared)
	}
}

func TestTheKVCacheDoesWhatASimpleOneDoes(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		const capacity = 10_000
		fast, slow := newKVCache(capacity), &slowCache{capacity: capacity}
		var running []demand
		reuses, refusals := 0, 0
		for range 2000 {
			if len(running) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(running))
				fast.release(&running[i])
				slow.release(&running[i])
				running = slices.Delete(running, i, i+1)
				continue
			}
			d := demand{session: sessionContext(rng.Uint64N(12)), prefix: sharedPrefix(rng.Uint64N(2)), output: 1 + rng.Int64N(300)}
			// A session has the prefix of one key or none.
			if n := uint64(d.session) >> 1; n%3 > 0 {
				d.shared, d.prefix = 200, sharedPrefix(n%3)
			}
			d.input = d.shared + 1 + rng.Int64N(2000)
			d.reusable = rng.Int64N(d.input + 1)
			got, ok := fast.admit(&d)
			want, wantOK := slow.admit(&d)
			if got != want || ok != wantOK {
				t.Fatalf("seed %d: admitted %v with %d tokens from the cache, want %v with %d", seed, ok, got, wantOK, want)
			}
			if fast.used > capacity || fast.used != slow.used(false) || fast.pinned != slow.used(true) {
				t.Fatalf("seed %d: holds %d, %d of them pinned; want %d and %d", seed, fast.used, fast.pinned, slow.used(false), slow.used(true))
			}
			if !ok {
				refusals++
				continue
			}
			if got > 0 {
				reuses++
			}
			running = append(running, d)
		}
		if reuses < 100 || refusals < 10 {
			t.Errorf("seed %d: %d requests found something and %d no room: the test is too easy", seed, reuses, refusals)
		}
	}
}

func TestEventsComeInOrderOfTimeThenKindThenAge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var q eventQueue
	var got, want []event
	for range 5000 {
		if len(q.heap) > 0 && rng.IntN(3) == 0 {
			got = append(got, q.pop())
			continue
		}
		// Never before what has happened, as in a simulation.
		now := time.Duration(0)
		if len(got) > 0 {
			now = got[len(got)-1].at + 1
		}
		q.push(now+time.Duration(rng.IntN(50)), kind(rng.IntN(8)), int32(rng.IntN(100)), 0)
	}
	for len(q.heap) > 0 {
		got = append(got, q.pop())
	}
	want = slices.Clone(got)
	slices.SortStableFunc(want, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	if !slices.Equal(got, want) {
		t.Error("events came out of order")
	}
}

func TestASeriesHoldsTheMeanOfEachWindow(t *testing.T) {
	s := newSeries(4, 4*time.Second)
	s.set(500*time.Millisecond, 2)
	s.set(2250*time.Millisecond, 4)
	s.set(9*time.Second, 0)
	if want := []float64{1, 2, 3.5, 4}; !slices.Equal(s.windows, want) {
		t.Errorf("means %v, want %v", s.windows, want)
	}
}

// starts are the times at which the sessions of a traffic begin within a duration.
func starts(t *testing.T, yaml string, duration time.Duration) []time.Duration {
	w := workloadOf(t, "{traffic: ["+yaml+"]}")
	g := newTraffic(&w.Traffic[0], 0, 1, nil)
	var all []time.Duration
	for at, ok := g.next(0); ok && at < duration; at, ok = g.next(at) {
		all = append(all, at)
	}
	return all
}

func TestArrivalsFollowTheRate(t *testing.T) {
	t.Run("even arrivals are exact, also over changes of the rate", func(t *testing.T) {
		got := starts(t, `{arrivals: even, sessionsPerSecond: 2, rate: [{at: 1s, factor: 0}, {at: 2s, factor: 2}]}`, 3*time.Second)
		const ms = time.Millisecond
		if want := []time.Duration{500 * ms, 1000 * ms, 2250 * ms, 2500 * ms, 2750 * ms}; !slices.Equal(got, want) {
			t.Errorf("sessions begin at %v, want %v", got, want)
		}
	})
	t.Run("a rate of 0 is the end", func(t *testing.T) {
		if got := starts(t, `{sessionsPerSecond: 10, rate: [{at: 10s, factor: 0}]}`, time.Hour); len(got) == 0 || got[len(got)-1] > 10*time.Second {
			t.Errorf("%d sessions, the last at %v", len(got), got[len(got)-1])
		}
	})
	t.Run("poisson arrivals have the mean and the variance of the rate", func(t *testing.T) {
		perMinute := make([]float64, 1000)
		for _, at := range starts(t, `{sessionsPerSecond: 1, rate: [{at: 0s, factor: 3}]}`, 1000*time.Minute) {
			perMinute[at/time.Minute]++
		}
		mean, square := 0.0, 0.0
		for _, n := range perMinute {
			mean += n / 1000
			square += n * n / 1000
		}
		// Four standard errors of the mean and of the variance.
		if variance := square - mean*mean; math.Abs(mean-180) > 4*math.Sqrt(180.0/1000) || math.Abs(variance-180) > 4*180*math.Sqrt(2.0/1000) {
			t.Errorf("%v sessions a minute with variance %v, want 180 and 180", mean, variance)
		}
	})
}

func TestAmountsHaveTheirMeanAndVariation(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	l := newLogNormal(500, 0.8)
	const n = 200_000
	mean, square := 0.0, 0.0
	for range n {
		x := l.of(rng.NormFloat64())
		mean += x / n
		square += x * x / n
	}
	if cv := math.Sqrt(square-mean*mean) / mean; math.Abs(mean-500) > 5 || math.Abs(cv-0.8) > 0.03 {
		t.Errorf("mean %v and cv %v, want 500 and 0.8", mean, cv)
	}
	if got := newLogNormal(500, 0).of(rng.NormFloat64()); got != 500 {
		t.Errorf("without variation %v, want 500", got)
	}
}

func TestHotKeysFollowZipf(t *testing.T) {
	w := workloadOf(t, `{traffic: [{keylessShare: 0.5, hotSet: {share: 0.4, keys: 3, exponent: 1}}]}`)
	keys := uint64(0)
	newKey := func(name string) *affinityKey {
		keys++
		return &affinityKey{id: keys, name: name, last: -1}
	}
	g := newTraffic(&w.Traffic[0], 0, 1, newKey)
	const n = 60_000
	draw, uses, keyless := newSessionRand(), map[string]float64{}, 0.0
	for range n {
		var c session
		g.begin(&c, draw, newKey)
		switch {
		case c.key == nil:
			keyless++
		case slices.Contains(g.hot, c.key):
			uses[c.key.name]++
			if c.shared != 2000 {
				t.Fatalf("a session with a hot key has a prefix of %d tokens, want 2000", c.shared)
			}
		}
	}
	// The weights 1, 1/2 and 1/3 of 0.4, and half of the rest, each within four standard errors.
	for name, want := range map[string]float64{" hot 1": 0.4 * 6 / 11, " hot 2": 0.4 * 3 / 11, " hot 3": 0.4 * 2 / 11} {
		if math.Abs(uses[name]/n-want) > 4*math.Sqrt(want*(1-want)/n) {
			t.Errorf("share of %q is %v, want %v", name, uses[name]/n, want)
		}
	}
	if math.Abs(keyless/n-0.3) > 4*math.Sqrt(0.3*0.7/n) {
		t.Errorf("share without a key is %v, want 0.3", keyless/n)
	}
}

func TestASessionGrowsUntilItsContextIsFull(t *testing.T) {
	w := workloadOf(t, `{traffic: [{turns: {mean: 100, cv: 0}, firstInputTokens: {mean: 1000, cv: 0}, inputTokens: {mean: 100, cv: 0}, outputTokens: {mean: 50, cv: 0}, prefixReuse: 0.5, maxContextTokens: 1300}]}`)
	g := newTraffic(&w.Traffic[0], 0, 1, nil)
	var c session
	draw := newSessionRand()
	g.begin(&c, draw, func(name string) *affinityKey { return &affinityKey{name: name} })
	var got [][2]int64
	for turn, ok := g.take(&c, draw); ok; turn, ok = g.take(&c, draw) {
		got = append(got, [2]int64{turn.input, turn.reusable})
		c.context = turn.input + turn.output
	}
	if want := [][2]int64{{1000, 0}, {1150, 525}, {1300, 600}}; !slices.Equal(got, want) {
		t.Errorf("input and reusable tokens %v, want %v", got, want)
	}
}
