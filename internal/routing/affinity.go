package routing

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// appendTagged appends a tagged value of Stargate's hash input: the tag, the byte 0xff, the length of the value as 64
// little-endian bits, the value.
func appendTagged(b []byte, tag, value string) []byte {
	b = append(b, tag...)
	b = append(b, 0xff)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	return append(b, value...)
}

// hashPrefix is the input that all hashes of a routing target under a configuration begin with.
func hashPrefix(seed, routingKey, model string) []byte {
	b := appendTagged([]byte{1}, "seed", seed)
	b = appendTagged(b, "routing_key", routingKey)
	return appendTagged(b, "model_id", model)
}

// rank orders the clusters of a snapshot by weighted rendezvous hashing for an affinity key, the best first. A cluster
// without a valid weight is left out. The values are indexes into the snapshot.
//
// The logarithm is that of the platform, in Stargate as here: where it is rounded differently, two clusters can change
// places whose scores differ in nothing but the last bit.
func rank(s *Snapshot, w Weight, prefix []byte, key string, work *scratch) []int32 {
	buf := appendTagged(append(work.buf[:0], prefix...), "cache_affinity_key", key)
	keyed := len(buf)
	scores := work.scores[:0]
	for i := range s.candidates {
		c := &s.candidates[i]
		weight := c.MaxInputTPS
		if w == WeightLastMeanInputTPS {
			weight = c.LastMeanInputTPS
		}
		if !validTPS(weight) {
			continue
		}
		buf = appendTagged(buf[:keyed], "cluster_id", c.ID)
		u := (float64(xxh3.Hash(buf)) + 1) / (float64(math.MaxUint64) + 2)
		scores = append(scores, scored{weight / -math.Log(u), int32(i)})
	}
	slices.SortFunc(scores, func(a, b scored) int {
		if a.score != b.score {
			return cmp.Compare(b.score, a.score)
		}
		return cmp.Compare(a.cluster, b.cluster)
	})
	order := make([]int32, len(scores))
	for i := range scores {
		order[i] = scores[i].cluster
	}
	work.buf, work.scores = buf, scores
	return order
}

type scored struct {
	score   float64
	cluster int32
}

// ring is the hash ring of a routing target, in order of (hash, cluster ID).
type ring []ringPoint

type ringPoint struct {
	hash    uint64
	cluster int32
}

func newRing(s *Snapshot, virtualNodes int, prefix []byte) ring {
	virtualNodes = min(max(1, virtualNodes), MaxVirtualNodes)
	points := make(ring, 0, len(s.candidates)*virtualNodes)
	buf := slices.Clone(prefix)
	for i := range s.candidates {
		buf = appendTagged(buf[:len(prefix)], "cluster_id", s.candidates[i].ID)
		buf = appendTagged(buf, "virtual_node", "\x00\x00\x00\x00\x00\x00\x00\x00")
		for v := range virtualNodes {
			binary.LittleEndian.PutUint64(buf[len(buf)-8:], uint64(v))
			points = append(points, ringPoint{xxh3.Hash(buf), int32(i)})
		}
	}
	slices.SortFunc(points, func(a, b ringPoint) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(a.cluster, b.cluster)
	})
	return points
}

// walk collects the first k distinct of n clusters clockwise from the affinity key's point.
func (r ring) walk(k, n int, prefix []byte, key string, work *scratch) []int32 {
	k = min(k, n)
	work.buf = appendTagged(append(work.buf[:0], prefix...), "cache_affinity_key", key)
	point := xxh3.Hash(work.buf)
	start, _ := slices.BinarySearchFunc(r, point, func(p ringPoint, hash uint64) int { return cmp.Compare(p.hash, hash) })

	seen := make([]bool, n)
	group := make([]int32, 0, k)
	for i := 0; len(group) < k; i++ {
		p := r[(start+i)%len(r)]
		if !seen[p.cluster] {
			seen[p.cluster] = true
			group = append(group, p.cluster)
		}
	}
	return group
}

// order is an affinity order as one request sees it: the cached original, of which promoted, if any, is moved from its
// place to the front. The original is shared and stays as it is.
type order struct {
	original []int32
	promoted int32
	// from is the promoted cluster's place in the original, len(original) when it is not in it (the last member then drops
	// out), and -1 when nothing is promoted.
	from int
}

func (o order) len() int { return len(o.original) }

func (o order) at(i int) int32 {
	switch {
	case i > o.from:
		return o.original[i]
	case i == 0:
		return o.promoted
	}
	return o.original[i-1]
}
