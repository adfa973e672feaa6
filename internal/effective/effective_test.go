package effective

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

// policy that was created on a day and lists models without settings.
func policy(name string, day int, models ...string) Policy {
	p := Policy{NamespacedName: key(name), Created: epoch.AddDate(0, 0, day), Incumbent: sets.New[string]()}
	for _, m := range models {
		p.Models = append(p.Models, model(m, ""))
	}
	return p
}

func model(name, seed string) v1alpha1.Model {
	m := v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar}}
	if seed != "" {
		m.Seed = new(seed)
	}
	return m
}

func (p Policy) incumbentOf(models ...string) Policy {
	p.Incumbent = sets.New(models...)
	return p
}

func (p Policy) running(models ...v1alpha1.Model) Policy {
	p.Running = models
	return p
}

func (p Policy) wants(models ...v1alpha1.Model) Policy {
	p.Models = models
	return p
}

func TestTheOwnerOfAModel(t *testing.T) {
	tests := map[string]struct {
		policies  []Policy
		owners    map[string]string
		conflicts map[string][]string // messages by losing policy
	}{
		"a model that one policy lists is its own": {
			[]Policy{policy("b", 1, "z", "y"), policy("a", 2, "x")},
			map[string]string{"x": "a", "y": "b", "z": "b"},
			nil,
		},
		"the older policy has it, and the younger keeps its other models": {
			[]Policy{policy("young", 2, "m", "other"), policy("old", 1, "m")},
			map[string]string{"m": "old", "other": "young"},
			map[string][]string{"young": {`model "m" stays with policy ns/old, which is older; remove the model from one of the two policies`}},
		},
		"the incumbent keeps it whatever its age": {
			[]Policy{policy("young", 2, "m").incumbentOf("m"), policy("old", 1, "m")},
			map[string]string{"m": "young"},
			map[string][]string{"old": {`model "m" stays with policy ns/young, which has it already; remove the model from one of the two policies`}},
		},
		"an incumbent of another model has no better claim": {
			[]Policy{policy("young", 2, "m", "n").incumbentOf("n"), policy("old", 1, "m")},
			map[string]string{"m": "old", "n": "young"},
			map[string][]string{"young": {`model "m" stays with policy ns/old, which is older; remove the model from one of the two policies`}},
		},
		"an incumbent that no longer lists the model lets it go": {
			[]Policy{policy("was", 1, "n").incumbentOf("m", "n"), policy("next", 2, "m")},
			map[string]string{"m": "next", "n": "was"},
			nil,
		},
		"of two as old the first by name has it": {
			[]Policy{policy("b", 1, "m"), policy("a", 1, "m")},
			map[string]string{"m": "a"},
			map[string][]string{"b": {`model "m" stays with policy ns/a, which is as old and comes first by namespace and name; remove the model from one of the two policies`}},
		},
		"every loser is told of the one winner, sorted by model": {
			[]Policy{policy("c", 3, "n", "m"), policy("b", 2, "m"), policy("a", 1, "m", "n")},
			map[string]string{"m": "a", "n": "a"},
			map[string][]string{
				"b": {`model "m" stays with policy ns/a, which is older; remove the model from one of the two policies`},
				"c": {
					`model "m" stays with policy ns/a, which is older; remove the model from one of the two policies`,
					`model "n" stays with policy ns/a, which is older; remove the model from one of the two policies`,
				},
			},
		},
		"an empty model ID is a model like any other": {
			[]Policy{policy("a", 1, "", "m")},
			map[string]string{"": "a", "m": "a"},
			nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			result := Merge(render.Config{DefaultAlgorithm: v1alpha1.Random}, test.policies)
			owners := map[string]string{}
			for model, owner := range result.Owners {
				owners[model] = owner.Name
			}
			if !reflect.DeepEqual(owners, test.owners) {
				t.Errorf("owners %v, want %v", owners, test.owners)
			}
			if got, want := names(result.Config.Models), slices.Sorted(maps.Keys(test.owners)); !slices.Equal(got, want) {
				t.Errorf("models %q, want %q", got, want)
			}
			var conflicts map[string][]string
			for loser, lost := range result.Conflicts {
				for _, c := range lost {
					if conflicts == nil {
						conflicts = map[string][]string{}
					}
					conflicts[loser.Name] = append(conflicts[loser.Name], c.Message())
				}
			}
			if !reflect.DeepEqual(conflicts, test.conflicts) {
				t.Errorf("conflicts %q, want %q", conflicts, test.conflicts)
			}
			if result.Config.DefaultAlgorithm != v1alpha1.Random || !result.Fits() || len(result.LeftOut) > 0 {
				t.Errorf("result %+v", result)
			}
		})
	}
}

func names(models []v1alpha1.Model) []string {
	var names []string
	for _, m := range models {
		names = append(names, m.Name)
	}
	return names
}

