package rollout

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/render"
)

// affine is a model that asks for the flag.
func affine(name string) v1alpha1.Model {
	return v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{
		Algorithm: v1alpha1.PulsarWaitAndWiden, CacheAffinityWaitMs: new(int64(300)), LastClusterAffinity: new(true)}}
}

// plain is a model that does not.
func plain(name string) v1alpha1.Model {
	return v1alpha1.Model{Name: name, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar}}
}

func wantCondition(t *testing.T, plan *Plan, kind, status, reason string) {
	t.Helper()
	c := meta.FindStatusCondition(plan.Conditions, kind)
	if c == nil || string(c.Status) != status || c.Reason != reason {
		t.Errorf("condition %s is %+v, want %s with reason %s", kind, c, status, reason)
	}
}

func wantRollouts(t *testing.T, s *site, stargate int, gateways ...int) {
	t.Helper()
	if s.stargate.rollouts != stargate {
		t.Errorf("%d rollouts of Stargate, want %d\n%s", s.stargate.rollouts, stargate, s.describe())
	}
	for i, want := range gateways {
		if got := s.gateways[i].rollouts; got != want {
			t.Errorf("%d rollouts of gateway %d, want %d\n%s", got, i, want, s.describe())
		}
	}
}

func (s *site) reset() {
	for _, w := range s.workloads() {
		w.rollouts = 0
	}
	s.log = nil
}

