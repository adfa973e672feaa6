package routing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// open is a wait-and-widen configuration without an affinity group.
func open(edit func(*Config)) Config { return edited(v1alpha1.WaitAndWiden, edit) }

func idle(id string, rtt time.Duration) Candidate {
	return Candidate{ID: id, RTT: rtt, MaxConcurrency: 4, LastMeanInputTPS: 1000, MaxInputTPS: 1000}
}

func full(id string, rtt time.Duration) Candidate {
	c := idle(id, rtt)
	c.Running = c.MaxConcurrency
	return c
}

func TestBucketsUnlockOneAfterTheOther(t *testing.T) {
	// Bucket starts are 0, 100 and 300 ms: at a factor of a quarter the second costs 25 ms and the third 50 ms more.
	near, mid, far := 0*ms, 100*ms, 300*ms
	for name, test := range map[string]struct {
		candidates []Candidate
		edit       func(*Config)
		elapsed    time.Duration
		want       string
	}{
		"the fastest is selected":                                 {[]Candidate{idle("a", near), idle("b", mid), idle("c", far)}, nil, 0, "a"},
		"a full first bucket waits for the second":                {[]Candidate{full("a", near), idle("b", mid), idle("c", far)}, nil, 0, "wait 25ms"},
		"the time waited counts":                                  {[]Candidate{full("a", near), idle("b", mid), idle("c", far)}, nil, 24 * ms, "wait 1ms"},
		"the second bucket is unlocked at its price":              {[]Candidate{full("a", near), idle("b", mid), idle("c", far)}, nil, 25 * ms, "b"},
		"the third bucket costs what the second did and its own":  {[]Candidate{full("a", near), full("b", mid), idle("c", far)}, nil, 25 * ms, "wait 50ms"},
		"the wait is for the next bucket although it is full too": {[]Candidate{full("a", near), full("b", mid), idle("c", far)}, nil, 0, "wait 25ms"},
		"the third bucket unlocks":                                {[]Candidate{full("a", near), full("b", mid), idle("c", far)}, nil, 75 * ms, "c"},
		"nobody has capacity":                                     {[]Candidate{full("a", near), full("b", mid), full("c", far)}, nil, 0, "unavailable"},
		"capacity is only in what is unlocked already":            {[]Candidate{idle("a", near), full("b", mid)}, nil, 0, "a"},
		"no candidates":                                           {nil, nil, 0, "unavailable"},
		"within the width of a bucket there is no second":         {[]Candidate{full("a", near), idle("b", 20*ms)}, nil, 0, "b"},
		"just above it there is":                                  {[]Candidate{full("a", near), idle("b", 20*ms+4)}, nil, 0, "wait 5.000001ms"},
		"a bucket is measured from its start, not from its end":   {[]Candidate{full("a", near), full("b", 15*ms), idle("c", 30*ms)}, nil, 0, "wait 7.5ms"},
		"a gap is measured from the start of the bucket before":   {[]Candidate{full("a", near), full("b", 15*ms), idle("c", 30*ms)}, nil, 7500 * time.Microsecond, "c"},
		"another width":                                           {[]Candidate{full("a", near), idle("b", mid)}, func(c *Config) { c.BucketSize = 100 * ms }, 0, "b"},
		"a factor of 0 unlocks all at once":                       {[]Candidate{full("a", near), full("b", mid), idle("c", far)}, func(c *Config) { c.UnlockFactor = 0 }, 0, "c"},
		"a factor above 1 waits longer than the gap":              {[]Candidate{full("a", near), idle("b", mid)}, func(c *Config) { c.UnlockFactor = 3 }, 0, "wait 300ms"},
		"a factor beyond all times is waited for all the same":    {[]Candidate{full("a", near), idle("b", mid)}, func(c *Config) { c.UnlockFactor = 1e300 }, 0, "wait 2562047h47m16.854775806s"},
		"a negative factor gives time back":                       {[]Candidate{full("a", near), full("b", mid), idle("c", far)}, func(c *Config) { c.UnlockFactor = -1 }, 0, "c"},
		"a bucket of no width":                                    {[]Candidate{full("a", near), idle("b", 4)}, func(c *Config) { c.BucketSize = 0 }, 0, "wait 1ns"},
		"an infinite time to first token is not waited for":       {[]Candidate{full("a", near), {ID: "b", MaxConcurrency: 4}}, nil, 0, "unavailable"},
		"nor is it ever unlocked":                                 {[]Candidate{full("a", near), {ID: "b", MaxConcurrency: 4}}, func(c *Config) { c.UnlockFactor = -1 }, time.Hour, "unavailable"},
		"without a finite time to first token there is nothing":   {[]Candidate{{ID: "a", MaxConcurrency: 4}, {ID: "b", MaxConcurrency: 4}}, nil, time.Hour, "unavailable"},
		"the prefill can be ignored, and with it its infinity":    {[]Candidate{{ID: "a", MaxConcurrency: 4}}, func(c *Config) { c.IgnoreInputTime = true }, 0, "a"},
		"a limit of queued requests gives capacity":               {[]Candidate{full("a", near), idle("b", mid)}, func(c *Config) { c.MaxQueued = 1 }, 0, "a"},
		"the queue delay places a cluster":                        {[]Candidate{queued("a", near, 200*ms), idle("b", mid)}, func(c *Config) { c.MaxQueued = 9 }, 0, "b"},
		"the queue delay can be ignored":                          {[]Candidate{queued("a", near, 200*ms), idle("b", mid)}, func(c *Config) { c.MaxQueued, c.IgnoreQueueTime = 9, true }, 0, "a"},
		"the queue SLO drops a cluster":                           {[]Candidate{queued("a", near, 200*ms)}, slo(100*ms, 300*ms), 0, "unavailable"},
		"the queue SLO drops it also where the delay is ignored":  {[]Candidate{queued("a", near, 200*ms)}, func(c *Config) { slo(100*ms, 300*ms)(c); c.IgnoreQueueTime = true }, 0, "unavailable"},
		"the queue SLO lets it in as the request ages":            {[]Candidate{queued("a", near, 200*ms)}, slo(100*ms, 300*ms), 500 * ms, "a"},
		"one bound of the queue SLO alone is none":                {[]Candidate{queued("a", near, 200*ms)}, func(c *Config) { c.MaxQueued, c.QueueTimeCeil = 9, ms }, 0, "a"},
		"n of 0 counts as 1":                                      {[]Candidate{idle("a", near)}, func(c *Config) { c.SampleN = 0 }, 0, "a"},
		"a negative time since arrival counts as none":            {[]Candidate{full("a", near), idle("b", mid)}, nil, -time.Hour, "wait 25ms"},
	} {
		t.Run(name, func(t *testing.T) {
			config := DefaultConfig(v1alpha1.WaitAndWiden)
			if test.edit != nil {
				test.edit(&config)
			}
			request := Request{Model: model, InputTokens: 1, SLO: time.Second}
			for i := range test.candidates {
				if test.candidates[i].LastMeanInputTPS > 0 {
					test.candidates[i].LastMeanInputTPS = 1e12 // prefill takes no time to speak of
				}
			}
			got := decide(t, routerOf(t, config), request, snapshotOf(t, test.candidates...), test.elapsed)
			if spelled := spell(got); spelled != test.want {
				t.Errorf("the decision is %s, want %s", spelled, test.want)
			}
			if got.Outcome == Selected && got.RankDepth != 1 {
				t.Errorf("the rank depth is %d, want 1 where there is no group", got.RankDepth)
			}
		})
	}
}

