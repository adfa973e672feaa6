package routing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// drawSnapshot draws up to twelve clusters in any state.
func drawSnapshot(t *rapid.T, label string) *Snapshot {
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 12, rapid.ID[string]).Draw(t, label)
	clusters := make([]Candidate, len(ids))
	for i, id := range ids {
		tps := rapid.SampledFrom([]float64{0, 1, 500, 1000, 2000, inf, nan, -1})
		clusters[i] = Candidate{
			ID:                id,
			RTT:               time.Duration(rapid.IntRange(0, 200).Draw(t, "rtt")) * ms,
			QueuedInputTokens: rapid.Uint64Range(0, 2000).Draw(t, "queued tokens"),
			Queued:            rapid.Uint64Range(0, 3).Draw(t, "queued"),
			Running:           rapid.Uint64Range(0, 6).Draw(t, "running"),
			MaxConcurrency:    rapid.SampledFrom([]uint64{0, 4, 4, 4}).Draw(t, "slots"),
			LastMeanInputTPS:  tps.Draw(t, "mean"),
			MaxInputTPS:       tps.Draw(t, "maximum"),
			KV:                rapid.SampledFrom([]KVTokens{{}, {Capacity: 1000, Used: 950, Free: 50}, {Capacity: 1000, Free: 1000}}).Draw(t, "kv"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "estimates") {
			clusters[i].QueueEstimates = append(clusters[i].QueueEstimates, QueueEstimate{rapid.Uint32Range(0, 3).Draw(t, "priority"), time.Duration(rapid.IntRange(0, 500).Draw(t, "delay")) * ms})
		}
	}
	return snapshotOf(t, clusters...)
}

// drawConfig draws a configuration of one of the algorithms.
func drawConfig(t *rapid.T, algorithms ...v1alpha1.Algorithm) Config {
	c := DefaultConfig(rapid.SampledFrom(algorithms).Draw(t, "algorithm"))
	wait := rapid.SampledFrom([]time.Duration{0, 10 * ms, 300 * ms})
	c.Comparator = rapid.SampledFrom([]Comparator{CompareTTFT, CompareQueueTime, CompareInputWork, CompareUtilization, CompareQueued}).Draw(t, "comparator")
	c.Seed = rapid.StringN(0, 3, -1).Draw(t, "seed")
	c.ConsiderKVFree = rapid.Bool().Draw(t, "consider KV")
	c.Weight = rapid.SampledFrom([]Weight{WeightMaxInputTPS, WeightLastMeanInputTPS}).Draw(t, "weight")
	c.VirtualNodes = rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "virtual nodes")
	c.GroupSize = rapid.IntRange(0, 4).Draw(t, "k")
	c.AffinityWait = wait.Draw(t, "X")
	c.AffinityScale = rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "s")
	c.BandWidenInterval = rapid.SampledFrom([]time.Duration{FollowAffinityWait, 0, 20 * ms}).Draw(t, "S")
	c.MaxQueued = rapid.Uint64Range(0, 2).Draw(t, "max queued")
	c.FallbackMaxQueued = rapid.Uint64Range(0, 2).Draw(t, "fallback max queued")
	c.QueueSLO = rapid.Bool().Draw(t, "queue SLO")
	c.QueueTimeFloor, c.QueueTimeCeil = wait.Draw(t, "floor"), wait.Draw(t, "ceil")
	c.UnlockFactor = rapid.SampledFrom([]float64{0.25, 0, 1, 2, -1}).Draw(t, "factor")
	c.SampleN, c.SampleCount = rapid.IntRange(0, 3).Draw(t, "n"), rapid.IntRange(1, 4).Draw(t, "sample count")
	c.IgnoreQueueTime, c.IgnoreInputTime = rapid.Bool().Draw(t, "ignore queue"), rapid.Bool().Draw(t, "ignore input")
	c.LastClusterAffinity = rapid.Bool().Draw(t, "flag")
	return c
}

func drawRequest(t *rapid.T, s *Snapshot) Request {
	hints := []string{"", "none-of-them"}
	for i := range s.Len() {
		hints = append(hints, s.At(i).ID)
	}
	return Request{
		Model:       model,
		RoutingKey:  rapid.SampledFrom([]string{"", "rk"}).Draw(t, "routing key"),
		AffinityKey: rapid.SampledFrom([]string{"", "key-1", "key-2", "key-3"}).Draw(t, "affinity key"),
		InputTokens: rapid.Uint64Range(0, 200).Draw(t, "input tokens"),
		Priority:    rapid.Uint32Range(0, 3).Draw(t, "priority"),
		SLO:         rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "SLO"),
		LastCluster: rapid.SampledFrom(hints).Draw(t, "hint"),
	}
}

