package routing

import (
	"fmt"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// The tests of this file are the acceptance criteria of the session-affinity request, as far as they concern decisions.
// A, B, C and so on are the clusters in the original affinity order of the key that all of them use.

const (
	a = iota
	b
	c
	d
	e
)

var sessionAlgorithms = []v1alpha1.Algorithm{v1alpha1.WaitAndWiden, v1alpha1.PulsarWaitAndWiden}

// site is some clusters in the affinity order of the key under a configuration, each idle with four slots.
type site struct {
	t        testing.TB
	config   Config
	router   *Router
	clusters []Candidate
	request  Request
}

func newSite(t testing.TB, n int, config Config) *site {
	t.Helper()
	s := &site{t: t, config: config, router: routerOf(t, config), request: Request{Model: model, RoutingKey: "rk", AffinityKey: "session", InputTokens: 100}}
	var clusters []Candidate
	for i := range n {
		clusters = append(clusters, Candidate{ID: fmt.Sprint("cluster-", i), RTT: 5 * ms, MaxConcurrency: 4, LastMeanInputTPS: 1000, MaxInputTPS: 1000,
			KV: KVTokens{Capacity: 1e6, Free: 1e6}})
	}
	snapshot := snapshotOf(t, clusters...)
	prefix := hashPrefix(config.Seed, s.request.RoutingKey, s.request.Model)
	var order []int32
	if config.Algorithm == v1alpha1.WaitAndWiden {
		order = newRing(snapshot, config.VirtualNodes, prefix).walk(n, n, prefix, s.request.AffinityKey, new(scratch))
	} else {
		order = rank(snapshot, config.Weight, prefix, s.request.AffinityKey, new(scratch))
	}
	for _, i := range order {
		s.clusters = append(s.clusters, snapshot.At(int(i)))
	}
	return s
}

// fill occupies every slot of the clusters and drain frees them.
func (s *site) fill(ranks ...int) {
	for _, rank := range ranks {
		s.clusters[rank].Running = s.clusters[rank].MaxConcurrency
	}
}

func (s *site) drain(ranks ...int) {
	for _, rank := range ranks {
		s.clusters[rank].Running = 0
	}
}

func (s *site) snapshot() *Snapshot { return snapshotOf(s.t, s.clusters...) }

// last is the request with the hint that the cluster served the session last.
func (s *site) last(rank int) Request {
	r := s.request
	r.LastCluster = s.clusters[rank].ID
	return r
}

func (s *site) decide(r Request, elapsed time.Duration) Decision {
	s.t.Helper()
	return decide(s.t, s.router, r, s.snapshot(), elapsed)
}

// sends asserts that a decision selects the cluster.
func (s *site) sends(r Request, elapsed time.Duration, rank int) Decision {
	s.t.Helper()
	got := s.decide(r, elapsed)
	if got.Outcome != Selected || got.Cluster != s.clusters[rank].ID {
		s.t.Errorf("after %v the decision is %s, want %c selected", elapsed, s.spell(got), 'A'+rank)
	}
	return got
}

// waits asserts that a decision waits for the time.
func (s *site) waits(r Request, elapsed, want time.Duration) {
	s.t.Helper()
	if got := s.decide(r, elapsed); got.Outcome != Wait || got.Wait != want {
		s.t.Errorf("after %v the decision is %s, want a wait of %v", elapsed, s.spell(got), want)
	}
}

func (s *site) spell(got Decision) string {
	for rank := range s.clusters {
		if got.Outcome == Selected && s.clusters[rank].ID == got.Cluster {
			return fmt.Sprintf("%c selected at depth %d", 'A'+rank, got.RankDepth)
		}
	}
	return fmt.Sprint(got.Outcome, " ", got.Wait)
}

// forBoth runs a criterion for both session-aware algorithms with X = 300 ms and s = 0.1, the flag on and k = 1.
func forBoth(t *testing.T, criterion func(*testing.T, Config)) {
	for _, algorithm := range sessionAlgorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			criterion(t, edited(algorithm, func(c *Config) {
				c.GroupSize, c.AffinityWait, c.AffinityScale, c.LastClusterAffinity = 1, 300*ms, 0.1, true
			}))
		})
	}
}

