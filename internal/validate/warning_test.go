package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/validate/cases"
)

const (
	pulsar             = v1alpha1.Pulsar
	pulsarWaitAndWiden = v1alpha1.PulsarWaitAndWiden
	waitAndWiden       = v1alpha1.WaitAndWiden

	noSeed = " without a seed is fine, but two planes with the same models rank alike; set a seed of its own on one of them to tell them apart"
	oldTPS = " ranks by the maximum input TPS, and clusters behind workers or relays too old to report it drop out of the ranking; if there are any, set rendezvousWeight: last-mean-input-tps, if there are none, max-input-tps"
	noSLO  = "pulsar-wait-and-widen without both maxQueueTimeFloorMs and maxQueueTimeCeilMs: "

	noSettings = "; defaultAlgorithm has no settings: to set any of this, list the models in a policy"

	metadata = "newer Stargate builds let function metadata override fields per request (x-routing-method: pulsar;seed=x), " +
		"so what runs can differ from the file and nothing in the cluster shows it; keep such overrides out of function metadata"
)

// quiet returns settings of an algorithm that nothing is worth saying about in generation V3.
func quiet(a v1alpha1.Algorithm) v1alpha1.AlgorithmSettings {
	s := v1alpha1.AlgorithmSettings{Algorithm: a}
	switch a {
	case pulsarWaitAndWiden:
		s.MaxQueueTimeFloorMs, s.MaxQueueTimeCeilMs = new(int64(500)), new(int64(500))
		fallthrough
	case pulsar:
		s.RendezvousWeight = new("last-mean-input-tps")
		s.Seed = new("s")
	}
	return s
}