func drawElapsed(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(0, 700).Draw(t, "elapsed")) * ms
}

func TestPropertyADecisionIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t, "clusters")
		config := drawConfig(t, validate.Algorithms()...)
		call := callOf(t, routerOf(t, config), drawRequest(t, s))
		elapsed := drawElapsed(t)
		if s.Len() > 0 && rapid.Bool().Draw(t, "exclude") {
			call.Exclude(s.At(0).ID)
		}
		got := call.Decide(s, elapsed, seeded1())
		switch got.Outcome {
		case Selected:
			chosen := s.At(got.Index)
			if chosen.ID != got.Cluster || slices.Contains(call.excluded, got.Cluster) {
				t.Fatalf("%+v: another cluster at the index, or an excluded one", got)
			}
			if got.RankDepth < 1 || got.RankDepth > s.Len()+1 {
				t.Fatalf("%+v: the rank depth is out of range", got)
			}
			if widens := slices.Contains(sessionAlgorithms, config.Algorithm); widens && !chosen.hasCapacity(max(config.MaxQueued, config.FallbackMaxQueued)) {
				t.Fatalf("%+v: selected without capacity: %+v", got, chosen)
			}
			if ranked := config.Algorithm == v1alpha1.Pulsar || config.Algorithm == v1alpha1.PulsarWaitAndWiden; ranked && config.ConsiderKVFree && !chosen.fitsKV(call.request.InputTokens) {
				t.Fatalf("%+v: selected without KV tokens: %+v", got, chosen)
			}
		case Wait:
			if got.Wait <= 0 {
				t.Fatalf("%+v: waits for no time", got)
			}
		}
	})
}

func TestPropertyAWaitThatIsSatOutEndsInASelectionOrTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t, "clusters")
		call := callOf(t, routerOf(t, drawConfig(t, validate.Algorithms()...)), drawRequest(t, s))
		elapsed := drawElapsed(t)
		// Every wait is for a bucket, a band or the end of the affinity wait, of which there are few.
		for range 40 {
			got := call.Decide(s, elapsed, seeded1())
			if got.Outcome != Wait {
				return
			}
			elapsed += got.Wait
		}
		t.Fatalf("still waiting after %v", elapsed)
	})
}

func TestPropertyEqualInputsDecideEqually(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := drawConfig(t, validate.Algorithms()...)
		used := routerOf(t, config)
		for range 5 {
			s := drawSnapshot(t, "clusters")
			request, elapsed := drawRequest(t, s), drawElapsed(t)
			if config.Algorithm == v1alpha1.RoundRobin {
				continue // it counts
			}
			if got, want := decide(t, used, request, s, elapsed), decide(t, routerOf(t, config), request, s, elapsed); got != want {
				t.Fatalf("a used router decides %+v, a fresh one %+v", got, want)
			}
		}
	})
}

func TestPropertyRankingsArePermutationsOfTheWeighted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t, "clusters")
		key := rapid.String().Draw(t, "key")
		ranked := rank(s, WeightMaxInputTPS, knownPrefix, key, new(scratch))
		slices.Sort(ranked)
		var weighted []int32
		for i := range s.Len() {
			if validTPS(s.At(i).MaxInputTPS) {
				weighted = append(weighted, int32(i))
			}
		}
		if !slices.Equal(ranked, weighted) {
			t.Fatalf("ranked are %v, want each of %v once", ranked, weighted)
		}
		if s.Len() == 0 {
			return
		}
		k := rapid.IntRange(1, 15).Draw(t, "k")
		group := newRing(s, 5, knownPrefix).walk(k, s.Len(), knownPrefix, key, new(scratch))
		slices.Sort(group)
		if len(slices.Compact(group)) != min(k, s.Len()) {
			t.Fatalf("the group of %d of %d clusters is %v", k, s.Len(), group)
		}
	})
}

func TestPropertyPromotionKeepsTheOrderOfTheOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		original := rapid.SliceOfNDistinct(rapid.Int32Range(0, 100), 1, 12, rapid.ID[int32]).Draw(t, "order")
		before := slices.Clone(original)
		last := rapid.Int32Range(0, 100).Draw(t, "last cluster")

		from := slices.Index(original, last)
		if from < 0 {
			from = len(original)
		}
		got := order{original, last, from}
		var seen []int32
		for i := range got.len() {
			seen = append(seen, got.at(i))
		}
		want := append([]int32{last}, slices.DeleteFunc(slices.Clone(original), func(c int32) bool { return c == last })...)[:len(original)]
		if !slices.Equal(seen, want) {
			t.Fatalf("%v promoted in %v gives %v, want %v", last, before, seen, want)
		}
		if !slices.Equal(original, before) {
			t.Fatal("the original order has changed")
		}
	})
}

func TestPropertyStaleEqualsNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t, "clusters")
		config := drawConfig(t, sessionAlgorithms...)
		r, request, elapsed := routerOf(t, config), drawRequest(t, s), drawElapsed(t)
		stale := request
		request.LastCluster, stale.LastCluster = "", "none-of-them"
		if got, want := decide(t, r, stale, s, elapsed), decide(t, r, request, s, elapsed); got != want {
			t.Fatalf("stale is %+v, new is %+v", got, want)
		}
	})
}

func TestPropertyNewEqualsFlagOffWithoutWaitAndDiscount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t, "clusters")
		config := drawConfig(t, sessionAlgorithms...)
		config.LastClusterAffinity = true
		request, elapsed := drawRequest(t, s), drawElapsed(t)
		request.LastCluster, request.AffinityKey = "", "key"
		off := config
		if config.groupSize() > 0 {
			off = flagOff(config)
		}
		off.LastClusterAffinity = false
		if got, want := decide(t, routerOf(t, config), request, s, elapsed), decide(t, routerOf(t, off), request, s, elapsed); got != want {
			t.Fatalf("new is %+v, flag off is %+v", got, want)
		}
	})
}

func TestPropertyTheHeaderIsIgnoredWithTheFlagOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t, "clusters")
		config := drawConfig(t, validate.Algorithms()...)
		config.LastClusterAffinity = config.LastClusterAffinity && !slices.Contains(sessionAlgorithms, config.Algorithm)
		request, elapsed := drawRequest(t, s), drawElapsed(t)
		without := request
		without.LastCluster = ""
		if got, want := decide(t, routerOf(t, config), request, s, elapsed), decide(t, routerOf(t, config), without, s, elapsed); got != want {
			t.Fatalf("with the header %+v, without %+v", got, want)
		}
	})
}

// Statistics: what follows looks at many keys with fixed inputs, so it passes or fails for good.

const manyKeys = 30000

// ranked1 is the first cluster of each of many keys.
func ranked1(s *Snapshot, order func(*Snapshot, string) []int32) []string {
	first := make([]string, manyKeys)
	for i := range first {
		first[i] = s.At(int(order(s, fmt.Sprint("session-", i))[0])).ID
	}
	return first
}

func rendezvous(s *Snapshot, key string) []int32 {
	return rank(s, WeightMaxInputTPS, knownPrefix, key, new(scratch))
}

func TestKeysPerClusterFollowTheWeights(t *testing.T) {
	s, total := weighted(t), 550.0
	counts := map[string]int{}
	for _, id := range ranked1(s, rendezvous) {
		counts[id]++
	}
	for i := range s.Len() {
		if c := s.At(i); !about(counts[c.ID], manyKeys, c.MaxInputTPS/total) {
			t.Errorf("%s is first for %d of %d keys, want a share of %.3f", c.ID, counts[c.ID], manyKeys, c.MaxInputTPS/total)
		}
	}
}

func TestEveryRankFollowsTheWeightsOfThoseLeft(t *testing.T) {
	// Given the first cluster, the second falls to the others by their weights.
	s := weighted(t)
	second := map[string]int{}
	var firstIsC int
	for i := range manyKeys {
		if r := rendezvous(s, fmt.Sprint("session-", i)); s.At(int(r[0])).ID == "c" {
			firstIsC++
			second[s.At(int(r[1])).ID]++
		}
	}
	for id, share := range map[string]float64{"a": 100. / 350, "b": 100. / 350, "d": 50. / 350, "e": 100. / 350} {
		if !about(second[id], firstIsC, share) {
			t.Errorf("%s is second after c for %d of %d keys, want a share of %.3f", id, second[id], firstIsC, share)
		}
	}
}