// flagOff is the configuration without the session-aware mode, at X = 0 and s = 1.
func flagOff(c Config) Config {
	c.LastClusterAffinity, c.AffinityWait, c.AffinityScale = false, 0, 1
	return c
}

// Shortcut removal

func TestShortcutRemovalFullRankOneDoesNotGetTheRequest(t *testing.T) {
	s := newSite(t, 2, DefaultConfig(v1alpha1.PulsarWaitAndWiden))
	s.sends(s.request, 0, a)
	s.fill(a)
	s.sends(s.request, 0, b)
}

func TestShortcutRemovalMaxQueuedKeepsTheRequestOnRankOne(t *testing.T) {
	s := newSite(t, 2, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.MaxQueued = 4 }))
	s.fill(a)
	s.clusters[a].Queued, s.clusters[a].QueuedInputTokens = 1, 100
	s.sends(s.request, 0, a)
	s.clusters[a].Running++
	s.sends(s.request, 0, a)
	s.clusters[a].Running += 3
	s.sends(s.request, 0, b)
}

func TestShortcutRemovalAffinityWaitIsATimedWaitThenWidens(t *testing.T) {
	s := newSite(t, 2, edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) { c.AffinityWait = 300 * ms }))
	s.fill(a)
	s.waits(s.request, 0, 300*ms)
	s.waits(s.request, 299*ms, ms)
	s.sends(s.request, 300*ms, b)
}

// New sessions

func TestNewSessionGoesToRankTwoAtOnceWhenRankOneIsFull(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 2, config)
		s.fill(a)
		s.sends(s.request, 0, b)

		config.LastClusterAffinity = false
		s.router = routerOf(t, config)
		s.waits(s.request, 0, 300*ms)
	})
}

func TestNewSessionWithFreeSlotsGoesWhereTheFlagOffAlgorithmPicksWithoutWaitAndDiscount(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		for k := 1; k <= 3; k++ {
			config.GroupSize = k
			s := newSite(t, 5, config)
			off := routerOf(t, flagOff(config))
			for i := range 200 {
				s.request.AffinityKey = fmt.Sprint("session-", i)
				got, want := s.decide(s.request, 0), decide(t, off, s.request, s.snapshot(), 0)
				if got != want || got.Outcome != Selected {
					t.Fatalf("k = %d, %s: the decision is %s, flag off %s", k, s.request.AffinityKey, s.spell(got), s.spell(want))
				}
			}
		}
	})
}

func TestNewSessionIsPlacedAndComparedByTheUndiscountedPrefill(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.GroupSize = 2
		for name, bucket := range map[string]time.Duration{"placement": 20 * ms, "comparison": time.Minute} {
			if name == "comparison" && config.Algorithm == v1alpha1.PulsarWaitAndWiden {
				continue // it does not compare by the time to first token
			}
			t.Run(name, func(t *testing.T) {
				config.BucketSize = bucket
				s := newSite(t, 2, config)
				s.request.InputTokens = 1000
				// A takes 1 s, or 100 ms at a tenth of the prefill; B takes 800 ms, or 350 ms.
				s.clusters[a].RTT, s.clusters[a].LastMeanInputTPS = 0, 1000
				s.clusters[b].RTT, s.clusters[b].LastMeanInputTPS = 300*ms, 2000
				if got := s.sends(s.request, 0, b); got.TTFT != 800*ms {
					t.Errorf("B's time to first token is taken as %v, want 800ms", got.TTFT)
				}
				s.sends(s.last(a), 0, a)
			})
		}
	})
}