func TestPolicyWarnings(t *testing.T) {
	const m = "spec.models[0]"
	type settings = v1alpha1.AlgorithmSettings
	tests := map[string]struct {
		algorithm   v1alpha1.Algorithm
		change      func(*settings)
		generations validate.Generations // the zero value is generation V3 only
		want        []string
	}{
		"nothing to say of round-robin":                     {algorithm: v1alpha1.RoundRobin},
		"nothing to say of bare wait-and-widen":             {algorithm: waitAndWiden},
		"nothing to say of a careful pulsar":                {algorithm: pulsar},
		"nothing to say of a careful pulsar-wait-and-widen": {algorithm: pulsarWaitAndWiden},
		"nothing to say of power-of-n in any form":          {algorithm: v1alpha1.PowerOfN, change: func(s *settings) { s.SampleCount = new(int64(64)); s.Comparator = new("utilization") }},

		"without a queue SLO rank 1 overflows since V3": {algorithm: pulsarWaitAndWiden,
			change: func(s *settings) { s.MaxQueueTimeCeilMs = nil; s.MaxQueueTimeFloorMs = nil },
			want:   []string{m + ": " + noSLO + "requests overflow as soon as rank 1 has no free engine slot; to keep them there raise maxQueued and set cacheAffinityWaitMs, or use pulsar; if it is meant, write maxQueued: 0"}},
		"with a bound of its own it does not overflow at once": {algorithm: pulsarWaitAndWiden,
			change: func(s *settings) {
				s.MaxQueueTimeCeilMs, s.MaxQueueTimeFloorMs = nil, nil
				s.MaxQueued = new(int64(4))
			}},
		"without a queue SLO rank 1 takes everything before V3": {algorithm: pulsarWaitAndWiden, generations: validate.Only(release.V2),
			change: func(s *settings) {
				s.MaxQueueTimeCeilMs, s.MaxQueueTimeFloorMs = nil, nil
				s.CacheAffinityWaitMs = new(int64(1))
			},
			want: []string{m + ": " + noSLO + "the rank-1 cluster takes every request whatever its load; set both to bound its queue, or use pulsar if that is meant"}},
		"where the release is not known both are said": {algorithm: pulsarWaitAndWiden, generations: validate.Generations{Oldest: release.V2, Newest: release.V3},
			change: func(s *settings) { s.MaxQueueTimeCeilMs = nil; s.MaxQueueTimeFloorMs = nil },
			want: []string{"note: " + m + ": " + noSLO + "before V3, the rank-1 cluster takes every request whatever its load; " +
				"from V3 on, requests overflow as soon as rank 1 has no free engine slot; to keep them there raise maxQueued and set cacheAffinityWaitMs, or use pulsar; if it is meant, write maxQueued: 0"}},

		"the flag on wait-and-widen without an affinity group does nothing": {algorithm: waitAndWiden,
			change: func(s *settings) {
				s.LastClusterAffinity = new(true)
				s.CacheAffinityBackendSelectionCount = new(int64(0))
			},
			want: []string{m + ".lastClusterAffinity: lastClusterAffinity has no effect on wait-and-widen without an affinity group; set cacheAffinityBackendSelectionCount above 0, or remove it"}},
		"the flag without wait and discount only promotes": {algorithm: waitAndWiden,
			change: func(s *settings) {
				s.Seed, s.LastClusterAffinity, s.CacheAffinityBackendSelectionCount = new("s"), new(true), new(int64(1))
				s.CacheAffinityInputTokensScale = new(v1alpha1.Decimal("1.0"))
			},
			want: []string{m + ".lastClusterAffinity: with cacheAffinityWaitMs 0 and cacheAffinityInputTokensScale 1 a new session is treated the same as without the flag, " +
				"only the promotion of the last cluster changes; set cacheAffinityWaitMs to have wait-and-widen wait for a returning session's cluster, or to 0 if the promotion alone is meant"}},
		"the promotion alone is meant when a wait of 0 is written out": {algorithm: pulsarWaitAndWiden,
			change: func(s *settings) { s.LastClusterAffinity, s.CacheAffinityWaitMs = new(true), new(int64(0)) }},
		"an overflow at once is meant when a bound of 0 is written out": {algorithm: pulsarWaitAndWiden,
			change: func(s *settings) {
				s.MaxQueueTimeCeilMs, s.MaxQueueTimeFloorMs = nil, nil
				s.MaxQueued = new(int64(0))
			}},
		"the flag with a discount does what it says": {algorithm: pulsarWaitAndWiden,
			change: func(s *settings) {
				s.LastClusterAffinity, s.CacheAffinityInputTokensScale = new(true), new(v1alpha1.Decimal("0.1"))
			}},
		"the flag off has nothing to do": {algorithm: pulsarWaitAndWiden, change: func(s *settings) { s.LastClusterAffinity = new(false) }},
		"everything about an affinity group is idle without one": {algorithm: waitAndWiden,
			change: func(s *settings) {
				s.Seed, s.CacheAffinityVirtualNodes = new("s"), new(int64(8))
				s.CacheAffinityWaitMs, s.CacheAffinityInputTokensScale = new(int64(5)), new(v1alpha1.Decimal("0.5"))
			},
			want: idle(m, "seed", "cacheAffinityVirtualNodes", "cacheAffinityWaitMs", "cacheAffinityInputTokensScale")},

		"a floor alone does nothing": {algorithm: waitAndWiden, change: func(s *settings) { s.MaxQueueTimeFloorMs = new(int64(0)) },
			want: []string{m + ".maxQueueTimeFloorMs: no effect without maxQueueTimeCeilMs; set both or neither"}},
		"a ceiling alone does nothing": {algorithm: waitAndWiden, change: func(s *settings) { s.MaxQueueTimeCeilMs = new(int64(1)) },
			want: []string{m + ".maxQueueTimeCeilMs: no effect without maxQueueTimeFloorMs; set both or neither"}},
		"a floor above the ceiling shrinks the limit": {algorithm: pulsarWaitAndWiden, change: func(s *settings) { s.MaxQueueTimeFloorMs = new(int64(501)) },
			want: []string{m + ".maxQueueTimeFloorMs: above maxQueueTimeCeilMs: the two are not reordered, the limit shrinks as the request ages; swap them if that is not meant"}},

		"an affinity group without a seed": {algorithm: waitAndWiden, change: func(s *settings) { s.CacheAffinityBackendSelectionCount = new(int64(2)) },
			want: []string{"note: " + m + ".seed: wait-and-widen" + noSeed}},
		"an empty seed is none": {algorithm: pulsar, change: func(s *settings) { s.Seed = new("") },
			want: []string{"note: " + m + ".seed: pulsar" + noSeed}},
		"clusters without KV statistics": {algorithm: pulsarWaitAndWiden, change: func(s *settings) { s.ConsiderKvFreeTokens = new(true) },
			want: []string{"note: " + m + ".considerKvFreeTokens: a cluster without KV statistics is never eligible; set it only where every cluster reports them"}},

		"old workers drop out of the ranking by default": {algorithm: pulsar, change: func(s *settings) { s.RendezvousWeight = nil },
			want: []string{m + ".rendezvousWeight: pulsar" + oldTPS}},
		"a ranking by the maximum is meant when it is written out": {algorithm: pulsarWaitAndWiden, change: func(s *settings) { s.RendezvousWeight = new("max-input-tps") }},
		"old workers will drop out with V2": {algorithm: pulsar, generations: validate.AnyGeneration, change: func(s *settings) { s.RendezvousWeight = nil },
			want: []string{"note: " + m + ".rendezvousWeight: from V2 on, pulsar" + oldTPS}},
		"old workers stay in the ranking before V2": {algorithm: pulsar, generations: validate.Only(release.V1), change: func(s *settings) { s.RendezvousWeight = nil }},

		"input tokens are required anyway": {algorithm: v1alpha1.Random, change: func(s *settings) { s.RequireInputTokens = new(true) },
			want: []string{m + ".requireInputTokens: it changes nothing in practice, since the proxy always requires x-input-tokens; remove it"}},
		"a work limit of 0": {algorithm: v1alpha1.Random, change: func(s *settings) { s.MaxInputWorkSeconds = new(v1alpha1.Decimal("0.0")) },
			want: []string{m + ".maxInputWorkSeconds: a limit of 0.0 admits only requests without input work; raise it, or remove it for no limit"}},
		"a work limit below 0": {algorithm: v1alpha1.Random, change: func(s *settings) { s.MaxInputWorkSeconds = new(v1alpha1.Decimal("-1")) },
			want: []string{m + ".maxInputWorkSeconds: a limit of -1 admits no request at all; raise it, or remove it for no limit"}},
		"an unlock factor beyond 1": {algorithm: waitAndWiden, change: func(s *settings) { s.NextBucketUnlockFactor = new(v1alpha1.Decimal("1.5")) },
			want: []string{m + ".nextBucketUnlockFactor: outside 0 to 1 buckets unlock before their time or later than the gap between them; keep it from 0 to 1"}},
		"zeros that count as one": {algorithm: pulsarWaitAndWiden,
			change: func(s *settings) { s.N, s.CacheAffinityBackendSelectionCount = new(int64(0)), new(int64(0)) },
			want: []string{
				m + ".n: 0 counts as 1; write 1, or leave it out for 2",
				m + ".cacheAffinityBackendSelectionCount: 0 counts as 1 on pulsar-wait-and-widen; write 1, or leave it out",
			}},
		"virtual nodes of the hash ring": {algorithm: waitAndWiden,
			change: func(s *settings) {
				s.Seed, s.CacheAffinityVirtualNodes, s.CacheAffinityBackendSelectionCount = new("s"), new(int64(0)), new(int64(1))
			},
			want: []string{m + ".cacheAffinityVirtualNodes: 0 counts as 1; write 1, or leave it out for 150"}},
		"virtual nodes where there is no ring": {algorithm: pulsarWaitAndWiden, change: func(s *settings) { s.CacheAffinityVirtualNodes = new(int64(8)) },
			want: []string{m + ".cacheAffinityVirtualNodes: accepted on pulsar-wait-and-widen and ignored there, since it has no hash ring; remove it"}},

		"what generation V1 knows and ignores": {algorithm: pulsarWaitAndWiden, generations: validate.Only(release.V1),
			change: func(s *settings) {
				s.RendezvousWeight = nil
				s.CacheAffinityWaitMs, s.CacheAffinityInputTokensScale = new(int64(5)), new(v1alpha1.Decimal("0.5"))
			},
			want: []string{
				m + ".cacheAffinityWaitMs: pulsar-wait-and-widen does not wait for affinity and ignores it; it takes effect with a newer Stargate, remove it until then",
				m + ".cacheAffinityInputTokensScale: pulsar-wait-and-widen does not wait for affinity and ignores it; it takes effect with a newer Stargate, remove it until then",
			}},
		"what generation V0 knows and ignores": {algorithm: pulsarWaitAndWiden, generations: validate.Generations{Oldest: release.V0, Newest: release.V1},
			change: func(s *settings) { s.RendezvousWeight, s.CacheAffinityBackendSelectionCount = nil, new(int64(2)) },
			want:   []string{"note: " + m + ".cacheAffinityBackendSelectionCount: before V1, pulsar-wait-and-widen accepts and ignores it; it takes effect with a newer Stargate, remove it until then"}},
		"a field that the release does not know": {algorithm: waitAndWiden, generations: validate.Only(release.V1),
			change: func(s *settings) { s.LastClusterAffinity = new(false) },
			want:   []string{m + ".lastClusterAffinity: Stargate does not know lastClusterAffinity, which is left out of the file; it takes effect from V3 on, remove it until then"}},
		"a field that the release may not know": {algorithm: waitAndWiden, generations: validate.Only(release.Unknown),
			change: func(s *settings) { s.LastClusterAffinity = new(false) },
			want:   []string{"note: " + m + ".lastClusterAffinity: before V3, Stargate does not know lastClusterAffinity, which is left out of the file; it takes effect from V3 on, remove it until then"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := cases.ValidPolicy()
			spec.Models[0].AlgorithmSettings = quiet(test.algorithm)
			if test.change != nil {
				test.change(&spec.Models[0].AlgorithmSettings)
			}
			if errs := validate.Policy(&spec, root); len(errs) > 0 {
				t.Fatalf("the case is not valid: %v", errs)
			}
			generations := test.generations
			if generations == (validate.Generations{}) {
				generations = validate.Only(release.V3)
			}
			checkWarnings(t, validate.PolicyWarnings(&spec, root, generations), test.want)
		})
	}
}