func TestEnablingFlagsGoesRouterGatewayWarmupWaves(t *testing.T) {
	for _, kind := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(affine("a"), affine("b"), affine("c"), plain("d"))
			s.stargate.kind = kind
			start := s.now
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			if plan.Stage != v1alpha1.StageSettled || plan.Flags.On != 3 || plan.Flags.Desired != 3 || plan.Flags.Wave != 2 {
				t.Errorf("stage %s, flags %+v", plan.Stage, plan.Flags)
			}
			wantRollouts(t, s, 3, 1)
			if took := s.now.Sub(start); took < 15*time.Minute {
				t.Errorf("took %s: less than the warm-up and the interval between the waves", took)
			}
			if kind == v1alpha1.KindStatefulSet {
				return // the log differs by the pods that could not start without a file
			}
			var steps []string
			for _, line := range s.log {
				steps = append(steps, strings.SplitN(line, ":", 2)[0])
			}
			want := []string{
				"first configuration", "first configuration", // the revision, and the workload
				kind + " llm-request-router is complete on " + lastWord(s.log[1]),
				"switching the memory of the last cluster on", "switching the memory of the last cluster on",
				"Deployment llm-api-gateway is complete on " + lastWord(s.log[3]),
				"wave 1", "wave 1", kind + " llm-request-router is complete on " + lastWord(s.log[8]),
				"wave 2", "wave 2", kind + " llm-request-router is complete on " + lastWord(s.log[11]),
			}
			if strings.Join(steps, "\n") != strings.Join(want, "\n") {
				t.Errorf("steps:\n%s\nwant:\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func lastWord(s string) string { return s[strings.LastIndexByte(s, ' ')+1:] }

func TestRestartsAreMinimal(t *testing.T) {
	oneWave := []intstr.IntOrString{intstr.FromString("100%")}
	tuned := affine("a")
	tuned.MaxQueued = new(int64(4))
	tests := map[string]struct {
		waves              []intstr.IntOrString
		before, after      []v1alpha1.Model
		stargate, gateways int
	}{
		"the first enablement in one wave is two of Stargate and one of the gateway": {waves: oneWave, after: []v1alpha1.Model{affine("a"), affine("b"), affine("c")}, stargate: 2, gateways: 1},
		"three waves are three rollouts after the base":                              {waves: []intstr.IntOrString{intstr.FromInt32(1)}, after: []v1alpha1.Model{affine("a"), affine("b"), affine("c")}, stargate: 4, gateways: 1},
		"a tuning field is one of Stargate":                                          {before: []v1alpha1.Model{affine("a")}, after: []v1alpha1.Model{tuned}, stargate: 1},
		"a model without a flag is one of Stargate":                                  {before: []v1alpha1.Model{plain("a")}, after: []v1alpha1.Model{plain("a"), plain("b")}, stargate: 1},
		"the same again is none":                                                     {before: []v1alpha1.Model{affine("a")}, after: []v1alpha1.Model{affine("a")}},
		"the last flag off is one of Stargate, then one of the gateway":              {before: []v1alpha1.Model{affine("a"), plain("b")}, after: []v1alpha1.Model{plain("a"), plain("b")}, stargate: 1, gateways: 1},
		"one flag off of two is one of Stargate":                                     {before: []v1alpha1.Model{affine("a"), affine("b")}, after: []v1alpha1.Model{affine("a")}, stargate: 1},
		"a further flag on a warm plane is the base and its wave":                    {before: []v1alpha1.Model{affine("a")}, after: []v1alpha1.Model{affine("a"), affine("b")}, stargate: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSite(test.before...)
			if test.waves != nil {
				s.plane.Waves = test.waves
			}
			if test.before != nil {
				s.settle(t)
			}
			s.reset()
			s.configure(test.after...)
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			wantRollouts(t, s, test.stargate, test.gateways)
		})
	}
}

func TestOtherBytesOfTheSameMeaningRestartNothing(t *testing.T) {
	s := newSite(affine("a"), plain("b"))
	s.settle(t)
	// What an older build of the operator would have rendered: the same file, spelt in another way.
	current := s.revisions[s.stargate.template.revision]
	other := current
	other.Name += "-older"
	other.Data = map[string]string{render.LBConfigKey: strings.Replace(current.Data[render.LBConfigKey], `"pulsar"`, `{ "algorithm" : "pulsar" }`, 1)}
	file, err := lbconfig.Read([]byte(other.Data[render.LBConfigKey]), 3)
	if err != nil || other.Data[render.LBConfigKey] == current.Data[render.LBConfigKey] {
		t.Fatalf("the other spelling is none: %v\n%s", err, other.Data)
	}
	other.File = file
	s.revisions[other.Name] = other
	s.stargate.template.revision = other.Name
	for _, p := range s.stargate.pods {
		p.template.revision = other.Name
	}
	s.reset()
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 0, 0)
}

func TestSteadyStatePlansNoStep(t *testing.T) {
	s := newSite(affine("a"), plain("b"))
	s.settle(t)
	for range 100 {
		s.now = s.now.Add(time.Hour)
		if plan := s.pass(t); len(plan.Steps) != 0 {
			t.Fatalf("plans %+v", plan.Steps)
		}
	}
}

func TestSeveralGatewaysAreRolledOneAfterTheOther(t *testing.T) {
	s := newSite(affine("a"))
	second := *s.gateways[0]
	second.name, second.pods = "llm-api-gateway-eu", nil
	s.gateways = append(s.gateways, &second)
	for range second.replicas {
		s.start(&second).ready = true
	}
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 2, 1, 1)
}

func TestAFreshInstallGetsItsFileAtOnce(t *testing.T) {
	s := newSite(plain("a"))
	plan := s.pass(t)
	if s.stargate.rollouts != 1 {
		t.Errorf("the first pass does not give Stargate a file; notes: %q", plan.Notes)
	}
}

func TestAChangeWaitsForTheQuietPeriodAtMostSixTimes(t *testing.T) {
	s := newSite(plain("a"))
	s.settle(t)
	s.reset()
	began := s.now
	for i := range 20 {
		s.now = s.now.Add(3 * time.Second)
		s.config.Models = append(s.config.Models, plain(fmt.Sprintf("m%d", i)))
		s.changed, s.burst = s.now, began
		s.pass(t)
		if took := s.now.Sub(began); (s.stargate.rollouts > 0) != (took >= 30*time.Second) {
			t.Fatalf("after %s of changes there are %d rollouts", took, s.stargate.rollouts)
		}
		if s.stargate.rollouts > 0 {
			return
		}
	}
	t.Fatal("a burst of changes held the rollout up for ever")
}

