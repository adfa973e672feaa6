package rollout

import (
	"slices"
	"testing"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// off is a model that says that it does without the flag, which an older Stargate does not know either.
func off(name string) v1alpha1.Model {
	m := affine(name)
	m.LastClusterAffinity = new(false)
	return m
}

func TestStargateIsNotRolledWhileAGatewayIsLetGo(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.configure(off("a"))
	s.watch = func(plan *Plan) {
		if slices.ContainsFunc(plan.Steps, func(step Step) bool { return step.Kind == StepLetGo }) {
			s.frozen = s.gateways[0]
		}
	}
	s.settle(t)
	if s.frozen == nil || s.gateways[0].template.revision != "" {
		t.Fatalf("the gateway is not let go\n%s", s.describe())
	}
	s.reset()
	s.stargate.change(func(to *template) { to.image = "router:0.17.0" }) // whose file has to be another one
	s.settle(t)
	wantRollouts(t, s, 1, 0)
	s.watch, s.frozen = nil, nil
	s.settle(t)
	wantRollouts(t, s, 2, 0)
	if s.gateways[0].managed {
		t.Errorf("the gateway still names the plane\n%s", s.describe())
	}
}

func TestEveryReachableStateKeepsTheInvariantsWhileFlagsGoOff(t *testing.T) {
	budget := outageBudget(t)
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		t.Parallel()
		s := small(t, kind)
		s.settle(t)
		s.setModels(off("a"), off("b"))
		found := exploration{budget: budget, spared: []string{"a policy withdraws its flag"}, goal: func(s *site, plan *Plan) bool {
			return len(plan.Steps) == 0 && plan.Stage == v1alpha1.StageSettled && plan.Waiting == nil && !s.gateways[0].managed
		}}.of(t, s)
		t.Logf("explored %d states and %d transitions with up to %d outages", found.states, found.transitions, budget)
	})
}