// queued is a full cluster that publishes a queue delay.
func queued(id string, rtt, delay time.Duration) Candidate {
	c := full(id, rtt)
	c.QueueEstimates = []QueueEstimate{{Delay: delay}}
	return c
}

func slo(floor, ceil time.Duration) func(*Config) {
	return func(c *Config) { c.MaxQueued, c.QueueSLO, c.QueueTimeFloor, c.QueueTimeCeil = 9, true, floor, ceil }
}

func spell(got Decision) string {
	switch got.Outcome {
	case Selected:
		return got.Cluster
	case Wait:
		return fmt.Sprint("wait ", got.Wait)
	}
	return got.Outcome.String()
}

// shares decides many times and counts the clusters selected.
func shares(t *testing.T, config Config, request Request, s *Snapshot, times int) map[string]int {
	t.Helper()
	router, rng, counts := routerOf(t, config), seeded1(), map[string]int{}
	request.Model = model
	for range times {
		counts[callOf(t, router, request).Decide(s, 0, rng).Cluster]++
	}
	return counts
}

// about says whether a count is within five standard deviations of its expectation.
func about(count, times int, share float64) bool {
	mean := float64(times) * share
	deviation := float64(count) - mean
	return deviation*deviation <= 25*mean*(1-share)+1e-9
}

