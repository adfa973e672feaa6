package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// last is the step that was taken last, in words.
func (s *site) last() string {
	if len(s.log) == 0 {
		return ""
	}
	return s.log[len(s.log)-1]
}

func TestAPlaneThatCannotBeUnwoundGoesAfterTheDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		strike func(s *site)
		// flags and memory tell what is left on.
		flags, memory bool
		says          string
	}{
		"while Stargate is paused with flags on": {
			strike: func(s *site) { s.stargate.hold = "is paused" },
			flags:  true, memory: true, says: "Deployment llm-api-gateway could not be let go of",
		},
		"while the operator's own rollout of the gateway hangs with flags on": {
			strike: func(s *site) {
				s.plane.LastCluster.LocalMaxEntries = new(int64(7))
				s.pass(t)
				s.frozen = s.gateways[0]
			},
			flags: true, memory: true, says: "Deployment llm-api-gateway could not be let go of",
		},
		"while the gateway is paused": {
			strike: func(s *site) { s.gateways[0].hold = "is paused" },
			memory: true, says: "Deployment llm-api-gateway could not be let go of",
		},
		"while a gateway that is let go hangs": {
			strike: func(s *site) {
				s.watch = func(plan *Plan) {
					if slices.ContainsFunc(plan.Steps, func(step Step) bool { return step.Kind == StepLetGo }) {
						s.frozen = s.gateways[0]
					}
				}
			},
			says: "the plane was deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(affine("a"))
			s.settle(t)
			test.strike(s)
			s.plane.Deleted = s.now
			s.settle(t)
			if !s.planeGone {
				t.Fatalf("the plane does not go\n%s", s.describe())
			}
			if waited := s.now.Sub(s.plane.Deleted); waited < s.plane.ProgressDeadline || waited > 4*s.plane.ProgressDeadline {
				t.Errorf("went after %s", waited)
			}
			if on := len(s.revisions[s.stargate.template.revision].Flags) > 0; on != test.flags {
				t.Errorf("flags on: %v\n%s", on, s.describe())
			}
			if on := s.memory(s.gateways[0].template).On; on != test.memory {
				t.Errorf("memory on: %v\n%s", on, s.describe())
			}
			for _, w := range s.workloads() {
				if w.managed {
					t.Errorf("%s names a plane that is gone", w.name)
				}
				if _, there := s.revisions[w.template.revision]; w.template.revision != "" && !there {
					t.Errorf("the revision of %s is gone", w.name)
				}
			}
			if !strings.Contains(s.last(), test.says) {
				t.Errorf("the last word does not say what stays: %s", s.last())
			}
		})
	}
}

func TestUnwindingWaitsForARolloutThatGetsFurther(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.plane.LastCluster.LocalMaxEntries = new(int64(7))
	s.pass(t)
	s.plane.Deleted = s.now
	for range 100 {
		if s.planeGone {
			break
		}
		s.pass(t)
		for _, w := range s.workloads() {
			if moves := s.moves(w); len(moves) > 0 {
				moves[0]()
			}
		}
		s.now = s.now.Add(4 * time.Minute)
	}
	if !s.planeGone || s.memory(s.gateways[0].template).On {
		t.Errorf("gone: %v\n%s", s.planeGone, s.describe())
	}
}

func TestUnwindingLeavesWhatIsNotThePlanesOrCannotBeRead(t *testing.T) {
	for name, see := range map[string]func(*Workload){
		"another plane manages the router": func(w *Workload) { w.Managed, w.OtherPlane, w.Template.Revision = false, "nvcf/other", "" },
		"the router's container is not known": func(w *Workload) {
			w.Problem, w.Template.Revision, w.Template.Touched = "no container", "", false
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := adoptable(plain("b")) // it does not read the file yet
			s.settle(t)
			s.reset()
			s.plane.Deleted = s.now
			s.blind = func(w *World) { see(&w.Stargate) }
			s.settle(t)
			wantRollouts(t, s, 0, 0)
			if !s.planeGone {
				t.Errorf("the plane does not go\n%s", s.describe())
			}
			if strings.Contains(s.last(), "belong to nobody") {
				t.Errorf("claims what is another plane's: %s", s.last())
			}
		})
	}
}

func TestAStargateThatReadsTheFileKeepsItWhenThePlaneNamesAnother(t *testing.T) {
	s := newSite(plain("a"))
	s.settle(t)
	w := s.world()
	former := w.Stargate
	w.Stargate.Name, former.Managed = "other", true
	w.Former = []Workload{former}
	plan, err := Make(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range plan.Steps {
		if step.Kind == StepLetGo {
			t.Errorf("lets go: %s", step.Why)
		}
	}
	if !slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.Contains(w, former.Name) }) || plan.Stage == v1alpha1.StageRelease {
		t.Errorf("stage %s, warnings %q", plan.Stage, plan.Warnings)
	}
}