func TestRemovingOrAddingAClusterMovesOnlyTheKeysItMust(t *testing.T) {
	ring := map[*Snapshot]ring{}
	onRing := func(s *Snapshot, key string) []int32 {
		if ring[s] == nil {
			ring[s] = newRing(s, 150, knownPrefix)
		}
		return ring[s].walk(1, s.Len(), knownPrefix, key, new(scratch))
	}
	for name, test := range map[string]struct {
		order func(*Snapshot, string) []int32
		exact bool // the share is that of the weights; on a ring it is a matter of the points
	}{"rendezvous": {rendezvous, true}, "ring": {onRing, false}} {
		t.Run(name, func(t *testing.T) {
			all := weighted(t)
			before := ranked1(all, test.order)
			for gone := range all.Len() {
				removed := all.At(gone)
				after := ranked1(snapshotOf(t, slices.Delete(slices.Clone(all.candidates), gone, gone+1)...), test.order)
				var moved int
				for i := range before {
					switch {
					// Read backwards, from after to before, this is the cluster being added: keys move to it alone.
					case before[i] == removed.ID:
						moved++
					case before[i] != after[i]:
						t.Fatalf("without %s, session-%d moved from %s to %s", removed.ID, i, before[i], after[i])
					}
				}
				share := removed.MaxInputTPS / 550
				if test.exact && !about(moved, manyKeys, share) {
					t.Errorf("without %s, %d of %d keys moved, want a share of %.3f", removed.ID, moved, manyKeys, share)
				}
				// 150 points leave a relative deviation of about 1/sqrt(150) per cluster: allow four of them.
				if got := float64(moved) / manyKeys; !test.exact && math.Abs(got-0.2) > 0.2*4/math.Sqrt(150) {
					t.Errorf("without %s, a share of %.3f moved, want about 0.2", removed.ID, got)
				}
			}
		})
	}
}

func TestRemovingAClusterKeepsTheOrderOfTheOthersInEveryRanking(t *testing.T) {
	all := weighted(t)
	for gone := range all.Len() {
		rest := snapshotOf(t, slices.Delete(slices.Clone(all.candidates), gone, gone+1)...)
		for i := range 1000 {
			key := fmt.Sprint("session-", i)
			want := slices.DeleteFunc(rendezvous(all, key), func(c int32) bool { return int(c) == gone })
			if got := names(rest, rendezvous(rest, key)); got != names(all, want) {
				t.Fatalf("without %s the ranking of %s is %s, want %s", all.At(gone).ID, key, got, names(all, want))
			}
		}
	}
}

func TestAnotherSeedRoutingKeyOrModelIsAnotherOrder(t *testing.T) {
	s := weighted(t)
	base := ranked1(s, rendezvous)
	for name, prefix := range map[string][]byte{
		"seed": hashPrefix("seed-2", "rk-1", "model-a"), "routing key": hashPrefix("seed-1", "rk-2", "model-a"), "model": hashPrefix("seed-1", "rk-1", "model-b"),
	} {
		other := ranked1(s, func(s *Snapshot, key string) []int32 { return rank(s, WeightMaxInputTPS, prefix, key, new(scratch)) })
		var same int
		for i := range base {
			if base[i] == other[i] {
				same++
			}
		}
		// Independent orders agree by chance: the sum of the squared shares.
		if want := (3*100*100 + 200*200 + 50*50) / (550. * 550); !about(same, manyKeys, want) {
			t.Errorf("with another %s %d of %d keys stay, want a share of %.3f", name, same, manyKeys, want)
		}
	}
}

func TestARouterIsSafeForConcurrentUse(t *testing.T) {
	for _, algorithm := range validate.Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			config := edited(algorithm, func(c *Config) { c.GroupSize, c.LastClusterAffinity = 2, true })
			plane := Plane{Models: map[string]ModelConfig{model: {Config: config}}}
			// Small caches are evicted all the time.
			r, err := NewRouter(plane, Options{Targets: 2, Orders: 8, Rings: 2})
			if err != nil {
				t.Fatal(err)
			}
			snapshots := []*Snapshot{weighted(t), snapshotOf(t, weighted(t).candidates[:3]...)}
			var group sync.WaitGroup
			for worker := range 8 {
				group.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(worker), 0))
					for i := range 500 {
						s := snapshots[i%2]
						request := Request{Model: model, RoutingKey: fmt.Sprint(i % 3), AffinityKey: fmt.Sprint("key-", rng.IntN(20)), LastCluster: s.At(i % 3).ID}
						call, err := r.NewCall(request)
						if err != nil {
							t.Error(err)
							return
						}
						got := call.Decide(s, 0, rng)
						if got.Outcome != Selected || s.At(got.Index).ID != got.Cluster {
							t.Errorf("the decision is %+v", got)
							return
						}
					}
				})
			}
			group.Wait()
		})
	}
}
