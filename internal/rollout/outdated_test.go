package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// beneath switches the memory on in the chart's ConfigMap beneath the gateway's pods, which go on without it.
func beneath(s *site) (without func(*World)) {
	edited := s.now
	return func(w *World) {
		for i := range w.Gateways[0].Pods {
			if pod := &w.Gateways[0].Pods[i]; pod.Revision == "" && pod.Memory.On && !pod.Created.After(edited) {
				pod.Memory.On, pod.Memory.Unverified, pod.Memory.Outdated = false, false, "chart"
			}
		}
	}
}

func TestAMemoryThatWasSwitchedOnBeneathRunningPodsIsGivenToThemBeforeAnyFlag(t *testing.T) {
	s := remembering(affine("a"))
	s.blind = beneath(s)
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 2, 1)
	log := strings.Join(s.log, "\n")
	if memory, flags := strings.Index(log, "llm-api-gateway is complete"), strings.Index(log, "wave 1"); memory < 0 || flags < memory {
		t.Errorf("the flags did not wait for the gateway:\n%s", log)
	}
}

func TestAMemoryThatIsWrittenAgainWhileFlagsAreOnTakesNoFlagAway(t *testing.T) {
	s := remembering(affine("a"))
	s.settle(t)
	s.reset()
	s.blind = beneath(s)
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 0, 1)
}

func TestAMemoryThatPodsLackAndTheOperatorMayNotGiveIsWaitedFor(t *testing.T) {
	s := remembering(affine("a"))
	outdated := beneath(s)
	s.blind = func(w *World) {
		outdated(w)
		w.Gateways[0].Rivals = []Rival{{Manager: "helm", Field: ".spec.template.spec.containers"}}
	}
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionGatewayReady, "False", ReasonMemoryOff)
	wantRollouts(t, s, 1, 0)
	for _, want := range []string{"ConfigMap chart", "restart"} {
		if plan.Waiting == nil || !strings.Contains(plan.Waiting.For, want) {
			t.Errorf("waits for %+v, which does not say %q", plan.Waiting, want)
		}
	}
	s.now = s.now.Add(time.Minute)
	s.gateways[0].change(func(to *template) { to.foreign = "restarted" })
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
}