func TestSamplingTakesTheBestOfN(t *testing.T) {
	// The running counts rank the clusters a, b, c, d; best of n of four is known.
	var clusters []Candidate
	for i, id := range []string{"a", "b", "c", "d"} {
		clusters = append(clusters, Candidate{ID: id, MaxConcurrency: 100, Running: uint64(i), LastMeanInputTPS: 1})
	}
	s := snapshotOf(t, clusters...)
	const times = 20000
	for n, want := range map[int][]float64{
		1: {1. / 4, 1. / 4, 1. / 4, 1. / 4}, 2: {3. / 6, 2. / 6, 1. / 6, 0}, 3: {3. / 4, 1. / 4, 0, 0}, 4: {1, 0, 0, 0}, 64: {1, 0, 0, 0},
	} {
		for name, config := range map[string]Config{
			"power-of-n":     edited(v1alpha1.PowerOfN, func(c *Config) { c.SampleCount, c.Comparator = n, CompareUtilization }),
			"wait-and-widen": open(func(c *Config) { c.SampleN, c.Comparator = n, CompareUtilization }),
		} {
			counts := shares(t, config, Request{}, s, times)
			for i, id := range []string{"a", "b", "c", "d"} {
				if !about(counts[id], times, want[i]) {
					t.Errorf("%s, best of %d: %s got %d of %d, want a share of %.3f", name, n, id, counts[id], times, want[i])
				}
			}
		}
	}
}

func TestEqualScoresAreChosenAtRandom(t *testing.T) {
	s := snapshotOf(t, idle("a", 0), idle("b", 0), idle("c", 0))
	const times = 9000
	for name, config := range map[string]Config{
		"power-of-n":            edited(v1alpha1.PowerOfN, func(c *Config) { c.SampleCount = 3 }),
		"wait-and-widen":        open(func(c *Config) { c.SampleN = 3 }),
		"pulsar-wait-and-widen": edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.SampleN, c.GroupSize = 3, 3 }),
		"random":                DefaultConfig(v1alpha1.Random),
	} {
		counts := shares(t, config, Request{AffinityKey: "key"}, s, times)
		for _, id := range []string{"a", "b", "c"} {
			if !about(counts[id], times, 1./3) {
				t.Errorf("%s: %s got %d of %d, want a third", name, id, counts[id], times)
			}
		}
	}
}

func TestPulsarWaitAndWidenComparesTheQueueDelayAlsoWhereItIsIgnored(t *testing.T) {
	config := edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.GroupSize, c.IgnoreQueueTime, c.MaxQueued = 2, true, 9 })
	s := snapshotOf(t, queued("a", 0, 2*time.Second), queued("b", 0, time.Second))
	if counts := shares(t, config, Request{}, s, 200); counts["b"] != 200 {
		t.Errorf("the selections are %v, want all on b", counts)
	}
}

func TestPowerOfNNeedsNeitherCapacityNorAFiniteTime(t *testing.T) {
	s := snapshotOf(t, full("a", 0), Candidate{ID: "b"})
	config := DefaultConfig(v1alpha1.PowerOfN)
	if got := decide(t, routerOf(t, config), Request{Model: model, InputTokens: 1}, s, 0); got.Cluster != "a" || got.RankDepth != 1 {
		t.Errorf("the decision is %+v, want a at depth 1", got)
	}
	call := callOf(t, routerOf(t, config), Request{Model: model, InputTokens: 1})
	call.Exclude("a")
	if got := call.Decide(s, 0, seeded1()); got.Cluster != "b" {
		t.Errorf("the decision is %+v, want b", got)
	}
	call.Exclude("b")
	if got := call.Decide(s, 0, seeded1()); got.Outcome != Unavailable {
		t.Errorf("the decision is %+v, want unavailable when all are excluded", got)
	}
}

