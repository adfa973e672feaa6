package routing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// snapshotOf makes a snapshot and fails the test when it can not.
func snapshotOf(t rapid.TB, candidates ...Candidate) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(candidates)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// weighted are the five clusters of Stargate's known answers.
func weighted(t rapid.TB) *Snapshot {
	return snapshotOf(t,
		Candidate{ID: "a", MaxInputTPS: 100}, Candidate{ID: "b", MaxInputTPS: 100}, Candidate{ID: "c", MaxInputTPS: 200},
		Candidate{ID: "d", MaxInputTPS: 50}, Candidate{ID: "e", MaxInputTPS: 100})
}

// names spells a list of clusters of a snapshot.
func names(s *Snapshot, clusters []int32) string {
	ids := make([]string, len(clusters))
	for i, c := range clusters {
		ids[i] = s.At(int(c)).ID
	}
	return strings.Join(ids, " ")
}

var knownPrefix = hashPrefix("seed-1", "rk-1", "model-a")

func TestKnownHashes(t *testing.T) {
	rendezvous := appendTagged(append([]byte{}, knownPrefix...), "cache_affinity_key", "prefix-123")
	rendezvous = appendTagged(rendezvous, "cluster_id", "inst-a")
	if got := xxh3.Hash(rendezvous); got != 0x19443c44ec9f8abf {
		t.Errorf("rendezvous hash of inst-a is %#x", got)
	}
	// Any hash of the ring is found by its known value, so the whole ring's input is pinned by it.
	points := newRing(snapshotOf(t, Candidate{ID: "inst-a"}), 8, knownPrefix)
	var found bool
	for _, p := range points {
		found = found || p.hash == 0x81b29b2500d24e30
	}
	if !found || len(points) != 8 {
		t.Errorf("virtual node 7 of inst-a is not on the ring of 8: %x", points)
	}
	for _, p := range newRing(snapshotOf(t, Candidate{ID: "inst-a"}), 7, knownPrefix) {
		if p.hash == 0x81b29b2500d24e30 {
			t.Error("virtual node 7 is on a ring of the nodes 0 to 6")
		}
	}
}

func TestKnownRankings(t *testing.T) {
	s := weighted(t)
	for key, want := range map[string]string{"session-1": "a b c e d", "session-2": "e a b c d", "session-3": "a c e b d"} {
		if got := names(s, rank(s, WeightMaxInputTPS, knownPrefix, key, new(scratch))); got != want {
			t.Errorf("ranking of %s is %s, want %s", key, got, want)
		}
	}
}

func TestKnownRingWalks(t *testing.T) {
	s := weighted(t)
	r := newRing(s, 150, knownPrefix)
	for key, want := range map[string]string{"session-1": "c e d b a", "session-2": "b d c a e", "session-3": "e c b d a"} {
		for k := 1; k <= 7; k++ {
			wantGroup := strings.Join(strings.Fields(want)[:min(k, 5)], " ")
			if got := names(s, r.walk(k, s.Len(), knownPrefix, key, new(scratch))); got != wantGroup {
				t.Errorf("group of %d of %s is %s, want %s", k, key, got, wantGroup)
			}
		}
	}
}

func TestTheOrderInWhichCandidatesComeIsIrrelevant(t *testing.T) {
	forward, backward := weighted(t), snapshotOf(t,
		Candidate{ID: "e", MaxInputTPS: 100}, Candidate{ID: "d", MaxInputTPS: 50}, Candidate{ID: "c", MaxInputTPS: 200},
		Candidate{ID: "b", MaxInputTPS: 100}, Candidate{ID: "a", MaxInputTPS: 100})
	for i := range 100 {
		key := fmt.Sprint("key-", i)
		if f, b := names(forward, rank(forward, WeightMaxInputTPS, knownPrefix, key, new(scratch))), names(backward, rank(backward, WeightMaxInputTPS, knownPrefix, key, new(scratch))); f != b {
			t.Fatalf("ranking of %s is %s and %s", key, f, b)
		}
	}
	if forward.members != backward.members || forward.weights != backward.weights {
		t.Error("the fingerprints differ")
	}
}

func TestAClusterWithoutAValidWeightIsNotRanked(t *testing.T) {
	s := snapshotOf(t,
		Candidate{ID: "a", MaxInputTPS: 0, LastMeanInputTPS: 10}, Candidate{ID: "b", MaxInputTPS: -1, LastMeanInputTPS: 10},
		Candidate{ID: "c", MaxInputTPS: inf, LastMeanInputTPS: nan}, Candidate{ID: "d", MaxInputTPS: nan, LastMeanInputTPS: inf},
		Candidate{ID: "e", MaxInputTPS: 5})
	if got := names(s, rank(s, WeightMaxInputTPS, knownPrefix, "key", new(scratch))); got != "e" {
		t.Errorf("by the maximum throughput %q is ranked, want e alone", got)
	}
	if got := rank(s, WeightLastMeanInputTPS, knownPrefix, "key", new(scratch)); len(got) != 2 || s.At(int(got[0])).ID > "b" || s.At(int(got[1])).ID > "b" {
		t.Errorf("by the last mean throughput %q is ranked, want a and b", names(s, got))
	}
}