func TestThereIsRoomForWhatIsRunningThenForTheOldest(t *testing.T) {
	const base = 3 + render.ModelsObjectSize // an empty file
	long, longer := strings.Repeat("s", 100), strings.Repeat("s", 150)
	plain := render.ModelSize(new(model("m1", "")))
	seeded := render.ModelSize(new(model("m1", long)))

	tests := map[string]struct {
		policies []Policy
		limit    int
		models   []string // name and length of the seed
		leftOut  []string
		tooLarge bool // what runs does not fit
	}{
		"all that fits to the byte": {
			policies: []Policy{policy("a", 1, "m1"), policy("b", 2, "m2")},
			limit:    base + 2*plain,
			models:   []string{"m1:0", "m2:0"},
		},
		"the newest is left out for one byte": {
			policies: []Policy{policy("b", 2, "m2"), policy("a", 1, "m1")},
			limit:    base + 2*plain - 1,
			models:   []string{"m1:0"},
			leftOut:  []string{"b"},
		},
		"a policy is left out whole": {
			policies: []Policy{policy("a", 1, "m1"), policy("b", 2, "m2", "m3")},
			limit:    base + 2*plain,
			models:   []string{"m1:0"},
			leftOut:  []string{"b"},
		},
		"a running policy has room before an older new one": {
			policies: []Policy{policy("old", 1, "m1"), policy("young", 2, "m2").running(model("m2", ""))},
			limit:    base + plain,
			models:   []string{"m2:0"},
			leftOut:  []string{"old"},
		},
		"a change of a running policy has room before an older new one": {
			policies: []Policy{policy("old", 1, "m1"), policy("young", 2).running(model("m2", "")).wants(model("m2", long))},
			limit:    base + seeded,
			models:   []string{"m2:100"},
			leftOut:  []string{"old"},
		},
		"a change without room leaves what is running, of its policy and of others": {
			policies: []Policy{
				policy("a", 1).running(model("m1", "")).wants(model("m1", longer)),
				policy("b", 2).running(model("m2", long)).wants(model("m2", long)),
			},
			limit:   base + plain + seeded,
			models:  []string{"m1:0", "m2:100"},
			leftOut: []string{"a"},
		},
		"a newer small one has room beside an older one that is too large": {
			policies: []Policy{policy("giant", 1).wants(model("m1", longer)), policy("small", 2, "m2")},
			limit:    base + seeded,
			models:   []string{"m2:0"},
			leftOut:  []string{"giant"},
		},
		"a model of a policy that is left out is free for others": {
			policies: []Policy{policy("a", 1).wants(model("m1", longer)), policy("b", 2, "m1")},
			limit:    base + plain,
			models:   []string{"m1:0"},
			leftOut:  []string{"a"},
		},
		"where what is running is too large already, smaller changes have room and larger ones have not": {
			policies: []Policy{
				policy("shrinks", 2).running(model("m1", longer)).wants(model("m1", long)),
				policy("grows", 1).running(model("m2", "")).wants(model("m2", long)),
				policy("new", 3, "m3"),
			},
			limit:    base,
			models:   []string{"m1:100", "m2:0"},
			leftOut:  []string{"grows", "new"},
			tooLarge: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			result := merge(render.Config{}, test.policies, test.limit)
			var models, leftOut []string
			for _, m := range result.Config.Models {
				models = append(models, fmt.Sprintf("%s:%d", m.Name, len(ptr.Deref(m.Seed, ""))))
			}
			for _, l := range result.LeftOut {
				leftOut = append(leftOut, l.Policy.Name)
			}
			if !slices.Equal(models, test.models) || !slices.Equal(leftOut, test.leftOut) {
				t.Errorf("models %q without %q, want %q without %q", models, leftOut, test.models, test.leftOut)
			}
			if result.Fits() == test.tooLarge {
				t.Errorf("%d bytes of %d", result.Size, result.Limit)
			}
		})
	}
}

func TestAPolicyWithoutRoomIsToldTheNumbers(t *testing.T) {
	tests := map[string]struct {
		policy Policy
		want   string
	}{
		"a new one": {
			policy("a", 1, "m1", "m2"),
			"no room for the policy's 2 models: they take 40 bytes, with which the largest lb-config.json of the plane would have 75 bytes, and a " +
				"ConfigMap can hold 60; none of them is rolled out; remove models, shorten seeds and request algorithms, or move models to another plane",
		},
		"a running one": {
			policy("a", 1, "m1", "m2").running(model("m1", "")),
			"no room for the policy's 2 models: they take 40 bytes, with which the largest lb-config.json of the plane would have 75 bytes, and a " +
				"ConfigMap can hold 60; its spec from before the change stays in effect; remove models, shorten seeds and request algorithms, or move models to another plane",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			result := merge(render.Config{}, []Policy{test.policy}, 60)
			if len(result.LeftOut) != 1 {
				t.Fatalf("left out: %+v", result.LeftOut)
			}
			if got := result.LeftOut[0].Message(); got != test.want {
				t.Errorf("message\n%s, want\n%s", got, test.want)
			}
		})
	}
}

func TestMergeHoldsWhatItPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := drawPolicies(t)
		limit := rapid.IntRange(0, 1500).Draw(t, "limit")
		config := render.Config{DefaultAlgorithm: v1alpha1.Random}
		result := merge(config, policies, limit)

		shuffled := slices.Clone(policies)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		random.Shuffle(len(shuffled), reflect.Swapper(shuffled))
		if again := merge(config, shuffled, limit); !reflect.DeepEqual(result, again) {
			t.Errorf("another order of policies gives another result:\n%+v\n%+v", result, again)
		}

		largest := render.LargestSize(result.Config)
		if result.Size < largest || result.Size > largest+render.ModelsObjectSize {
			t.Errorf("the size is said to be %d and is %d", result.Size, largest)
		}
		if running := merge(config, runningOf(policies), 1<<30).Size; !result.Fits() && result.Size > running {
			t.Errorf("%d bytes, more than the limit of %d and the %d that are running", result.Size, limit, running)
		}
		if !slices.IsSorted(names(result.Config.Models)) || len(result.Config.Models) != len(result.Owners) {
			t.Errorf("models %q with owners %v", names(result.Config.Models), result.Owners)
		}

		leftOut := sets.New[types.NamespacedName]()
		for _, l := range result.LeftOut {
			leftOut.Insert(l.Policy)
		}
		for _, p := range policies {
			inEffect := p.Models
			if leftOut.Has(p.NamespacedName) {
				inEffect = p.Running
			}
			lost := sets.New[string]()
			for _, c := range result.Conflicts[p.NamespacedName] {
				lost.Insert(c.Model)
			}
			for _, m := range inEffect {
				owner, ok := result.Owners[m.Name]
				if !ok || (owner == p.NamespacedName) == lost.Has(m.Name) {
					t.Errorf("policy %s: model %s is of %s, conflicts %v", p.Name, m.Name, owner, lost)
				}
				if owner == p.NamespacedName && !slices.ContainsFunc(result.Config.Models, func(c v1alpha1.Model) bool { return reflect.DeepEqual(c, m) }) {
					t.Errorf("policy %s has model %s, with another entry than its own", p.Name, m.Name)
				}
			}
		}
	})
}

func runningOf(policies []Policy) []Policy {
	running := slices.Clone(policies)
	for i := range running {
		running[i].Models = running[i].Running
	}
	return running
}

func drawPolicies(t *rapid.T) []Policy {
	pool := []string{"", "a", "b", "c", "d", "e", "f"}
	drawModels := func(label string) []v1alpha1.Model {
		var models []v1alpha1.Model
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 0, 4, rapid.ID).Draw(t, label) {
			models = append(models, model(name, strings.Repeat("s", rapid.IntRange(0, 200).Draw(t, "seed length"))))
		}
		return models
	}
	var policies []Policy
	for i := range rapid.IntRange(0, 8).Draw(t, "policies") {
		p := policy(fmt.Sprintf("p%d", i), rapid.IntRange(0, 2).Draw(t, "day")).wants(drawModels("models")...)
		if rapid.Bool().Draw(t, "runs") {
			p = p.running(drawModels("running")...).incumbentOf(rapid.SliceOf(rapid.SampledFrom(pool)).Draw(t, "incumbent")...)
		}
		policies = append(policies, p)
	}
	return policies
}

// realistic policies with models as sites have them.
func realistic(policies, models int) []Policy {
	var made []Policy
	for i := range policies {
		p := policy(fmt.Sprintf("team-%04d", i*7919%policies), i%30)
		for j := range models {
			name := fmt.Sprintf("meta/llama-3.1-%04d-%02d-instruct", i, j)
			m := model(name, name+"-v1")
			m.Algorithm = v1alpha1.PulsarWaitAndWiden
			m.RequireCacheAffinityKey = new(true)
			m.CacheAffinityBackendSelectionCount = new(int64(1))
			m.CacheAffinityWaitMs = new(int64(300))
			m.CacheAffinityInputTokensScale = new(v1alpha1.Decimal("0.1"))
			m.LastClusterAffinity = new(true)
			p.Models = append(p.Models, m)
			p.Incumbent.Insert(name)
		}
		made = append(made, p.running(p.Models...))
	}
	return made
}

func BenchmarkMergeThousandPolicies(b *testing.B) {
	policies := realistic(1000, 3)
	// One in ten claims a model of its neighbour.
	for i := 0; i < len(policies)-1; i += 10 {
		policies[i].Models = append(slices.Clone(policies[i].Models), policies[i+1].Models[0])
	}
	for name, limit := range map[string]int{"fits": MaxFileSize, "overflows": MaxFileSize / 2} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if merged := merge(render.Config{}, policies, limit); len(merged.Config.Models) != 3000 {
					b.Fatalf("%d models", len(merged.Config.Models))
				}
			}
		})
	}
}