func TestRoundRobinCountsPerRoutingKeyModelAndConfiguration(t *testing.T) {
	config := DefaultConfig(v1alpha1.RoundRobin)
	router, err := NewRouter(Plane{Default: v1alpha1.RoundRobin, Models: map[string]ModelConfig{
		model: {Config: config}, "other": {Config: DefaultConfig(v1alpha1.PowerOfN), RequestAlgorithms: map[v1alpha1.Algorithm]Config{v1alpha1.RoundRobin: config}},
	}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := snapshotOf(t, idle("b", 0), idle("a", 0), idle("c", 0))
	for turn, want := range []string{"a", "b", "c", "a", "b"} {
		for _, request := range []Request{{Model: model}, {Model: model, RoutingKey: "rk"}, {Model: "other", Method: "round-robin"}, {Model: "unlisted"}} {
			if got := decide(t, router, request, s, 0); got.Cluster != want {
				t.Errorf("turn %d of %+v is %s, want %s", turn, request, got.Cluster, want)
			}
		}
	}
	call := callOf(t, router, Request{Model: model})
	call.Exclude("c")
	if got := call.Decide(s, 0, seeded1()); got.Cluster != "b" {
		t.Errorf("the turn of c, who is excluded, goes to %s: want the sixth turn among a and b, b", got.Cluster)
	}
}

func TestPulsarTakesTheFirstFeasible(t *testing.T) {
	config := edited(v1alpha1.Pulsar, func(c *Config) { c.ConsiderKVFree = true })
	type edit = func(*site, *Call)
	for name, test := range map[string]struct {
		edit edit
		want int
		kv   bool
	}{
		"rank 1":                                  {func(*site, *Call) {}, a, false},
		"rank 1 though it is full":                {func(s *site, _ *Call) { s.fill(a) }, a, false},
		"not an excluded one":                     {func(s *site, c *Call) { c.Exclude(s.clusters[a].ID) }, b, false},
		"not one without enough KV tokens":        {func(s *site, _ *Call) { s.clusters[a].KV.Free = 99 }, b, true},
		"one with just enough":                    {func(s *site, _ *Call) { s.clusters[a].KV.Free = 100 }, a, false},
		"not one without KV statistics":           {func(s *site, _ *Call) { s.clusters[a].KV = KVTokens{} }, b, true},
		"a KV skip below the selected is none":    {func(s *site, _ *Call) { s.clusters[b].KV = KVTokens{} }, a, false},
		"an excluded one is not skipped for KV":   {func(s *site, c *Call) { s.clusters[a].KV = KVTokens{}; c.Exclude(s.clusters[a].ID) }, b, false},
		"past both":                               {func(s *site, c *Call) { s.clusters[b].KV = KVTokens{}; c.Exclude(s.clusters[a].ID) }, c, true},
		"a cluster without a weight is not there": {func(s *site, _ *Call) { s.clusters[a].MaxInputTPS = 0 }, b, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 4, config)
			call := callOf(t, s.router, s.request)
			test.edit(s, call)
			got := call.Decide(s.snapshot(), 0, seeded1())
			if got.Cluster != s.clusters[test.want].ID || got.SkippedForKV != test.kv {
				t.Errorf("the decision is %s (skipped for KV: %v), want %c (%v)", s.spell(got), got.SkippedForKV, 'A'+test.want, test.kv)
			}
		})
	}
	s := newSite(t, 2, config)
	s.clusters[a].KV, s.clusters[b].KV = KVTokens{}, KVTokens{}
	if got := s.decide(s.request, 0); got.Outcome != Unavailable {
		t.Errorf("without a feasible cluster the decision is %s", s.spell(got))
	}
}