func TestNewSessionWithoutASelectableCandidateDecidesAsFlagOff(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		for _, interval := range []time.Duration{FollowAffinityWait, 0, 50 * ms} {
			config.BandWidenInterval = interval
			s := newSite(t, 9, config)
			s.fill(a, b, c, d, e, 5, 6, 7, 8)
			off := routerOf(t, flagOff(config))
			outcomes := map[Outcome]bool{}
			// The last cluster has a free slot, behind a bucket that unlocks at 250 ms, in the second half.
			for _, far := range []bool{false, true} {
				if far {
					s.drain(8)
					s.clusters[8].RTT = time.Second + 5*ms
				}
				for elapsed := time.Duration(0); elapsed <= 240*ms; elapsed += 10 * ms {
					got, want := s.decide(s.request, elapsed), decide(t, off, s.request, s.snapshot(), elapsed)
					if got != want || got.Outcome == Selected {
						t.Fatalf("interval %v after %v: the decision is %s, flag off %s", interval, elapsed, s.spell(got), s.spell(want))
					}
					outcomes[got.Outcome] = true
				}
			}
			if !outcomes[Wait] || !outcomes[Unavailable] {
				t.Errorf("interval %v: outcomes seen are %v, want waits and unavailable ones", interval, outcomes)
			}
		}
	})
}

func TestStaleSessionDecidesAsANewOne(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		stale := s.request
		stale.LastCluster = "cluster-that-left"
		for _, full := range [][]int{{}, {a}, {a, b}, {a, b, c}} {
			s.drain(a, b, c)
			s.fill(full...)
			for _, elapsed := range []time.Duration{0, 299 * ms, 300 * ms, time.Second} {
				if got, want := s.decide(stale, elapsed), s.decide(s.request, elapsed); got != want {
					t.Errorf("%v full, after %v: stale is %s, new is %s", full, elapsed, s.spell(got), s.spell(want))
				}
			}
		}
		call := callOf(t, s.router, stale)
		call.Decide(s.snapshot(), 0, seeded1())
		if call.Session() != SessionStale {
			t.Errorf("the session is %v, want stale", call.Session())
		}
	})
}

// Returning sessions

func TestReturningSessionWaitsForItsLastClusterAndNeverGoesToRankOneMeanwhile(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		s.fill(b)
		for elapsed := time.Duration(0); elapsed < 300*ms; elapsed += ms {
			s.waits(s.last(b), elapsed, 300*ms-elapsed)
		}
		s.drain(b)
		if got := s.sends(s.last(b), 299*ms, b); !got.Primary {
			t.Error("the last cluster is not counted as primary")
		}
	})
}

func TestReturningSessionDiscountsThePrefillOnItsLastClusterAlone(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		if got := s.sends(s.last(b), 0, b); got.TTFT != 15*ms {
			t.Errorf("B's time to first token is taken as %v, want 5ms of RTT and a tenth of 100ms", got.TTFT)
		}
		s.fill(b, c)
		got := s.sends(s.last(b), 300*ms, a)
		if got.TTFT != 105*ms {
			t.Errorf("A's time to first token is taken as %v, want 5ms of RTT and 100ms", got.TTFT)
		}
		if got.Primary {
			t.Error("a returning request that left its last cluster is counted as primary")
		}
	})
}

func TestReturningSessionFromOutsideTheGroupPushesOutItsLastMember(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.GroupSize = 2
		s := newSite(t, 4, config)
		s.fill(a, c, d)
		s.waits(s.last(c), 0, 300*ms)
		s.waits(s.last(c), 299*ms, ms)
		s.sends(s.last(c), 300*ms, b)

		s.drain(a)
		s.fill(b)
		s.sends(s.last(c), 0, a)
		s.fill(a)
		s.drain(c)
		s.sends(s.last(c), 0, c)
	})
}

func TestReturningSessionFromWithinTheGroupKeepsItsMembers(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.GroupSize = 2
		for _, member := range []int{a, b} {
			s := newSite(t, 3, config)
			s.fill(a, b, c)
			s.drain(member)
			s.sends(s.last(b), 0, member)
		}
		s := newSite(t, 3, config)
		s.fill(a, b)
		s.waits(s.last(b), 0, 300*ms)
	})
}

