package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// stages collects the stages that the site's plans go through from now on, and the reasons for which they are not ready.
func (s *site) stages() (stages *[]v1alpha1.Stage, reasons *[]string) {
	stages, reasons = new([]v1alpha1.Stage), new([]string)
	s.watch = func(plan *Plan) {
		*stages = slices.Compact(append(*stages, plan.Stage))
		if c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionReady); c.Status != "True" {
			*reasons = slices.Compact(append(*reasons, c.Reason))
		}
	}
	return stages, reasons
}

func TestAWorkloadThatOnlyLacksPodsChangesNoStage(t *testing.T) {
	stargate := func(s *site) *workload { return s.stargate }
	gateway := func(s *site) *workload { return s.gateways[0] }
	for name, test := range map[string]struct {
		models []v1alpha1.Model
		of     func(*site) *workload
		lacks  func(*workload)
	}{
		"Stargate is scaled up":           {[]v1alpha1.Model{affine("a")}, stargate, func(w *workload) { w.replicas += 2 }},
		"Stargate is scaled down":         {[]v1alpha1.Model{affine("a")}, stargate, func(w *workload) { w.replicas-- }},
		"Stargate is scaled from nothing": {[]v1alpha1.Model{affine("a")}, stargate, func(w *workload) { w.pods = nil }},
		"a pod of Stargate is lost":       {[]v1alpha1.Model{plain("a")}, stargate, func(w *workload) { w.pods = w.pods[1:] }},
		"a node of Stargate's is drained": {[]v1alpha1.Model{plain("a")}, stargate, func(w *workload) { w.pods[0].terminating, w.pods[0].ready = true, false }},
		"a probe of Stargate's fails":     {[]v1alpha1.Model{affine("a")}, stargate, func(w *workload) { w.pods[0].ready = false }},
		"a gateway is scaled up":          {[]v1alpha1.Model{affine("a")}, gateway, func(w *workload) { w.replicas += 2 }},
		"a pod of a gateway is lost":      {[]v1alpha1.Model{affine("a")}, gateway, func(w *workload) { w.pods = w.pods[1:] }},
		"a gateway that needs no memory":  {[]v1alpha1.Model{plain("a")}, gateway, func(w *workload) { w.replicas += 2 }},
	} {
		for _, kind := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
			t.Run(name+" "+kind, func(t *testing.T) {
				s := newSite(test.models...)
				s.stargate.kind = kind
				s.settle(t)
				s.reset()
				test.lacks(test.of(s))
				stages, reasons := s.stages()
				plan := s.pass(t)
				if plan.Waiting == nil || !strings.Contains(plan.Waiting.For, test.of(s).name+" has ") || strings.Contains(plan.Waiting.For, "new template") {
					t.Errorf("waits for %+v", plan.Waiting)
				}
				plan = s.settle(t)
				wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
				wantRollouts(t, s, 0, 0)
				if fmt.Sprint(*stages, *reasons) != "[Settled] [PodsNotReady]" {
					t.Errorf("stages %v, not ready for %v", *stages, *reasons)
				}
			})
		}
	}
}

func TestAPodThatIsLostLeavesARolloutWhereItIs(t *testing.T) {
	s := newSite(affine("a"), affine("b"))
	s.settle(t)
	s.configure(affine("a"), affine("b"), affine("c"))
	stages, _ := s.stages()
	for range 100 {
		plan := s.pass(t)
		if plan.Waiting != nil && plan.Stage == v1alpha1.StageFlags && len(plan.Steps) == 0 {
			break
		}
		for _, w := range s.workloads() {
			if moves := s.moves(w); len(moves) > 0 {
				moves[0]()
			}
		}
		s.now = s.now.Add(time.Second)
	}
	if len(*stages) == 0 || (*stages)[len(*stages)-1] != v1alpha1.StageFlags {
		t.Fatalf("does not get to the flags: %v", *stages)
	}
	s.stargate.pods = s.stargate.pods[1:]
	s.gateways[0].pods = s.gateways[0].pods[1:]
	plan := s.pass(t)
	if plan.Stage != v1alpha1.StageFlags || len(plan.Steps) > 0 {
		t.Errorf("stage %s, steps %v", plan.Stage, plan.Steps)
	}
	for _, part := range []string{v1alpha1.ConditionStargateReady, v1alpha1.ConditionGatewayReady, v1alpha1.ConditionReady} {
		wantCondition(t, plan, part, "False", ReasonPodsNotReady)
	}
}