func TestPulsarRankDepthIsThePositionInTheRanking(t *testing.T) {
	s := newSite(t, 4, DefaultConfig(v1alpha1.Pulsar))
	call := callOf(t, s.router, s.request)
	for depth := 1; depth <= 4; depth++ {
		got := call.Decide(s.snapshot(), 0, seeded1())
		if got.RankDepth != depth || got.Cluster != s.clusters[depth-1].ID {
			t.Errorf("attempt %d is %s", depth, s.spell(got))
		}
		call.Exclude(got.Cluster)
	}
}

func TestTheKVCheckIsForTheRankedAlgorithmsAlone(t *testing.T) {
	s := newSite(t, 2, edited(v1alpha1.WaitAndWiden, func(c *Config) { c.GroupSize, c.ConsiderKVFree = 1, true }))
	s.clusters[a].KV = KVTokens{}
	s.sends(s.request, 0, a)
}

func TestTheGroupOverflowsAfterTheAffinityWait(t *testing.T) {
	for _, algorithm := range sessionAlgorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			s := newSite(t, 4, edited(algorithm, func(c *Config) { c.GroupSize, c.AffinityWait, c.BandWidenInterval = 2, 100*ms, 0 }))
			s.fill(a, b, d)
			s.waits(s.request, 0, 100*ms)
			// C is of rank 3, and in the whole pool of wait-and-widen one past the group of 2.
			if got := s.sends(s.request, 100*ms, c); got.RankDepth != 3 || got.Primary {
				t.Errorf("the overflow is at depth %d, primary %v, want 3 and fallback", got.RankDepth, got.Primary)
			}
			// The buckets of the open set count the time since the end of the affinity wait.
			s.clusters[c].RTT = 105 * ms
			s.waits(s.request, 100*ms, 25*ms)
			s.waits(s.request, 124*ms, ms)
			s.sends(s.request, 125*ms, c)

			wantDepth := 1
			if algorithm == v1alpha1.PulsarWaitAndWiden {
				wantDepth = 2
			}
			s.drain(b)
			if got := s.sends(s.request, 50*ms, b); got.RankDepth != wantDepth || !got.Primary {
				t.Errorf("a member of the group is at depth %d, primary %v, want %d and primary", got.RankDepth, got.Primary, wantDepth)
			}
		})
	}
}

func TestTheShortestWaitOfferedCounts(t *testing.T) {
	for _, algorithm := range sessionAlgorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			s := newSite(t, 2, edited(algorithm, func(c *Config) { c.GroupSize, c.AffinityWait, c.BandWidenInterval = 2, 100*ms, 0 }))
			s.fill(a)
			s.clusters[b].RTT = 125 * ms
			s.waits(s.request, 0, 30*ms)
			s.clusters[b].RTT = 605 * ms
			s.waits(s.request, 0, 100*ms)
			s.waits(s.request, 60*ms, 40*ms)
			// Both sets are the same two clusters. The group has waited longer, so its buckets unlock earlier.
			s.waits(s.request, 110*ms, 40*ms)
			s.sends(s.request, 150*ms, b)
		})
	}
}

func TestTheNextBandIsWaitedForWhereItOpensBeforeTheNextBucket(t *testing.T) {
	s := newSite(t, 5, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.BandWidenInterval, c.AffinityWait = 40*ms, 300*ms }))
	s.fill(a, b, d, e)
	s.clusters[c].RTT = 405 * ms
	s.waits(s.request, 300*ms, 40*ms)
	s.waits(s.request, 340*ms, 60*ms)
	s.sends(s.request, 400*ms, c)
}

func TestTheDepthOfAnOverflowIsOnePastTheGroupAsItIs(t *testing.T) {
	// A is full. With the discount A is fast and B is in a locked bucket of the group; without it B is the fastest of the pool.
	s := newSite(t, 2, edited(v1alpha1.WaitAndWiden, func(c *Config) { c.GroupSize, c.AffinityScale = 5, 0.1 }))
	s.request.InputTokens = 1000
	s.fill(a)
	s.clusters[b].RTT, s.clusters[b].LastMeanInputTPS = 400*ms, 1e9
	if got := s.sends(s.request, 0, b); got.RankDepth != 3 {
		t.Errorf("the depth is %d, want one past the two clusters of a group of up to five", got.RankDepth)
	}
}