func TestReturningSessionOpensTheBandsOfItsReorderedRanking(t *testing.T) {
	config := edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
		c.AffinityWait, c.BandWidenInterval, c.LastClusterAffinity = 300*ms, 40*ms, true
	})
	for _, test := range []struct {
		free  int
		opens time.Duration
		depth int
	}{{d, 0, 1}, {a, 300 * ms, 2}, {b, 300 * ms, 3}, {c, 340 * ms, 4}, {e, 340 * ms, 5}} {
		s := newSite(t, 5, config)
		s.fill(a, b, c, d, e)
		s.drain(test.free)
		if test.opens > 0 {
			s.waits(s.last(d), test.opens-ms, ms)
		}
		if got := s.sends(s.last(d), test.opens, test.free); got.RankDepth != test.depth {
			t.Errorf("%c is at depth %d, want %d", 'A'+test.free, got.RankDepth, test.depth)
		}
	}
}

func TestReturningSessionWhoseLastClusterIsExcludedContinuesAsAfterAnIneligibleRankOne(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		call := callOf(t, s.router, s.last(b))
		if first := call.Decide(s.snapshot(), 0, seeded1()); first.Cluster != s.clusters[b].ID {
			t.Fatalf("the first attempt is %s, want B", s.spell(first))
		}
		call.Exclude(s.clusters[b].ID)
		if got := call.Decide(s.snapshot(), 10*ms, seeded1()); got.Outcome != Wait || got.Wait != 290*ms {
			t.Errorf("B excluded, the decision is %s, want a wait for the end of the affinity wait", s.spell(got))
		}
		s.fill(c)
		if got := call.Decide(s.snapshot(), 300*ms, seeded1()); got.Cluster != s.clusters[a].ID || got.RankDepth != 2 {
			t.Errorf("B excluded, after the affinity wait the decision is %s, want A selected at depth 2", s.spell(got))
		}
		if call.Session() != SessionReturning {
			t.Errorf("the session is %v; a last cluster that is excluded and present is not stale", call.Session())
		}
	})
}

func TestReturningSessionWhoseLastClusterLacksKVTokensContinuesAsAfterAnIneligibleRankOne(t *testing.T) {
	config := edited(v1alpha1.PulsarWaitAndWiden, func(c *Config) {
		c.AffinityWait, c.LastClusterAffinity, c.ConsiderKVFree = 300*ms, true, true
	})
	s := newSite(t, 3, config)
	s.clusters[b].KV.Free = 99
	s.fill(c)
	s.waits(s.last(b), 0, 300*ms)
	if got := s.sends(s.last(b), 300*ms, a); !got.SkippedForKV || got.RankDepth != 2 {
		t.Errorf("the decision is %+v, want depth 2 and a skip for KV tokens", got)
	}
}

func TestPromotionIsNotCached(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		s.sends(s.request, 0, a)
		s.sends(s.last(c), 0, c)
		s.sends(s.request, 0, a)
		s.sends(s.last(b), 0, b)
		s.sends(s.request, 0, a)
	})
}

func TestTwoInstancesMakeTheSameChoice(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 5, config)
		other := routerOf(t, config)
		for i := range 200 {
			// The other instance has served other sessions and other sets of clusters before.
			decide(t, other, Request{Model: model, RoutingKey: "rk", AffinityKey: fmt.Sprint("session-", i)}, snapshotOf(t, s.clusters[1:]...), 0)
			r := s.last(i % 5)
			r.AffinityKey = fmt.Sprint("session-", i)
			if got, want := decide(t, other, r, s.snapshot(), 0), s.decide(r, 0); got != want || got.Outcome != Selected {
				t.Fatalf("%s: one instance decides %s, the other %s", r.AffinityKey, s.spell(got), s.spell(want))
			}
		}
	})
}

// Cache-thrash regression

