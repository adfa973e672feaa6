package simulate

import (
	"time"

	"github.com/routing-operator/routing-operator/internal/routing"
)

// cluster is a cluster in the simulation. Its requests wait in order of arrival for a slot and for room in the KV
// cache. Those that have both are prefilled one after the other, and decoded side by side.
type cluster struct {
	name        string
	serves      []bool // by model
	slots       int
	prefillRate float64 // tokens per second, without the factor
	decodeRate  float64
	maxInputTPS float64
	oneWay      time.Duration

	timeline []Moment
	period   time.Duration
	shift    time.Duration

	up         bool
	slotsTaken int
	factor     float64

	cache *kvCache
	// queue of requests without a slot, from head on.
	queue        []int32
	head         int
	queuedTokens int64
	running      int
	// prefillFree is when the prefill of all that have a slot is done.
	prefillFree time.Duration
	// epoch counts the publications.
	epoch     uint32
	published routing.Candidate

	load series
}

func (c *cluster) queued() int { return len(c.queue) - c.head }

// taken is the slots in use by traffic that is not simulated.
func (c *cluster) taken() int { return max(0, min(c.slotsTaken, c.slots-c.running)) }

// busy is how many requests the cluster has accepted, the queued ones and those not simulated included.
func (c *cluster) busy() int { return c.running + c.queued() + c.taken() }

func (c *cluster) push(request int32, tokens int64) {
	if c.head > 1024 && c.head > len(c.queue)/2 {
		c.queue = append(c.queue[:0], c.queue[c.head:]...)
		c.head = 0
	}
	c.queue = append(c.queue, request)
	c.queuedTokens += tokens
}

func (c *cluster) pop(tokens int64) {
	c.head++
	c.queuedTokens -= tokens
}

// statistics are what the cluster publishes at a moment. The number of running queries counts all that it has accepted:
// if it ended at the slots, max_queued would be no limit.
func (c *cluster) statistics() routing.Candidate {
	return routing.Candidate{
		ID:                c.name,
		RTT:               2 * c.oneWay,
		QueuedInputTokens: uint64(c.queuedTokens),
		Queued:            uint64(c.queued()),
		Running:           uint64(c.busy()),
		MaxConcurrency:    uint64(c.slots),
		LastMeanInputTPS:  c.prefillRate * c.factor,
		MaxInputTPS:       c.maxInputTPS,
		KV: routing.KVTokens{
			Capacity: uint64(c.cache.capacity),
			Used:     uint64(c.cache.pinned),
			Free:     uint64(c.cache.capacity - c.cache.pinned),
		},
	}
}

// series is the mean of a number in each of some equal windows of time.
type series struct {
	windows []float64
	width   time.Duration
	value   float64
	since   time.Duration
}

func newSeries(n int, whole time.Duration) series {
	return series{windows: make([]float64, n), width: whole / time.Duration(n)}
}

// set changes the number from now on.
func (s *series) set(now time.Duration, value float64) {
	for w := int(s.since / s.width); w < len(s.windows) && s.since < now; w++ {
		until := min(now, s.width*time.Duration(w+1))
		s.windows[w] += s.value * float64(until-s.since) / float64(s.width)
		s.since = until
	}
	s.since, s.value = now, value
}