func TestFailedMembersOfTheGroupAreNotReplaced(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.LastClusterAffinity = false
		s := newSite(t, 3, config)
		call := callOf(t, s.router, s.request)
		call.Exclude(s.clusters[a].ID)
		if got := call.Decide(s.snapshot(), 0, seeded1()); got.Outcome != Wait || got.Wait != 300*ms {
			t.Errorf("the decision is %s, want a wait of 300ms", s.spell(got))
		}
		call.Exclude("no-candidate")
		if got := call.Decide(s.snapshot(), 300*ms, seeded1()); got.Outcome != Selected || got.Cluster == s.clusters[a].ID {
			t.Errorf("the decision is %s, want B or C", s.spell(got))
		}
	})
}

func TestAGroupLargerThanThePoolIsThePool(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.GroupSize = 9
		s := newSite(t, 2, config)
		s.fill(a)
		s.sends(s.last(a), 0, b)
		s.fill(b)
		s.waits(s.last(a), 0, 300*ms)
		if got := s.decide(s.last(a), 300*ms); got.Outcome != Unavailable {
			t.Errorf("when all is full and open the decision is %s", s.spell(got))
		}
	})
}

func TestBandsOpenOneAfterTheOther(t *testing.T) {
	for name, test := range map[string]struct {
		k        int
		interval time.Duration
		wait     time.Duration
		opens    map[int]time.Duration // rank, from 1, to the time when it opens
	}{
		"bands of 2, 4 and 8":           {1, 40 * ms, 300 * ms, map[int]time.Duration{1: 0, 2: 300 * ms, 3: 300 * ms, 4: 340 * ms, 7: 340 * ms, 8: 380 * ms, 15: 380 * ms, 16: 420 * ms, 20: 420 * ms}},
		"after a group of three":        {3, 40 * ms, 300 * ms, map[int]time.Duration{3: 0, 4: 300 * ms, 5: 300 * ms, 6: 340 * ms, 9: 340 * ms, 10: 380 * ms}},
		"a group of 0 counts as 1":      {0, 40 * ms, 300 * ms, map[int]time.Duration{1: 0, 2: 300 * ms, 3: 300 * ms, 4: 340 * ms}},
		"the interval follows the wait": {1, FollowAffinityWait, 300 * ms, map[int]time.Duration{3: 300 * ms, 4: 600 * ms, 8: 900 * ms}},
		"no interval opens all at once": {1, 0, 300 * ms, map[int]time.Duration{1: 0, 2: 300 * ms, 20: 300 * ms}},
		"no wait and no interval":       {1, FollowAffinityWait, 0, map[int]time.Duration{1: 0, 2: 0, 20: 0}},
		"an interval without a wait":    {1, 40 * ms, 0, map[int]time.Duration{3: 0, 4: 40 * ms, 8: 80 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			for rank, opens := range test.opens {
				s := newSite(t, 20, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
					c.GroupSize, c.BandWidenInterval, c.AffinityWait = test.k, test.interval, test.wait
				}))
				for i := range s.clusters {
					s.fill(i)
				}
				s.drain(rank - 1)
				if opens > 0 {
					if got := s.decide(s.request, opens-1); got.Outcome != Wait || got.Wait != 1 {
						t.Errorf("rank %d, a nanosecond early: %s, want a wait of one", rank, s.spell(got))
					}
				}
				if got := s.sends(s.request, opens, rank-1); got.RankDepth != rank {
					t.Errorf("rank %d is selected at depth %d", rank, got.RankDepth)
				}
			}
		})
	}
}

func TestWithEveryBandOpenAndNothingSelectableTheRequestIsUnavailable(t *testing.T) {
	s := newSite(t, 5, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.BandWidenInterval, c.AffinityWait = 40*ms, 300*ms }))
	s.fill(a, b, c, d, e)
	s.waits(s.request, 300*ms, 40*ms)
	s.waits(s.request, 339*ms, ms)
	if got := s.decide(s.request, 340*ms); got.Outcome != Unavailable {
		t.Errorf("the decision is %s", s.spell(got))
	}
	if got := s.decide(s.request, 1e18); got.Outcome != Unavailable {
		t.Errorf("decades later the decision is %s", s.spell(got))
	}
}