func idle(path string, names ...string) []string {
	var list []string
	for _, name := range names {
		list = append(list, path+"."+name+": "+name+" has no effect on wait-and-widen without an affinity group; set cacheAffinityBackendSelectionCount above 0, or remove it")
	}
	return list
}

func TestPolicyWarningsAboutModels(t *testing.T) {
	spec := cases.ValidPolicy()
	checkWarnings(t, validate.PolicyWarnings(&spec, root, validate.AnyGeneration), nil)

	spec.Models[0].Name = ""
	spec.Models[0].RequestAlgorithms = []v1alpha1.RequestAlgorithm{
		{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random, RequireInputTokens: new(true)}},
		{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: waitAndWiden}},
	}
	spec.Models = append(spec.Models, v1alpha1.Model{Name: "m ", AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}})
	checkWarnings(t, validate.PolicyWarnings(&spec, root, validate.AnyGeneration), []string{
		"spec.models[0].name: an empty name matches only requests with an empty model ID; write the model ID that requests carry",
		"spec.models[0].requestAlgorithms[1].algorithm: an entry for the model's own algorithm wait-and-widen is never used: the model's configuration answers first; remove it",
		"spec.models[0].requestAlgorithms[0].requireInputTokens: it changes nothing in practice, since the proxy always requires x-input-tokens; remove it",
		"note: spec.models[0].requestAlgorithms: " + metadata,
		"spec.models[1].name: the name has white space at an end, and model IDs are not trimmed: only requests with the same white space match; remove it if they have none",
	})

	spec.Models = nil
	checkWarnings(t, validate.PolicyWarnings(&spec, root, validate.AnyGeneration), []string{
		"spec.models: no model is listed, so the policy does nothing; list the models that it configures",
	})
}

