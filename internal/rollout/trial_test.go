package rollout

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// poisoned is a Stargate that exits on any file with a model of these names that has the setting of queued.
func poisoned(queued int64, names ...string) func(Revision) bool {
	return func(r Revision) bool {
		for _, name := range names {
			if entry, ok := r.File.Models[name]; ok && entry.Settings["max_queued"] == uint64(queued) {
				return true
			}
		}
		return false
	}
}

func queued(name string, n int64) v1alpha1.Model {
	m := affine(name)
	m.MaxQueued = &n
	return m
}

// fleet are models a, b, c... with the setting.
func fleet(n int, setting int64) (models []v1alpha1.Model) {
	for i := range n {
		models = append(models, queued(string(rune('a'+i)), setting))
	}
	return models
}

// runs is what the file in Stargate's template says of the models.
func (s *site) runs() map[string]uint64 {
	settings := map[string]uint64{}
	for name, entry := range s.revisions[s.stargate.template.revision].File.Models {
		settings[name], _ = entry.Settings["max_queued"].(uint64)
	}
	return settings
}

func TestTheInnocentGetThroughAndTheGuiltyIsNamed(t *testing.T) {
	for _, kind := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(fleet(4, 1)...)
			s.stargate.kind = kind
			s.owners = map[string]types.NamespacedName{"a": {Namespace: "nvcf", Name: "one"}, "b": {Namespace: "nvcf", Name: "one"}, "c": {Namespace: "nvcf", Name: "two"}, "d": {Namespace: "nvcf", Name: "three"}}
			s.settle(t)
			s.refuses = poisoned(2, "c")
			s.configure(fleet(4, 2)...)
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
			message := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionStalled).Message
			if !strings.Contains(message, "what policy nvcf/two changes is held") || strings.Contains(message, "nvcf/one") || !strings.Contains(message, "bad file") {
				t.Errorf("the message is %q", message)
			}
			if want := map[string]uint64{"a": 2, "b": 2, "c": 1, "d": 2}; !maps.Equal(s.runs(), want) {
				t.Errorf("runs %v, want %v", s.runs(), want)
			}
			if keys := slices.Sorted(maps.Keys(plan.Held)); !slices.Equal(keys, []string{"c"}) {
				t.Errorf("held are %v", keys)
			}
			if plan.Flags.On != 4 {
				t.Errorf("flags %+v: a failure elsewhere moves none", plan.Flags)
			}

			s.reset()
			s.now = s.now.Add(24 * time.Hour)
			s.settle(t)
			wantRollouts(t, s, 0, 0)

			// Another change goes through beside the one that is held, which is not tried with it (I5).
			models := fleet(4, 2)
			models[0] = queued("a", 7)
			s.configure(models...)
			s.settle(t)
			wantRollouts(t, s, 1, 0)
			if want := map[string]uint64{"a": 7, "b": 2, "c": 1, "d": 2}; !maps.Equal(s.runs(), want) {
				t.Errorf("runs %v, want %v", s.runs(), want)
			}

			// The change that mends the policy goes through.
			models[2] = queued("c", 3)
			s.configure(models...)
			plan = s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			if plan.Held != nil {
				t.Errorf("held are %v", plan.Held)
			}
		})
	}
}

func TestWhileChangesAreTriedApartThePlaneIsReconciling(t *testing.T) {
	s := newSite(fleet(2, 1)...)
	s.settle(t)
	s.refuses = poisoned(2, "b")
	s.configure(fleet(2, 2)...)
	s.plane.MinInterval = time.Hour
	for range 200 {
		plan := s.pass(t)
		stalled := meta.IsStatusConditionTrue(plan.Conditions, v1alpha1.ConditionStalled)
		tried := maps.Equal(s.runs(), map[string]uint64{"a": 2, "b": 1})
		if stalled && !tried {
			t.Fatalf("stalled before the changes were tried\n%s", s.describe())
		}
		if len(plan.Held) == 2 && !strings.Contains(plan.Held["b"], "tried apart") {
			t.Fatalf("held %v", plan.Held)
		}
		if stalled {
			return
		}
		moved := false
		for _, w := range s.workloads() {
			if moves := s.moves(w); len(moves) > 0 {
				moves[0]()
				moved = true
			}
		}
		if !moved {
			s.now = s.now.Add(time.Minute)
		}
	}
	t.Fatal("not settled")
}

func TestAModelThatIsTakenOutWhenAnotherFailsComesBackOnlyUntilTheGuiltyIsKnown(t *testing.T) {
	s := newSite(queued("a", 1), queued("b", 1))
	s.settle(t)
	s.refuses = poisoned(2, "b")
	s.configure(queued("b", 2))
	s.settle(t)
	if want := map[string]uint64{"b": 1}; !maps.Equal(s.runs(), want) {
		t.Errorf("runs %v, want %v", s.runs(), want)
	}
}

func TestChangesThatFailTogetherOnlyEndWithTheLastOneHeld(t *testing.T) {
	s := newSite(queued("a", 1), queued("b", 1))
	s.settle(t)
	s.refuses = func(r Revision) bool { return poisoned(2, "a")(r) && poisoned(2, "b")(r) }
	s.configure(fleet(2, 2)...)
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
	if want := map[string]uint64{"a": 2, "b": 1}; !maps.Equal(s.runs(), want) {
		t.Errorf("runs %v, want %v", s.runs(), want)
	}
}

func TestAFirstConfigurationThatFailsIsLetGoOf(t *testing.T) {
	s := newSite(plain("a"))
	s.stargate.template.path = "/etc/stargate/lb-config.json"
	for _, p := range s.stargate.pods {
		p.template.path, p.ready = s.stargate.template.path, true
	}
	s.mountFails = true
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
	if s.stargate.template.revision != "" {
		t.Errorf("still has %s", s.stargate.template.revision)
	}
	wantRollouts(t, s, 2, 0)
	s.reset()
	s.now = s.now.Add(24 * time.Hour)
	s.settle(t)
	wantRollouts(t, s, 0, 0)
}

// Whatever set of models is to blame, every other change gets through, in a number of rollouts that grows with the
// guilty and only by the logarithm with the innocent.
func TestEveryInnocentChangeGetsThrough(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(r, "models")
		guilty := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, n, rapid.ID[int]).Draw(r, "guilty")
		models := fleet(n, 1)
		for i := range models {
			models[i].LastClusterAffinity = nil
		}
		s := newSite(models...)
		s.settle(t)
		s.reset()
		var names []string
		for _, i := range guilty {
			names = append(names, models[i].Name)
		}
		s.refuses = poisoned(2, names...)
		changed := fleet(n, 2)
		for i := range changed {
			changed[i].LastClusterAffinity = nil
		}
		s.configure(changed...)
		plan := s.settle(t)
		want := map[string]uint64{}
		for i := range n {
			want[models[i].Name] = 2
			if slices.Contains(guilty, i) {
				want[models[i].Name] = 1
			}
		}
		if !maps.Equal(s.runs(), want) {
			r.Fatalf("runs %v, want %v", s.runs(), want)
		}
		if held := slices.Sorted(maps.Keys(plan.Held)); len(held) != len(guilty) {
			r.Fatalf("held %v, guilty %v", held, names)
		}
		halvings := len(strconv.FormatInt(int64(n), 2))
		if limit := 1 + 2*(halvings+1)*len(guilty) + halvings; s.stargate.rollouts > limit {
			r.Fatalf("%d rollouts for %d guilty of %d", s.stargate.rollouts, len(guilty), n)
		}
	})
}