func TestBandsCountRanksBeforeFilters(t *testing.T) {
	s := newSite(t, 5, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
		c.BandWidenInterval, c.AffinityWait, c.ConsiderKVFree = 40*ms, 300*ms, true
	}))
	s.clusters[b].KV.Free = 0
	s.fill(a, c)
	s.waits(s.request, 300*ms, 40*ms)
	got := s.decide(s.request, 340*ms)
	if got.RankDepth < 4 || !got.SkippedForKV {
		t.Errorf("the decision is %+v, want rank 4 or 5 and a skip for KV tokens", got)
	}
}

func TestAKVSkipBelowTheSelectedClusterIsNone(t *testing.T) {
	s := newSite(t, 3, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.GroupSize, c.ConsiderKVFree = 2, true }))
	s.clusters[b].KV.Free = 0
	if got := s.sends(s.request, 0, a); got.SkippedForKV {
		t.Error("B, of rank 2, counts as skipped when A is selected")
	}
	s.fill(a)
	if got := s.sends(s.request, 0, c); !got.SkippedForKV {
		t.Error("B, of rank 2, does not count as skipped when C is selected")
	}
}

func TestTheFallbackHasItsOwnLimitOfQueuedRequests(t *testing.T) {
	limits := func(affinity, fallback uint64) *site {
		s := newSite(t, 2, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
			c.AffinityWait, c.MaxQueued, c.FallbackMaxQueued = 300*ms, affinity, fallback
		}))
		s.fill(a, b)
		return s
	}
	s := limits(1, 0)
	s.sends(s.request, 0, a)
	s.clusters[a].Running++
	if got := s.decide(s.request, 300*ms); got.Outcome != Unavailable {
		t.Errorf("a full fallback takes a request: %s", s.spell(got))
	}
	s = limits(0, 1)
	s.waits(s.request, 0, 300*ms)
	if got := s.decide(s.request, 300*ms); got.Outcome != Selected {
		t.Errorf("the fallback does not take a queued request: %s", s.spell(got))
	}
}

func TestTheAffinityDiscountEndsWithTheAffinityPhase(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.LastClusterAffinity = false
		s := newSite(t, 2, config)
		if got := s.sends(s.request, 0, a); got.TTFT != 15*ms {
			t.Errorf("within the group the time to first token is taken as %v, want 15ms", got.TTFT)
		}
		s.fill(a)
		if got := s.sends(s.request, 300*ms, b); got.TTFT != 105*ms {
			t.Errorf("outside the group the time to first token is taken as %v, want 105ms", got.TTFT)
		}
	})
}

func TestTheQueueSLOCountsFromTheArrivalInEveryPhase(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.LastClusterAffinity = false
		config.QueueSLO, config.QueueTimeFloor, config.QueueTimeCeil = true, 0, time.Second
		config.MaxQueued, config.FallbackMaxQueued = 9, 9
		s := newSite(t, 2, config)
		s.request.SLO = time.Second
		s.fill(a, b)
		s.clusters[a].QueueEstimates = []QueueEstimate{{Delay: time.Hour}}
		s.clusters[b].QueueEstimates = []QueueEstimate{{Delay: 400 * ms}}
		if got := s.decide(s.request, 399*ms); got.Outcome == Selected {
			t.Errorf("after 399ms the decision is %s", s.spell(got))
		}
		s.sends(s.request, 400*ms, b)
	})
}

func TestAnEmptyRankingIsUnavailableAtOnce(t *testing.T) {
	for _, algorithm := range []v1alpha1.Algorithm{v1alpha1.Pulsar, v1alpha1.PulsarWaitAndWiden} {
		config := edited(algorithm, func(c *Config) { c.AffinityWait = 300 * ms })
		unranked := idle("a", 0)
		unranked.MaxInputTPS = 0
		for _, s := range []*Snapshot{snapshotOf(t), snapshotOf(t, unranked)} {
			if got := decide(t, routerOf(t, config), Request{Model: model}, s, 0); got.Outcome != Unavailable {
				t.Errorf("%s: the decision is %s", algorithm, spell(got))
			}
		}
		config.Weight = WeightLastMeanInputTPS
		if got := decide(t, routerOf(t, config), Request{Model: model}, snapshotOf(t, unranked), 0); got.Cluster != "a" {
			t.Errorf("%s weighted by the last mean: the decision is %s", algorithm, spell(got))
		}
	}
}

