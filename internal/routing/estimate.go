package routing

import (
	"math"
	"slices"
	"time"
)

// forever is an infinite time: of a cluster that can not do the work, and of a wait that nobody offers.
const forever time.Duration = math.MaxInt64

// add is a + b that stays within the range of a duration, so that forever plus anything is forever.
func add(a, b time.Duration) time.Duration {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return forever
	case a < 0 && b < 0 && sum >= 0:
		return -forever
	}
	return sum
}

// nanoseconds turns a number of nanoseconds into the nearest duration that there is.
func nanoseconds(ns float64) time.Duration {
	switch {
	case ns >= math.MaxInt64:
		return forever
	case ns <= -math.MaxInt64:
		return -forever
	}
	return time.Duration(math.Round(ns))
}

func validTPS(tps float64) bool { return tps > 0 && !math.IsInf(tps, 1) }

// workTime is the seconds that an amount of tokens takes at a throughput. No work takes no time, and work over an
// invalid throughput takes for ever, also when the scale makes nothing of it.
func workTime(tokens, scale, tps float64) float64 {
	if tokens == 0 {
		return 0
	}
	if !validTPS(tps) {
		return math.Inf(1)
	}
	return tokens * scale / tps
}

// queueDelay is the time that a request of the priority would wait in the cluster's queue: none while a slot is
// free, else what the cluster publishes for the nearest priority at or below, else the queued work in whole
// milliseconds.
func (c *Candidate) queueDelay(priority uint32) time.Duration {
	if c.MaxConcurrency > 0 && c.Running < c.MaxConcurrency {
		return 0
	}
	if len(c.QueueEstimates) > 0 {
		for _, estimate := range slices.Backward(c.QueueEstimates) {
			if estimate.Priority <= priority {
				return estimate.Delay
			}
		}
		return 0
	}
	// The scale makes it milliseconds before the division, which rounds once.
	ms := math.Ceil(workTime(float64(c.QueuedInputTokens), 1000, c.LastMeanInputTPS))
	return nanoseconds(ms * float64(time.Millisecond))
}

func (c *Candidate) prefill(tokens uint64, scale float64) time.Duration {
	return nanoseconds(workTime(float64(tokens), scale, c.LastMeanInputTPS) * float64(time.Second))
}

// hasCapacity says whether the cluster takes one more request when limit may be queued beyond its slots.
func (c *Candidate) hasCapacity(limit uint64) bool {
	return c.MaxConcurrency == 0 || c.Running < c.MaxConcurrency || c.Running-c.MaxConcurrency < limit
}

// fitsKV says whether the cluster is known to have room for the tokens in its KV cache.
func (c *Candidate) fitsKV(tokens uint64) bool {
	return c.KV != KVTokens{} && c.KV.Free >= tokens
}

// utilization is the share of slots in use.
func (c *Candidate) utilization() float64 {
	return float64(c.Running) / float64(max(1, c.MaxConcurrency))
}

// score is the comparator's value of a cluster for a request; the lowest wins.
func (c *Candidate) score(by Comparator, r *Request, scale float64) float64 {
	switch by {
	case CompareQueueTime:
		return float64(c.queueDelay(r.Priority))
	case CompareInputWork:
		return workTime(float64(c.QueuedInputTokens)+float64(r.InputTokens), 1, c.LastMeanInputTPS)
	case CompareUtilization:
		return c.utilization()
	case CompareQueued:
		return float64(c.Queued)
	}
	return float64(add(add(c.RTT, c.queueDelay(r.Priority)), c.prefill(r.InputTokens, scale)))
}

// lessLoaded is the fixed comparison of pulsar-wait-and-widen: the shorter queue delay, then the smaller share of
// slots in use, or the smaller number of running requests where a number of slots is unknown.
func lessLoaded(a, b *Candidate, priority uint32) bool {
	if qa, qb := a.queueDelay(priority), b.queueDelay(priority); qa != qb {
		return qa < qb
	}
	if a.MaxConcurrency == 0 || b.MaxConcurrency == 0 {
		return a.Running < b.Running
	}
	return a.utilization() < b.utilization()
}

// withinSLO says whether a queue delay is acceptable to a request that has waited for elapsed since it arrived.
func (c *Config) withinSLO(delay, elapsed, slo time.Duration) bool {
	if !c.QueueSLO {
		return true
	}
	used := 1.0
	if slo > 0 {
		used = min(1, float64(elapsed)/float64(slo))
	}
	floor, ceil := float64(c.QueueTimeFloor), float64(c.QueueTimeCeil)
	return delay != forever && float64(delay) <= floor+(ceil-floor)*used
}