func TestPlaneWarnings(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.RoutingPlaneSpec)
		want   []string
	}{
		"nothing to say of a plain plane": {change: func(*v1alpha1.RoutingPlaneSpec) {}},
		"a default algorithm cannot say what it would need": {
			change: func(s *v1alpha1.RoutingPlaneSpec) { s.Stargate.DefaultAlgorithm = pulsarWaitAndWiden },
			want: []string{
				"note: spec.stargate.defaultAlgorithm: pulsar-wait-and-widen ranks by the maximum input TPS, and clusters behind workers or relays too old to report it drop out of the ranking; " +
					"with rendezvousWeight: last-mean-input-tps they stay" + noSettings,
				"note: spec.stargate.defaultAlgorithm: " + noSLO + "requests overflow as soon as rank 1 has no free engine slot; to keep them there raise maxQueued and set cacheAffinityWaitMs, or use pulsar; if it is meant, write maxQueued: 0" + noSettings,
				"note: spec.stargate.defaultAlgorithm: pulsar-wait-and-widen without a seed is fine, but two planes with the same models rank alike; a seed of its own tells one from the other" + noSettings,
			}},
		"request algorithms are judged as a policy's": {
			change: func(s *v1alpha1.RoutingPlaneSpec) {
				s.Stargate.RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: waitAndWiden, MaxQueueTimeCeilMs: new(int64(1))}}}
			},
			want: []string{
				"spec.stargate.requestAlgorithms[0].maxQueueTimeCeilMs: no effect without maxQueueTimeFloorMs; set both or neither",
				"note: spec.stargate.requestAlgorithms: " + metadata,
			}},
		"without a gateway no flag is switched on": {
			change: func(s *v1alpha1.RoutingPlaneSpec) { s.Gateways = nil },
			want:   []string{"note: spec.gateways: without a gateway no lastClusterAffinity flag is switched on; list the gateways in front of the router"}},
		"a warm-up shorter than the memory's time": {
			change: func(s *v1alpha1.RoutingPlaneSpec) {
				s.LastCluster.TTL = &metav1.Duration{Duration: 10 * time.Minute}
				s.Rollout.GatewayWarmup = &metav1.Duration{Duration: 9 * time.Minute}
			},
			want: []string{"note: spec.rollout.gatewayWarmup: shorter than lastCluster.ttl (10m0s): sessions whose last request was before the memory came on are taken for new and lose their affinity wait; leave gatewayWarmup out to wait for one ttl"}},
		"a deadline shorter than a pod's start": {
			change: func(s *v1alpha1.RoutingPlaneSpec) {
				s.Rollout.ProgressDeadline = &metav1.Duration{Duration: time.Minute}
			},
			want: []string{"spec.rollout.progressDeadline: a Stargate pod warms up for 60s by default and its predecessor drains for 30s: below 1m30s a healthy rollout can count as stuck; raise it"}},
		"an empty selector selects everything": {
			change: func(s *v1alpha1.RoutingPlaneSpec) {
				s.AllowedPolicies.Namespaces = v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesFromSelector, Selector: &metav1.LabelSelector{}}
			},
			want: []string{"spec.allowedPolicies.namespaces.selector: an empty selector matches every namespace; write from: All if that is meant"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := cases.ValidPlane()
			test.change(&spec)
			if errs := validate.Plane(&spec, root, validate.Options{}); len(errs) > 0 {
				t.Fatalf("the case is not valid: %v", errs)
			}
			checkWarnings(t, validate.PlaneWarnings(&spec, root, validate.Only(release.V3)), test.want)
		})
	}
}