func TestAllAlgorithmsAreUnavailableWithoutCandidates(t *testing.T) {
	for _, algorithm := range validate.Algorithms() {
		config := edited(algorithm, func(c *Config) { c.GroupSize, c.AffinityWait, c.LastClusterAffinity = 2, time.Second, true })
		for _, hint := range []string{"", "a"} {
			if got := decide(t, routerOf(t, config), Request{Model: model, AffinityKey: "key", LastCluster: hint}, snapshotOf(t), 0); got.Outcome != Unavailable {
				t.Errorf("%s: the decision is %s", algorithm, spell(got))
			}
		}
	}
}

func TestAReturningSessionWhoseClusterIsNotRankedKeepsTheOrderAndCountsAsFallback(t *testing.T) {
	s := newSite(t, 3, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
		c.AffinityWait, c.AffinityScale, c.LastClusterAffinity = 300*ms, 0.1, true
	}))
	r := s.last(c)
	s.clusters[c].MaxInputTPS = 0
	got := s.sends(r, 0, a)
	if got.Primary || got.TTFT != 15*ms || got.RankDepth != 1 {
		t.Errorf("the decision is %+v, want a discounted fallback at depth 1", got)
	}
	s.fill(a)
	s.waits(r, 0, 300*ms)
}

func TestAReturningSessionWhoseClusterHasLeftKeepsItsStateAndTheOriginalOrder(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		call := callOf(t, s.router, s.last(c))
		s.fill(a, b, c)
		call.Decide(s.snapshot(), 0, seeded1())
		left := snapshotOf(t, s.clusters[a], s.clusters[b])
		if got := call.Decide(left, 10*ms, seeded1()); got.Outcome != Wait || got.Wait != 290*ms {
			t.Errorf("the decision is %s, want the rest of the affinity wait", s.spell(got))
		}
		s.drain(a, b)
		got := call.Decide(snapshotOf(t, s.clusters[a], s.clusters[b]), 10*ms, seeded1())
		if got.Cluster != s.clusters[a].ID || got.Primary || got.TTFT != 15*ms || call.Session() != SessionReturning {
			t.Errorf("the decision is %s of a session %v, want A discounted, as fallback, of a returning one", s.spell(got), call.Session())
		}
	})
}

func TestAStaleSessionStaysStaleWhenItsClusterAppears(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		call := callOf(t, s.router, s.last(c))
		s.fill(a, b, c)
		call.Decide(snapshotOf(t, s.clusters[a], s.clusters[b]), 0, seeded1())
		s.drain(a, b, c)
		got := call.Decide(s.snapshot(), 10*ms, seeded1())
		if got.Cluster != s.clusters[a].ID || call.Session() != SessionStale || !got.Primary {
			t.Errorf("the decision is %s of a session %v, want A of a stale one, as primary", s.spell(got), call.Session())
		}
	})
}

func TestNewSessionsHonourAnExplicitBandInterval(t *testing.T) {
	s := newSite(t, 5, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
		c.AffinityWait, c.BandWidenInterval, c.LastClusterAffinity = 300*ms, 40*ms, true
	}))
	s.fill(a, b, c, e)
	s.waits(s.request, 0, 40*ms)
	s.sends(s.request, 40*ms, d)
}

func TestDecisionsDrawNoRandomnessWhereStargateDoesNot(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		call := callOf(t, s.router, s.last(b))
		// Without a source of randomness a draw would panic.
		if got := call.Decide(s.snapshot(), 0, (*rand.Rand)(nil)); got.Cluster != s.clusters[b].ID {
			t.Errorf("the decision is %s, want B", s.spell(got))
		}
	})
}
