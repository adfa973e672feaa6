package routing

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// poolOf is n idle clusters, of which each tenth has slots taken.
func poolOf(t testing.TB, n int) *Snapshot {
	clusters := make([]Candidate, n)
	for i := range clusters {
		clusters[i] = Candidate{
			ID: fmt.Sprintf("cluster-%03d", i), RTT: time.Duration(1+i%7) * 5 * ms, Running: uint64(i % 10), MaxConcurrency: 16,
			LastMeanInputTPS: float64(5000 + 100*(i%9)), MaxInputTPS: float64(8000 + 500*(i%5)), KV: KVTokens{Capacity: 1e6, Free: 5e5},
		}
	}
	return snapshotOf(t, clusters...)
}

// benchConfigs is every algorithm as a site might run it. Wait-and-widen is there three times: with an affinity group that
// takes the request, with one whose members are full, so that the whole pool is looked at, and without a group.
var benchConfigs = []struct {
	name   string
	config Config
	// full says that the first ranks of the order are full, so that the request overflows.
	full bool
}{
	{"power-of-n", DefaultConfig(v1alpha1.PowerOfN), false},
	{"round-robin", DefaultConfig(v1alpha1.RoundRobin), false},
	{"random", DefaultConfig(v1alpha1.Random), false},
	{"pulsar", DefaultConfig(v1alpha1.Pulsar), false},
	{"wait-and-widen/affinity-hit", edited(v1alpha1.WaitAndWiden, func(c *Config) { c.GroupSize, c.AffinityWait, c.AffinityScale = 2, 300*ms, 0.1 }), false},
	{"wait-and-widen/overflow", edited(v1alpha1.WaitAndWiden, func(c *Config) { c.GroupSize = 2 }), true},
	{"wait-and-widen/no-group", DefaultConfig(v1alpha1.WaitAndWiden), false},
	{"pulsar-wait-and-widen/affinity-hit", edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.AffinityWait, c.AffinityScale = 300*ms, 0.1 }), false},
	{"pulsar-wait-and-widen/overflow", edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.BandWidenInterval = 0 }), true},
	{"pulsar-wait-and-widen/returning", edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
		c.AffinityWait, c.AffinityScale, c.LastClusterAffinity = 300*ms, 0.1, true
	}), false},
}

// benchElapsed is late enough for every bucket to be unlocked, so that an overflow looks at all clusters.
const benchElapsed = time.Second

// benchSite is a router, a snapshot and a request whose order is cached.
func benchSite(t testing.TB, config Config, n int, overflow bool) (*Router, *Snapshot, Request) {
	r, s := routerOf(t, config), poolOf(t, n)
	request := Request{RoutingKey: "rk", Model: model, AffinityKey: "session-1", InputTokens: 2000}
	if config.LastClusterAffinity {
		request.LastCluster = s.At(n / 2).ID
	}
	for {
		got := decide(t, r, request, s, benchElapsed)
		if !overflow || !got.Primary || got.Outcome != Selected {
			break
		}
		c := s.At(got.Index)
		c.Running = c.MaxConcurrency
		s.Update(got.Index, c)
	}
	return r, s, request
}

func BenchmarkDecideCached(b *testing.B) {
	for _, bench := range benchConfigs {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, n), func(b *testing.B) {
				r, s, request := benchSite(b, bench.config, n, bench.full)
				rng := seeded1()
				measure(b, func(int) {
					call, _ := r.NewCall(request)
					call.Decide(s, benchElapsed, rng)
				})
			})
		}
	}
}