func checkWarnings(t *testing.T, warnings []validate.Warning, want []string) {
	t.Helper()
	var got []string
	for _, w := range warnings {
		line := w.String()
		if w.Note {
			line = "note: " + line
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestEveryFileCanBeMadeToHaveNoWarning, with the same meaning: a strict check that a legitimate file cannot pass is of no use.
func TestEveryFileCanBeMadeToHaveNoWarning(t *testing.T) {
	for name, settings := range map[string]v1alpha1.AlgorithmSettings{
		"pulsar by the maximum":                 {Algorithm: pulsar, RendezvousWeight: new("max-input-tps"), ConsiderKvFreeTokens: new(true)},
		"a queue without an SLO that overflows": {Algorithm: pulsarWaitAndWiden, RendezvousWeight: new("max-input-tps"), MaxQueued: new(int64(0))},
		"a promotion without a wait":            {Algorithm: pulsarWaitAndWiden, RendezvousWeight: new("max-input-tps"), MaxQueued: new(int64(0)), CacheAffinityWaitMs: new(int64(0)), LastClusterAffinity: new(true)},
		"a group without a seed":                {Algorithm: waitAndWiden, CacheAffinityBackendSelectionCount: new(int64(2))},
	} {
		for _, generations := range []validate.Generations{validate.AnyGeneration, validate.Only(release.V3)} {
			t.Run(fmt.Sprintf("%s, for %v", name, generations), func(t *testing.T) {
				policy, plane := cases.ValidPolicy(), cases.ValidPlane()
				policy.Models[0].AlgorithmSettings = settings
				policy.Models[0].RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}}}
				plane.Gateways, plane.Rollout.GatewayWarmup = nil, &metav1.Duration{Duration: time.Second}
				plane.LastCluster.TTL = &metav1.Duration{Duration: 24 * time.Hour}
				plane.Stargate.DefaultAlgorithm = pulsarWaitAndWiden
				plane.Stargate.RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: settings}}
				for _, w := range validate.WithoutNotes(append(validate.PolicyWarnings(&policy, root, generations), validate.PlaneWarnings(&plane, root, generations)...)) {
					t.Error(w)
				}
			})
		}
	}
}