func TestCacheThrashRegression(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		for _, on := range []bool{true, false} {
			config.LastClusterAffinity = on
			s := newSite(t, 2, config)
			s.fill(a)
			first := s.decide(s.request, 0)
			if on && first.Cluster != s.clusters[b].ID {
				t.Fatalf("the first request is %s, want B selected", s.spell(first))
			}
			s.drain(a)
			want := a
			if on {
				want = b
			}
			for range 10 {
				s.sends(s.last(b), 0, want)
			}
		}
	})
}

// Header parsing

func TestABlankOrNonUTF8LastClusterIsAbsent(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		for _, value := range []string{"", " ", "\t ", "cluster\xff", "\xc3\x28"} {
			r := s.request
			r.LastCluster = value
			call := callOf(t, s.router, r)
			got := call.Decide(s.snapshot(), 0, seeded1())
			if want := s.decide(s.request, 0); got != want || call.Session() != SessionNew {
				t.Errorf("%q: the decision is %s of a session %v, want %s as of a new one", value, s.spell(got), call.Session(), s.spell(want))
			}
		}
	})
}

// ignoresTheHeader asserts that no hint changes a decision, and that no session state is counted.
func (s *site) ignoresTheHeader(base Request) {
	s.t.Helper()
	for _, full := range [][]int{{}, {a}, {a, b}, {a, b, c}} {
		s.drain(a, b, c)
		s.fill(full...)
		for _, elapsed := range []time.Duration{0, 299 * ms, 300 * ms, time.Second} {
			want := s.decide(base, elapsed)
			for _, hint := range []string{s.clusters[a].ID, s.clusters[c].ID, "cluster-that-left"} {
				r := base
				r.LastCluster = hint
				call := callOf(s.t, s.router, r)
				if got := call.Decide(s.snapshot(), elapsed, seeded1()); got != want || call.Session() != SessionNone {
					s.t.Errorf("%v full, after %v, hint %s: the decision is %s of a session %q, want %s", full, elapsed, hint, s.spell(got), call.Session(), s.spell(want))
				}
			}
		}
	}
}

func TestTheHeaderHasNoEffectWithoutAnAffinityKey(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		for _, key := range []string{"", " \t"} {
			s := newSite(t, 3, config)
			s.request.AffinityKey = key
			s.ignoresTheHeader(s.request)
		}
	})
}

func TestTheHeaderHasNoEffectOnWaitAndWidenWithoutAnAffinityGroup(t *testing.T) {
	s := newSite(t, 3, edited(v1alpha1.WaitAndWiden, func(c *Config) {
		c.AffinityWait, c.AffinityScale, c.LastClusterAffinity = 300*ms, 0.1, true
	}))
	s.ignoresTheHeader(s.request)
}

func TestTheHeaderHasNoEffectWhenTheRoutingMethodSelectsAnAlgorithmWithoutTheFlag(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		s := newSite(t, 3, config)
		request := map[v1alpha1.Algorithm]Config{}
		for _, algorithm := range validate.Algorithms() {
			request[algorithm] = edited(algorithm, func(c *Config) { c.GroupSize = 1 })
		}
		for _, algorithm := range validate.Algorithms() {
			if algorithm == config.Algorithm || algorithm == v1alpha1.RoundRobin {
				continue // its own configuration has the flag; round-robin's state is for the test below
			}
			var err error
			s.router, err = NewRouter(Plane{Models: map[string]ModelConfig{model: {Config: config, RequestAlgorithms: request}}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := s.request
			r.Method = string(algorithm)
			s.ignoresTheHeader(r)
		}
		r := s.last(c)
		r.Method = string(v1alpha1.RoundRobin)
		for turn := range 6 {
			if got := s.decide(r, 0); got.Index != turn%3 {
				t.Errorf("turn %d of round-robin goes to the cluster %d", turn, got.Index)
			}
		}
	})
}

// Compatibility

func TestWithTheFlagOffTheHeaderChangesNoDecision(t *testing.T) {
	forBoth(t, func(t *testing.T, config Config) {
		config.LastClusterAffinity = false
		for k := 1; k <= 3; k++ {
			config.GroupSize = k
			s := newSite(t, 4, config)
			s.ignoresTheHeader(s.request)
		}
	})
}