// measure runs a benchmark's loop, and reports besides the time on the clock that on the processor, which other work on the
// machine leaves alone.
func measure(b *testing.B, once func(i int)) {
	b.ReportAllocs()
	before := processorTime(b)
	i := 0
	for ; b.Loop(); i++ {
		once(i)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(i), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkDecideCold has an affinity key that was never seen before in every decision. The hash ring of a target is
// built once all the same; BenchmarkRing is about that.
func BenchmarkDecideCold(b *testing.B) {
	for _, bench := range benchConfigs {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, n), func(b *testing.B) {
				r, s, request := benchSite(b, bench.config, n, bench.full)
				rng := seeded1()
				keys := make([]string, 1<<17) // more than the router keeps
				for i := range keys {
					keys[i] = fmt.Sprint("cold-", i)
				}
				measure(b, func(i int) {
					request.AffinityKey = keys[i%len(keys)]
					call, _ := r.NewCall(request)
					call.Decide(s, benchElapsed, rng)
				})
			})
		}
	}
}

func BenchmarkRing(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := poolOf(b, n)
			measure(b, func(int) { newRing(s, 150, knownPrefix) })
		})
	}
}

// withShortcut decides as pulsar-wait-and-widen did before generation V3: without a queue SLO an eligible rank 1 wins at once,
// whatever its load. It exists for the comparison below alone.
func withShortcut(call *Call, s *Snapshot, work *scratch) (Decision, bool) {
	if call.config.QueueSLO {
		return Decision{}, false
	}
	ranking := call.router.ranking(call.target, call.request.AffinityKey, s, work)
	if len(ranking) == 0 {
		return Decision{}, false
	}
	first := &s.candidates[ranking[0]]
	if slices.Contains(call.excluded, first.ID) {
		return Decision{}, false
	}
	if call.config.ConsiderKVFree && !first.fitsKV(call.request.InputTokens) {
		return Decision{}, false
	}
	return Decision{Outcome: Selected, Cluster: first.ID, Index: int(ranking[0]), RankDepth: 1, Primary: true}, true
}

// BenchmarkShortcut compares pulsar-wait-and-widen as it is with how it was: with a free rank 1, where both choose
// it, and with a full one, where the former shortcut would have sent the request into its queue.
func BenchmarkShortcut(b *testing.B) {
	config := DefaultConfig(v1alpha1.PulsarWaitAndWiden)
	for _, state := range []string{"free", "full"} {
		for _, n := range []int{8, 64, 512} {
			r, s, request := benchSite(b, config, n, state == "full")
			rng := seeded1()
			b.Run(fmt.Sprintf("without/rank-1-%s/%d", state, n), func(b *testing.B) {
				measure(b, func(int) {
					call, _ := r.NewCall(request)
					call.Decide(s, benchElapsed, rng)
				})
			})
			b.Run(fmt.Sprintf("with/rank-1-%s/%d", state, n), func(b *testing.B) {
				work := new(scratch)
				measure(b, func(int) {
					call, _ := r.NewCall(request)
					if _, ok := withShortcut(&call, s, work); !ok {
						call.Decide(s, benchElapsed, rng)
					}
				})
			})
		}
	}
}

func BenchmarkDecideParallel(b *testing.B) {
	r, s, request := benchSite(b, DefaultConfig(v1alpha1.Pulsar), 64, false)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		rng := seeded1()
		for pb.Next() {
			call, _ := r.NewCall(request)
			call.Decide(s, benchElapsed, rng)
		}
	})
}

func TestADecisionOnACachedOrderAllocatesNothing(t *testing.T) {
	for _, bench := range benchConfigs {
		for _, n := range []int{8, 64, 512} {
			t.Run(fmt.Sprintf("%s/%d", bench.name, n), func(t *testing.T) {
				r, s, request := benchSite(t, bench.config, n, bench.full)
				rng := seeded1()
				var got Decision
				allocations := testing.AllocsPerRun(1000, func() {
					call, err := r.NewCall(request)
					if err != nil {
						t.Fatal(err)
					}
					got = call.Next(s, benchElapsed, rng).Decision
				})
				if allocations != 0 {
					t.Errorf("%v allocations per decision", allocations)
				}
				if got.Outcome != Selected || bench.full == got.Primary {
					t.Errorf("the decision is %+v, primary wanted: %v", got, !bench.full)
				}
			})
		}
	}
}