func TestLinesCountWhatIsSaidOfSeveralModels(t *testing.T) {
	spec := cases.ValidPolicy()
	spec.Models = nil
	for _, name := range []string{"a", "b", "c"} {
		m := v1alpha1.Model{Name: name, AlgorithmSettings: quiet(pulsar)}
		m.Seed = nil
		spec.Models = append(spec.Models, m)
	}
	spec.Models[1].RequireInputTokens = new(true)
	spec.Models[2].ConsiderKvFreeTokens = new(true)
	warnings := validate.PolicyWarnings(&spec, root, validate.Only(release.V3))

	seeds := "spec.models[0].seed (and 2 more): pulsar" + noSeed
	tokens := "spec.models[1].requireInputTokens: it changes nothing in practice, since the proxy always requires x-input-tokens; remove it"
	statistics := "spec.models[2].considerKvFreeTokens: a cluster without KV statistics is never eligible; set it only where every cluster reports them"
	for limit, want := range map[int][]string{
		0: {seeds, tokens, statistics},
		3: {seeds, tokens, statistics},
		2: {seeds, "and 2 more warnings"},
		1: {"and 3 more warnings"},
	} {
		if got := validate.Lines(warnings, limit); !slices.Equal(got, want) {
			t.Errorf("limit %d: %q, want %q", limit, got, want)
		}
	}
	if got := validate.Lines(nil, 32); len(got) != 0 {
		t.Errorf("lines of nothing: %q", got)
	}
}
