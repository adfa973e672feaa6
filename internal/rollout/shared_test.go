package rollout

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// remembering is a site whose gateway has the memory on by somebody else's variables.
func remembering(models ...v1alpha1.Model) *site {
	s := newSite(models...)
	g := s.gateways[0]
	g.template.chart = map[string]string{render.VariableEnabled: "true"}
	for _, p := range g.pods {
		p.template.chart = g.template.chart
	}
	return s
}

func TestAMemoryThatAnotherPlaneMayTakeAwayIsNotReliedOn(t *testing.T) {
	taken := func(w *World) { w.Gateways[0].OtherPlane = "nvcf/other" }
	t.Run("no flag comes on", func(t *testing.T) {
		s := remembering(affine("a"))
		s.blind = taken
		plan := s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonWorkloadTaken)
		wantCondition(t, plan, v1alpha1.ConditionGatewayReady, "False", ReasonWorkloadTaken)
		wantRollouts(t, s, 1, 0)
		if plan.Flags.On != 0 {
			t.Errorf("flags %+v", plan.Flags)
		}
		if c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionStalled); !strings.Contains(c.Message, "nvcf/other") {
			t.Errorf("which plane it is is missing: %s", c.Message)
		}
	})
	t.Run("flags that are on are held and then withdrawn", func(t *testing.T) {
		s := remembering(affine("a"))
		s.settle(t)
		s.reset()
		s.blind = taken
		plan := s.pass(t)
		if plan.Flags.On != 1 || plan.Requeue.IsZero() {
			t.Errorf("flags %+v, looked at again at %s", plan.Flags, plan.Requeue)
		}
		plan = s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonWorkloadTaken)
		wantRollouts(t, s, 1, 0)
		if plan.Flags.On != 0 {
			t.Errorf("flags %+v", plan.Flags)
		}
		s.blind = nil
		wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	})
}