func TestFingerprintsFollowClustersAndWeightsAlone(t *testing.T) {
	a, b := Candidate{ID: "a", MaxInputTPS: 1, LastMeanInputTPS: 1}, Candidate{ID: "b", MaxInputTPS: 2, LastMeanInputTPS: 2}
	base := snapshotOf(t, a, b)

	loaded := b
	loaded.Running, loaded.Queued, loaded.RTT = 7, 8, 9
	if s := snapshotOf(t, a, loaded); s.members != base.members || s.weights != base.weights {
		t.Error("load changed a fingerprint")
	}
	reweighted := snapshotOf(t, a, b)
	b.MaxInputTPS = 3
	reweighted.Update(1, b)
	if reweighted.members != base.members || reweighted.weights[byMaxTPS] == base.weights[byMaxTPS] || reweighted.weights[byLastMeanTPS] != base.weights[byLastMeanTPS] {
		t.Error("a new maximum throughput changes the fingerprint of that weight and no other")
	}
	if s := snapshotOf(t, a); s.members == base.members || s.weights == base.weights {
		t.Error("a cluster that left did not change the fingerprints")
	}
	if ab, a_b := snapshotOf(t, Candidate{ID: "ab"}, Candidate{ID: "c"}), snapshotOf(t, Candidate{ID: "a"}, Candidate{ID: "bc"}); ab.members == a_b.members {
		t.Error("two sets with the same letters have one fingerprint")
	}
}

func TestUpdateKeepsTheClusterInItsPlace(t *testing.T) {
	s := snapshotOf(t, Candidate{ID: "b"}, Candidate{ID: "a"})
	s.Update(0, Candidate{ID: "z", Running: 3})
	if got := s.At(0); got.ID != "a" || got.Running != 3 {
		t.Errorf("the first candidate is %+v, want a with 3 running", got)
	}
	if s.Index("a") != 0 || s.Index("b") != 1 || s.Index("z") != -1 {
		t.Error("the snapshot does not find its clusters")
	}
}

func TestASnapshotRefusesAClusterIDThatOccursTwice(t *testing.T) {
	_, err := NewSnapshot([]Candidate{{ID: "a"}, {ID: "b"}, {ID: "a"}})
	if err == nil || !strings.Contains(err.Error(), `cluster ID "a" occurs twice`) {
		t.Errorf("error is %v", err)
	}
}

func TestCachesAreBounded(t *testing.T) {
	config := DefaultConfig(v1alpha1.WaitAndWiden)
	config.GroupSize = 2
	r, err := NewRouter(Plane{Models: map[string]ModelConfig{"ww": {Config: config}}}, Options{Targets: 3, Orders: 10, Rings: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := weighted(t)
	for i := range 100 {
		request := Request{Model: "ww", RoutingKey: fmt.Sprint("rk-", i%7), AffinityKey: fmt.Sprint("key-", i)}
		call, err := r.NewCall(request)
		if err != nil {
			t.Fatal(err)
		}
		call.Decide(s, 0, seeded1())
	}
	if targets, orders, rings := r.targets.Len(), r.orders.Len(), r.rings.Len(); targets != 3 || orders != 10 || rings != 2 {
		t.Errorf("the router keeps %d targets, %d orders and %d rings, want 3, 10 and 2", targets, orders, rings)
	}
}

func TestANegativeBoundIsRefused(t *testing.T) {
	_, err := NewRouter(Plane{}, Options{Orders: -1})
	if err == nil || !strings.Contains(err.Error(), "Orders is -1") {
		t.Errorf("error is %v", err)
	}
}

func TestACachedOrderIsRenewedWhenClustersOrWeightsChange(t *testing.T) {
	for _, algorithm := range []v1alpha1.Algorithm{v1alpha1.WaitAndWiden, v1alpha1.PulsarWaitAndWiden, v1alpha1.Pulsar} {
		t.Run(string(algorithm), func(t *testing.T) {
			config := DefaultConfig(algorithm)
			config.GroupSize = 1
			shared := routerOf(t, config)
			s := weighted(t)
			for i := range 50 {
				request := Request{Model: model, AffinityKey: fmt.Sprint("key-", i)}
				smaller := snapshotOf(t, append([]Candidate{}, s.candidates[1:]...)...)
				heavier := snapshotOf(t, s.candidates...)
				c := heavier.At(3)
				c.MaxInputTPS = 1e6
				heavier.Update(3, c)
				for _, snapshot := range []*Snapshot{s, smaller, heavier, s} {
					got, want := decide(t, shared, request, snapshot, 0), decide(t, routerOf(t, config), request, snapshot, 0)
					if got != want {
						t.Fatalf("%s: a router with a history decides %+v, a fresh one %+v", request.AffinityKey, got, want)
					}
				}
			}
		})
	}
}