// adoptable is a site that runs a file of its own.
func adoptable(models ...v1alpha1.Model) *site {
	s := newSite(models...)
	s.stargate.template.path = "/etc/llm-request-router/lb-config.json"
	for _, p := range s.stargate.pods {
		p.template.path, p.ready = s.stargate.template.path, true
	}
	return s
}

func TestAdoptionMountsTheFileAndMovesNoFlagUntilItIsRead(t *testing.T) {
	s := adoptable(affine("a"), plain("b"))
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "False", ReasonFileNotRead)
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonFileNotRead)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "False", ReasonSettled)
	wantRollouts(t, s, 1, 0)
	if plan.Flags.On != 0 {
		t.Errorf("flags %+v", plan.Flags)
	}
	// Helm moves the argument.
	s.stargate.change(func(to *template) { to.path = configPath })
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 3, 1)
	// Helm moves it back: the file is ignored, and the plane says so and changes nothing.
	s.reset()
	s.stargate.change(func(to *template) { to.path = "/etc/llm-request-router/lb-config.json" })
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "False", ReasonFileNotRead)
	wantRollouts(t, s, 1, 0)
}

func TestAdoptionKeepsFlagsThatTheSiteRunsWithMemory(t *testing.T) {
	s := adoptable(affine("a"), affine("b"))
	s.gateways[0].template.chart = map[string]string{render.VariableEnabled: "true", render.VariableTTL: "10m", render.VariableLookupTimeout: "20ms", render.VariableLocalMaxEntries: "100000"}
	for _, p := range s.gateways[0].pods {
		p.template.chart = s.gateways[0].template.chart
	}
	world := s.world()
	file, err := lbconfig.Read([]byte(`{"models":{"a":{"algorithm":"pulsar-wait-and-widen","last_cluster_affinity":true}}}`), 3)
	if err != nil {
		t.Fatal(err)
	}
	world.Stargate.Template.Unread = Unread{Path: s.stargate.template.path, File: file, Flags: render.Flags{}.Insert(file.Flags()...)}
	world.Now = world.Now.Add(time.Minute)
	plan, err := Make(world)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"a": {"algorithm":"pulsar-wait-and-widen","cache_affinity_wait_ms":300,"last_cluster_affinity":true}`; !strings.Contains(string(plan.TargetData), want) {
		t.Errorf("the first file drops the flag that the site runs:\n%s", plan.TargetData)
	}
	if strings.Count(string(plan.TargetData), "last_cluster_affinity") != 1 {
		t.Errorf("the first file switches on a flag that the site does not run:\n%s", plan.TargetData)
	}
}

func TestAChartsOwnMemoryCountsAndIsLeftAlone(t *testing.T) {
	s := newSite(affine("a"))
	s.gateways[0].template.chart = map[string]string{render.VariableEnabled: "true", render.VariableTTL: "600s", render.VariableLookupTimeout: "20ms", render.VariableLocalMaxEntries: "100000"}
	for _, p := range s.gateways[0].pods {
		p.template.chart = s.gateways[0].template.chart
	}
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 2, 0)
}

func TestAnOldStargateIsALimitAndNotAFailure(t *testing.T) {
	s := newSite(affine("a"))
	s.stargate.template.image = "router:0.18.0"
	for _, p := range s.stargate.pods {
		p.template.image = s.stargate.template.image
	}
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonFlagsHeld)
	wantCondition(t, plan, v1alpha1.ConditionFlagsReady, "False", ReasonStargateTooOld)
	wantRollouts(t, s, 1, 0)
	// Helm upgrades it: the flags follow.
	s.stargate.change(func(to *template) { to.image = "router:0.22.0" })
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	// And back: the file that the old one refuses goes at once, then the memory, explicitly.
	s.reset()
	s.stargate.change(func(to *template) { to.image = "router:0.18.0" })
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonFlagsHeld)
	wantRollouts(t, s, 2, 1)
	if s.memory(s.gateways[0].template).On {
		t.Error("the memory is on though Stargate would pass the header on")
	}
}

func TestNoGatewayIsALimit(t *testing.T) {
	s := newSite(affine("a"))
	s.gateways = nil
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonFlagsHeld)
	wantCondition(t, plan, v1alpha1.ConditionFlagsReady, "False", ReasonNoGateway)
}

func TestPausedChangesNothingAndSaysWhatItWould(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.reset()
	s.plane.Paused = true
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	s.configure(affine("a"), plain("b"))
	s.now = s.now.Add(time.Minute)
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonPaused)
	wantRollouts(t, s, 0, 0)
	if !strings.Contains(plan.Waiting.For, "new configuration") {
		t.Errorf("does not say what it would do: %s", plan.Waiting.For)
	}
	s.plane.Paused = false
	s.settle(t)
	wantRollouts(t, s, 1, 0)
}

func TestThePinHoldsWhateverThePoliciesSay(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	pinned := s.stargate.template.revision
	s.configure(plain("a"))
	s.settle(t)
	if s.stargate.template.revision == pinned {
		t.Fatal("the change did not go out")
	}
	s.plane.Pin = pinned
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonPinned)
	if s.stargate.template.revision != pinned {
		t.Errorf("runs %s, pinned to %s", s.stargate.template.revision, pinned)
	}
	s.plane.Pin = "llm-stargate-nothing"
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonPinNotFound)
}

func TestDeletingThePlaneUnwindsBackwards(t *testing.T) {
	t.Run("what Stargate still reads stays, without flags", func(t *testing.T) {
		s := newSite(affine("a"), plain("b"))
		s.settle(t)
		s.reset()
		s.plane.Deleted = s.now
		s.configure() // the policies went with it
		s.settle(t)
		if !s.planeGone {
			t.Fatalf("the plane does not go\n%s", s.describe())
		}
		wantRollouts(t, s, 1, 1)
		left := s.revisions[s.stargate.template.revision]
		if left.File == nil || len(left.File.Models) != 2 || left.Flags.Len() != 0 {
			t.Errorf("left behind: %+v", left)
		}
		if s.gateways[0].template.revision != "" || s.gateways[0].managed {
			t.Error("the gateway is not let go")
		}
		if s.stargate.managed {
			t.Error("the router names a plane that is gone")
		}
		if last := s.log[len(s.log)-1]; !strings.Contains(last, "so its mount and "+s.stargate.template.revision+" stay") {
			t.Errorf("the last word does not say what stays: %s", last)
		}
	})
	t.Run("a Stargate that reads another file is let go", func(t *testing.T) {
		s := adoptable(plain("b"))
		s.settle(t)
		s.plane.Deleted = s.now
		s.settle(t)
		if !s.planeGone || s.stargate.template.revision != "" || len(s.revisions) != 0 {
			t.Errorf("gone %v, revisions %d\n%s", s.planeGone, len(s.revisions), s.describe())
		}
	})
	t.Run("Retain changes no pod", func(t *testing.T) {
		s := newSite(affine("a"))
		s.settle(t)
		s.reset()
		s.plane.Deleted, s.plane.DeletionPolicy = s.now, v1alpha1.DeletionRetain
		s.settle(t)
		wantRollouts(t, s, 0, 0)
		if !s.planeGone || !s.stargate.managed {
			t.Errorf("gone: %t, and the router names it still: %t", s.planeGone, s.stargate.managed)
		}
	})
	t.Run("a gateway that hangs is waited for with a bound", func(t *testing.T) {
		s := newSite(affine("a"))
		s.settle(t)
		s.gateways[0].missing, s.gateways[0].pods = true, nil
		s.plane.Deleted = s.now
		s.settle(t)
		if !s.planeGone {
			t.Errorf("the plane does not go\n%s", s.describe())
		}
	})
}

func TestAFailedRevisionGoesBackToTheLastGoodAndIsNotTriedAgain(t *testing.T) {
	for _, kind := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(affine("a"))
			s.stargate.kind = kind
			s.settle(t)
			good := s.stargate.template.revision
			s.refuses = func(r Revision) bool { return strings.Contains(r.Data[render.LBConfigKey], `"poison"`) }
			s.reset()
			s.configure(affine("a"), plain("poison"))
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
			if s.stargate.template.revision != good {
				t.Errorf("runs %s, want the last good %s", s.stargate.template.revision, good)
			}
			wantRollouts(t, s, 2, 0)
			for _, p := range s.stargate.pods {
				if !p.ready {
					t.Errorf("pod %s was left behind\n%s", p.name, s.describe())
				}
			}
			if c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionStalled); !strings.Contains(c.Message, "bad file") {
				t.Errorf("the container's own words are missing: %s", c.Message)
			}
			s.reset()
			s.now = s.now.Add(24 * time.Hour)
			s.settle(t)
			wantRollouts(t, s, 0, 0)

			s.refuses = nil
			s.plane.Retry = "please"
			plan = s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			if kind == v1alpha1.KindDeployment {
				wantRollouts(t, s, 1, 0)
			}
		})
	}
}

func TestWhatOnlyRevisionsRecordComesBackIntoTheStatus(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.refuses = func(r Revision) bool { return strings.Contains(r.Data[render.LBConfigKey], `"poison"`) }
	s.configure(affine("a"), plain("poison"))
	wanted := s.settle(t).Records
	s.plane.Status.Records = nil
	if got := s.settle(t).Records; !reflect.DeepEqual(got, wanted) {
		t.Errorf("got %+v\nwant %+v", got, wanted)
	}
}

func TestAWaveThatFailsIsWithdrawn(t *testing.T) {
	s := newSite(affine("a"), affine("b"))
	s.refuses = func(r Revision) bool { return r.Flags.Has(render.Flag{Model: "b"}) }
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
	if plan.Flags.On != 1 {
		t.Errorf("flags %+v, want the first wave to stay on", plan.Flags)
	}
}

func TestMemoryThatGoesOffIsRestoredFirst(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.reset()
	s.gateways[0].change(func(to *template) { to.revision = "" })
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 0, 2)
}

func TestAFileThatIsTakenOutIsPutBackWithItsFlags(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.reset()
	s.stargate.change(func(to *template) { to.revision = "" }) // kubectl rollout undo, to before the operator
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 2, 0)
}

func TestARevisionThatIsDeletedIsMadeAnewWithoutARestart(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.reset()
	delete(s.revisions, s.stargate.template.revision)
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 0, 0)
}

func TestFlagsAreWithdrawnWhenTheGatewayStaysAway(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.gateways[0].missing, s.gateways[0].pods = true, nil
	plan := s.settle(t)
	if plan.Flags.On != 0 {
		t.Errorf("flags %+v are still on\n%s", plan.Flags, s.describe())
	}
	s.gateways[0].missing = false
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
}

func TestUnusedRevisionsAreDeletedBeyondTheHistory(t *testing.T) {
	s := newSite(plain("a"))
	s.plane.HistoryLimit = 2
	for i := range 12 {
		s.configure(plain(fmt.Sprintf("m%d", i)))
		s.settle(t)
	}
	if len(s.revisions) != 3 {
		t.Errorf("%d revisions are left, want the one in use and two", len(s.revisions))
	}
}

// TestNoInterleavingBreaksAnInvariant walks at random through what controllers, pods and people can do. Every
// plan on the way is checked against I1 to I4, and in the end everything that is wanted is in effect.
func TestNoInterleavingBreaksAnInvariant(t *testing.T) {
	walks := 300
	if testing.Short() {
		walks = 50
	}
	for seed := range walks {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			s := newSite(affine("a"), plain("b"))
			if seed%2 == 1 {
				s.stargate.kind = v1alpha1.KindStatefulSet
			}
			if seed%3 > 0 {
				s.plane.GatewayWarmup, s.plane.WaveInterval = 0, 0
			}
			s.drains = func() bool { return random.IntN(8) == 0 }
			s.wander(t, random, 400, people(s))
			s.drains = nil
			s.heal()
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			if t.Failed() {
				t.Log(s.describe())
			}
		})
	}
}

// Longer walks through a bigger world, with two gateways that come and go, files that Stargate refuses for reasons that
// nobody knows beforehand, and a clock that jumps. ROLLOUT_WALKS sets how many; the seed is in the test's name.
func TestLongWalksThroughABiggerWorldBreakNoInvariant(t *testing.T) {
	walks := 12
	if testing.Short() {
		walks = 2
	}
	if env := os.Getenv("ROLLOUT_WALKS"); env != "" {
		var err error
		if walks, err = strconv.Atoi(env); err != nil {
			t.Fatalf("ROLLOUT_WALKS: %v", err)
		}
	}
	for seed := range walks {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(seed), 2))
			s := newSite(fleet(6, 1)...)
			second := &workload{kind: v1alpha1.KindDeployment, name: "llm-second-gateway", replicas: 2, number: 1, version: 1, template: template{image: "gateway:1.0.0"}}
			s.gateways = append(s.gateways, second)
			if seed%2 == 1 {
				s.stargate.kind = v1alpha1.KindStatefulSet
			}
			s.plane.GatewayWarmup, s.plane.WaveInterval = time.Duration(seed%3)*time.Minute, time.Duration(seed%2)*time.Minute
			s.plane.Preflight = seed%4 == 3
			s.stargate.replicas = 4
			s.drains = func() bool { return random.IntN(6) == 0 }
			s.owners = map[string]types.NamespacedName{"a": {Namespace: "x", Name: "one"}, "b": {Namespace: "x", Name: "one"}, "c": {Namespace: "x", Name: "two"}, "d": {Namespace: "x", Name: "two"}, "e": {Namespace: "x", Name: "three"}, "f": {Namespace: "x", Name: "four"}}
			more := append(people(s),
				func(r *rand.Rand) {
					models := fleet(1+r.IntN(6), 1)
					for i := range models {
						models[i].MaxQueued = new(int64(1 + r.IntN(3)))
						models[i].LastClusterAffinity = new(r.IntN(2) == 0)
					}
					s.configure(models...)
				},
				func(r *rand.Rand) { s.refuses = poisoned(2, string(rune('a'+r.IntN(6))), string(rune('a'+r.IntN(6)))) },
				func(*rand.Rand) { s.refuses = nil },
				func(r *rand.Rand) { s.plane.Retry = strconv.Itoa(r.IntN(3)) },
				func(r *rand.Rand) { s.now = s.now.Add(time.Duration(r.IntN(7200)-3600) * time.Second) },
				func(*rand.Rand) {
					if len(s.gateways) == 2 {
						s.gateways = s.gateways[:1]
					} else {
						s.gateways = append(s.gateways, second)
					}
				},
			)
			s.wander(t, random, 4000, more)
			s.drains, s.refuses = nil, nil
			s.heal()
			for _, p := range second.pods {
				p.stuck = false
			}
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			if t.Failed() {
				t.Log(s.describe())
			}
		})
	}
}

// people are what happens to a site from outside.
func people(s *site) []func(*rand.Rand) {
	versions := []string{"router:0.18.0", "router:0.20.0", "router:0.22.0", "router:0.22.1", "router:latest"}
	sets := [][]v1alpha1.Model{{affine("a")}, {affine("a"), affine("b"), affine("c")}, {plain("a"), affine("b")}, {plain("a")}, {}}
	return []func(*rand.Rand){
		func(r *rand.Rand) {
			s.stargate.change(func(to *template) { to.image = versions[r.IntN(len(versions))] })
		},
		func(r *rand.Rand) { s.configure(sets[r.IntN(len(sets))]...) },
		func(r *rand.Rand) { s.stargate.replicas = r.IntN(4) },
		func(r *rand.Rand) { s.gateways[0].replicas = r.IntN(4) },
		func(*rand.Rand) { s.gateways[0].change(func(to *template) { to.revision = "" }) },
		func(r *rand.Rand) { s.gateways[0].change(func(to *template) { to.foreign = strconv.Itoa(r.IntN(9)) }) },
		func(r *rand.Rand) { s.stargate.change(func(to *template) { to.foreign = strconv.Itoa(r.IntN(9)) }) },
		func(*rand.Rand) {
			s.gateways[0].missing = !s.gateways[0].missing
			s.gateways[0].pods = nil
		},
		func(*rand.Rand) { s.plane.Paused = !s.plane.Paused },
		func(*rand.Rand) { s.plane.Status = v1alpha1.RoutingPlaneStatus{} },
		func(r *rand.Rand) {
			for _, p := range append(s.gateways[0].pods, s.stargate.pods...) {
				p.stuck = p.terminating && r.IntN(2) == 0
			}
		},
		func(*rand.Rand) {
			s.stargate.hold = map[string]string{"": "is paused", "is paused": ""}[s.stargate.hold]
		},
	}
}

// heal ends what people did and what would keep the site from its desired end.
func (s *site) heal() {
	s.configure(affine("a"), affine("b"))
	s.stargate.change(func(to *template) { to.image = "router:0.22.0" })
	s.stargate.hold, s.plane.Paused, s.gateways[0].missing = "", false, false
	s.stargate.replicas, s.gateways[0].replicas = 2, 2
	s.plane.Retry += "again"
	for _, p := range append(s.gateways[0].pods, s.stargate.pods...) {
		p.stuck = false
	}
}

func BenchmarkMake(b *testing.B) {
	for _, models := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("models=%d", models), func(b *testing.B) {
			var all []v1alpha1.Model
			for i := range models {
				all = append(all, affine(fmt.Sprintf("org/model-%05d-instruct", i)))
			}
			s := newSite(all...)
			s.settle(b)
			world := s.world()
			b.ReportAllocs()
			for b.Loop() {
				if plan, err := Make(world); err != nil || len(plan.Steps) != 0 {
					b.Fatal(err, plan.Steps)
				}
			}
		})
	}
}

func TestARivalIsGivenWayToAfterThreeTakings(t *testing.T) {
	s := newSite(plain("a"))
	s.settle(t)
	w := s.world()
	w.Stargate.Given, w.Stargate.Taken, w.Stargate.TakenBack = w.Stargate.Template.Revision, 3, s.now
	w.Stargate.Template.Revision, w.Stargate.Template.Touched = "", false
	w.Stargate.Rivals = []Rival{{Manager: "argocd", Field: "spec"}}

	plan, err := Make(w)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Steps) > 0 {
		t.Errorf("goes on fighting: %+v", plan.Steps)
	}
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonFieldContested)
	if c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionStalled); !strings.Contains(c.Message, `field manager "argocd"`) {
		t.Errorf("who it is is missing: %s", c.Message)
	}
	if want := s.now.Add(shortestTruce); !plan.Requeue.Equal(want) {
		t.Errorf("looks again at %s, want %s", plan.Requeue, want)
	}

	for name, change := range map[string]func(){
		"after the truce":         func() { w.Now = plan.Requeue },
		"after fewer takings":     func() { w.Stargate.Taken = 2 },
		"after a longer truce":    func() { w.Stargate.Taken, w.Now = 40, s.now.Add(longestTruce) },
		"once somebody asks":      func() { w.Plane.Retry = "rival is gone" },
		"in a new process":        func() { w.Stargate.Given, w.Stargate.Taken = "", 0 },
		"on the way out, however": func() { w.Plane.Deleted = s.now },
	} {
		before := *w
		change()
		plan, err := Make(w)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Steps) == 0 {
			t.Errorf("%s: nothing is done: %v", name, plan.Notes)
		}
		*w = before
	}
}

func TestARevisionThatFailedAndThenComesUpAfterAllIsGood(t *testing.T) {
	s := newSite(plain("a"))
	s.settle(t)
	s.refuses = poisoned(2, "a")
	models := fleet(1, 2)
	models[0].LastClusterAffinity = nil
	s.configure(models...)
	for range 100 { // until the verdict, but no further: the plane is paused by then
		plan := s.pass(t)
		if meta.IsStatusConditionTrue(plan.Conditions, v1alpha1.ConditionStalled) {
			break
		}
		s.plane.Paused = s.stargate.template.revision != "" && len(s.failures) == 0 && s.stargate.number > 2
		for _, w := range s.workloads() {
			if moves := s.moves(w); len(moves) > 0 {
				moves[0]()
			}
		}
		s.now = s.now.Add(time.Second)
	}
	if len(s.failures) == 0 {
		t.Fatalf("nothing failed\n%s", s.describe())
	}
	s.refuses = nil // what Stargate missed is there now
	for _, p := range s.stargate.pods {
		p.restarts = 0
	}
	s.settle(t)
	s.plane.Paused = false
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	if s.runs()["a"] != 2 {
		t.Errorf("runs %v", s.runs())
	}
}

func TestARetryIsNotJudgedByExitsFromBeforeIt(t *testing.T) {
	for _, later := range []time.Duration{time.Minute, 500 * time.Millisecond} { // of an exit, the second is known
		s := newSite(plain("a"))
		s.refuses = func(Revision) bool { return true } // a node without something that Stargate needs
		wantCondition(t, s.settle(t), v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)

		for _, p := range s.stargate.pods {
			p.exited = s.now.Truncate(time.Second).Add(time.Second)
		}
		s.now = s.now.Truncate(time.Second).Add(time.Second + later)
		s.plane.Retry = "please"
		s.pass(t)
		plan := s.pass(t)
		if meta.IsStatusConditionTrue(plan.Conditions, v1alpha1.ConditionStalled) {
			t.Fatalf("after %s, judged before anything was tried: %v", later, plan.Notes)
		}
		wantCondition(t, s.settle(t), v1alpha1.ConditionStalled, "True", ReasonRevisionFailed) // exits once more

		s.now = s.now.Add(time.Minute)
		s.refuses, s.plane.Retry = nil, "again, please"
		wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	}
}

func TestAPlaneThatComesFromABackupWaitsForItsPoliciesBeforeItTakesFlagsAway(t *testing.T) {
	s := newSite(affine("a"))
	s.settle(t)
	s.reset()
	s.plane.Status = v1alpha1.RoutingPlaneStatus{}
	s.appeared = s.now
	policies := s.config
	s.configure() // they are still to come
	s.watch = func(plan *Plan) {
		if plan.Stage == v1alpha1.StageWithdrawFlags {
			t.Errorf("withdraws what is only not asked for yet: %v", plan.Notes)
		}
	}
	for range 3 {
		s.now = s.now.Add(time.Second)
		s.pass(t)
	}
	s.config = policies
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 0, 0)

	s.watch = nil
	s.configure() // they are not to come
	s.appeared = s.now
	if plan := s.settle(t); plan.Flags.Desired != 0 || len(s.revisions[s.stargate.template.revision].Flags) > 0 {
		t.Errorf("flags %+v\n%s", plan.Flags, s.describe())
	}
}

func TestAFileThatAnotherPlaneLeftIsNoEmergency(t *testing.T) {
	s := newSite(affine("a"))
	for _, p := range s.stargate.pods {
		p.ready = true // with a file of somebody else's where the plane's own would be
	}
	plan := s.pass(t)
	if len(plan.Steps) > 0 || plan.Waiting == nil {
		t.Errorf("does not wait for the quiet period: %v", plan.Notes)
	}
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonQuietPeriod)
}

func TestARetryGivesAPodThatHangsTheWholeDeadlineAnew(t *testing.T) {
	s := newSite(plain("a"))
	s.refuses = func(Revision) bool { return true }
	s.blind = func(w *World) { // it runs and waits for something, and does not exit
		for i := range w.Stargate.Pods {
			w.Stargate.Pods[i].Started, w.Stargate.Pods[i].Crash = true, nil
		}
	}
	wantCondition(t, s.settle(t), v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)

	s.now = s.now.Add(time.Minute)
	s.plane.Retry = "please"
	asked := s.now
	for range 3 {
		if plan := s.pass(t); meta.IsStatusConditionTrue(plan.Conditions, v1alpha1.ConditionStalled) {
			t.Fatalf("judged before anything was tried: %v", plan.Notes)
		}
	}
	wantCondition(t, s.settle(t), v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
	if took := s.now.Sub(asked); took < s.plane.ProgressDeadline {
		t.Errorf("judged after %s, and the deadline is %s", took, s.plane.ProgressDeadline)
	}
}