func TestARolloutOfSomebodyElsesIsOneToItsEnd(t *testing.T) {
	for _, kind := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(affine("a"))
			s.stargate.kind = kind
			s.settle(t)
			s.stargate.change(func(to *template) { to.foreign = "restarted" })
			stages, reasons := s.stages()
			wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
			if fmt.Sprint(*stages, *reasons) != "[Base Settled] [RollingOut]" {
				t.Errorf("stages %v, not ready for %v", *stages, *reasons)
			}
		})
	}
	t.Run("of a gateway that has nothing of the operator's", func(t *testing.T) {
		s := newSite(plain("a"))
		s.settle(t)
		s.gateways[0].change(func(to *template) { to.foreign = "restarted" })
		stages, reasons := s.stages()
		plan := s.pass(t)
		wantCondition(t, plan, v1alpha1.ConditionGatewayReady, "False", ReasonRollingOut)
		wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
		if fmt.Sprint(*stages) != "[Settled]" || (*reasons)[0] != ReasonRollingOut {
			t.Errorf("stages %v, not ready for %v", *stages, *reasons)
		}
	})
}

func TestTheImageOfSomebodyElsesThatExitsIsToldInItsOwnWords(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	good := s.stargate.template.revision
	s.refuses = func(Revision) bool { return true } // whatever the file
	s.stargate.change(func(to *template) { to.foreign = "another image" })
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonRollingOut)
	if plan.Waiting == nil || !strings.Contains(plan.Waiting.For, "exits (2 restarts), container router: bad file") {
		t.Errorf("waits for %+v", plan.Waiting)
	}
	if len(s.failures) > 0 || s.stargate.template.revision != good {
		t.Errorf("takes its own file for the cause: %v", s.failures)
	}

	pod := Pod{Name: "p", Crash: &Crash{Container: "router", Restarts: 3, Message: strings.Repeat("a lot\n\tof wörds ", 1000)}}
	if text := pod.exits(); len(text) > wordsShown+100 || strings.ContainsAny(text, "\n\t") || !strings.HasSuffix(text, " ...") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	pod.Crash.Message = ""
	if text := pod.exits(); text != "pod p exits (3 restarts)" {
		t.Errorf("got %s", text)
	}
}

func TestARouterThatIsMadeAnewHasNoFlagsWithdrawn(t *testing.T) {
	s := newSite(affine("a"), affine("b"))
	s.settle(t)
	w := s.stargate
	w.pods, w.managed = nil, false
	w.change(func(to *template) { to.revision = "" })
	created := s.now.Add(time.Second)
	s.now = created
	s.blind = func(world *World) { world.Stargate.Created = created }
	stages, _ := s.stages()
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	if slices.Contains(*stages, v1alpha1.StageWithdrawFlags) {
		t.Errorf("stages %v", *stages)
	}
}

func TestAGatewayThatThePlaneNamesNoLongerIsReleased(t *testing.T) {
	s := newSite(plain("a"))
	s.settle(t)
	w := s.world()
	w.Former, w.Gateways = w.Gateways, nil
	w.Former[0].Managed = true
	plan, err := Make(w)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Stage != v1alpha1.StageRelease || len(plan.Steps) != 1 || plan.Steps[0].Kind != StepLetGo {
		t.Errorf("stage %s, steps %+v", plan.Stage, plan.Steps)
	}
	wantCondition(t, plan, v1alpha1.ConditionReady, "False", ReasonRollingOut)
}

func TestAStargateThatIsTooOldForAnythingIsSaidToLeakTheHeader(t *testing.T) {
	for name, models := range map[string][]v1alpha1.Model{"with the memory on": {affine("a")}, "without": {plain("a")}} {
		s := newSite(models...)
		s.settle(t)
		remembers := s.memory(s.gateways[0].template).On
		s.reset()
		s.stargate.change(func(to *template) { to.image = "router:0.9.0" })
		plan := s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonReleaseUnsupported)
		wantRollouts(t, s, 1, 0)
		c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionStalled)
		if leaks := strings.Contains(c.Message, "stays on in Deployment llm-api-gateway"); leaks != remembers {
			t.Errorf("%s: %s", name, c.Message)
		}
	}
}
