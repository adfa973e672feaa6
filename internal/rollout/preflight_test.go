package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
)

// preflightWeather is what preflight pods meet.
type preflightWeather struct {
	problem string // no pod can be made
	quota   string // the API server refuses to make one
	pending bool   // no node takes them
	exits   bool   // they exit whatever the file: they lack something
	evicted bool   // nodes throw them out

	refusal     *PreflightRefusal
	tries, made int
}

func (s *site) startPreflight(t testing.TB, step Step) {
	if _, ok := s.revisions[step.Revision]; !ok {
		t.Fatalf("a preflight of revision %s, which does not exist", step.Revision)
	}
	if s.plane.Paused {
		t.Fatalf("makes a pod while the plane is paused")
	}
	made := s.stargate.template
	made.revision = step.Revision
	name := fmt.Sprintf("preflight of %s in %s%s%s", step.Revision, made.image, made.path, made.foreign)
	if slices.ContainsFunc(s.preflights, func(p *pod) bool { return p.name == name }) {
		t.Fatalf("%s is there already", name)
	}
	s.preflight.tries++
	if s.preflight.quota != "" {
		r := &PreflightRefusal{Revision: step.Revision, Template: step.Workload.Template.Foreign, First: s.now, Last: s.now, Message: s.preflight.quota}
		if was := s.preflight.refusal; was != nil && was.Revision == r.Revision {
			r.First = was.First
		}
		s.preflight.refusal = r
		return
	}
	s.preflight.refusal = nil
	s.preflight.made++
	s.preflights = append(s.preflights, &pod{name: name, template: made, created: s.now})
}

func (s *site) preflightMoves() (moves []func()) {
	for _, p := range s.preflights {
		switch {
		case p.terminating:
			moves = append(moves, func() { s.preflights = slices.DeleteFunc(s.preflights, func(o *pod) bool { return o == p }) })
		case p.ready || s.preflight.pending || s.preflight.evicted || p.restarts > 0:
		case s.starts(s.stargate, p.template) && !s.preflight.exits:
			moves = append(moves, func() { p.ready = true })
		case s.preflight.exits || s.exists(p.template.revision):
			moves = append(moves, func() { p.restarts = crashLoop })
		}
	}
	return moves
}

func (s *site) exists(revision string) bool {
	_, there := s.revisions[revision]
	return there
}

func (s *site) observePreflights() Preflight {
	seen := Preflight{Problem: s.preflight.problem, Refusal: s.preflight.refusal}
	for _, p := range s.preflights {
		t := p.template
		observed := PreflightPod{Pod: Pod{Name: p.name, UID: p.name, Template: s.read(s.stargate, t), Created: p.created, Terminating: p.terminating,
			Started: p.ready || p.restarts > 0}, Made: t.image + t.path + t.foreign, Loaded: p.ready}
		switch {
		case p.restarts > 0:
			observed.Crash = &Crash{Container: "router", Restarts: p.restarts, Message: "bad file"}
		case s.preflight.pending:
			observed.Waiting = "Unschedulable"
		case s.preflight.evicted:
			observed.Ended = "Evicted"
		}
		seen.Pods = append(seen.Pods, observed)
	}
	slices.SortFunc(seen.Pods, func(a, b PreflightPod) int { return strings.Compare(a.Name, b.Name) })
	return seen
}

// preflighted is a site with a settled plane whose changes go through a preflight.
func preflighted(t *testing.T, kind string, models ...v1alpha1.Model) *site {
	t.Helper()
	s := newSite(models...)
	s.stargate.kind = kind
	s.settle(t)
	s.plane.Preflight = true
	s.settle(t)
	s.reset()
	return s
}

func tuned(name string, queued int64) v1alpha1.Model {
	m := affine(name)
	m.LastClusterAffinity = nil
	m.MaxQueued = &queued
	return m
}

func kinds(t *testing.T, test func(t *testing.T, kind string)) {
	for _, kind := range []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

func TestAFileIsLoadedByAThrowawayPodBeforeAnyPodIsReplaced(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		s := preflighted(t, kind, plain("a"))
		s.configure(tuned("a", 3))
		s.plane.QuietPeriod = 0
		plan := s.pass(t)
		wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonPreflight)
		wantRollouts(t, s, 0, 0)
		if len(s.preflights) != 1 {
			t.Fatalf("there are %d preflight pods", len(s.preflights))
		}
		loads := s.preflights[0].template.revision
		s.pass(t)
		wantRollouts(t, s, 0, 0)
		s.preflights[0].ready = true
		s.pass(t)
		wantRollouts(t, s, 1, 0)
		if got := s.stargate.template.revision; got != loads {
			t.Errorf("the router gets %s, and the preflight was of %s", got, loads)
		}
		wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
		wantRollouts(t, s, 1, 0)
		if len(s.preflights) != 0 || s.preflight.made != 1 {
			t.Errorf("%d preflight pods are left of %d", len(s.preflights), s.preflight.made)
		}
	})
}

func TestEveryWaveGoesThroughAPreflight(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"), plain("b"))
	s.plane.Waves = []intstr.IntOrString{intstr.FromInt32(1)}
	s.configure(affine("a"), affine("b"))
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 3, 1)
	if s.preflight.made != 3 {
		t.Errorf("%d preflight pods for the base and two waves", s.preflight.made)
	}
}

func TestARefusedFileCostsNoReplica(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		s := preflighted(t, kind, plain("a"), plain("b"))
		before := s.stargate.names
		s.refuses = func(r Revision) bool { return strings.Contains(r.Data[render.LBConfigKey], `"max_queued":3`) }
		s.configure(tuned("a", 3), plain("b"))
		plan := s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
		if message := conditionMessage(plan, v1alpha1.ConditionStalled); !strings.Contains(message, "bad file") || !strings.Contains(message, "preflight") {
			t.Errorf("the message is %q", message)
		}
		wantRollouts(t, s, 0, 0)
		if s.stargate.names != before {
			t.Errorf("%d pods were replaced", s.stargate.names-before)
		}
		if len(s.preflights) != 0 || s.preflight.made != 2 {
			t.Errorf("%d preflight pods are left of %d: the candidate and the comparison", len(s.preflights), s.preflight.made)
		}

		// Nothing is asked twice (I5, I6), until somebody changes it.
		s.now = s.now.Add(time.Hour)
		if plan := s.pass(t); len(plan.Steps) > 0 {
			t.Errorf("plans %+v", plan.Steps)
		}
		s.configure(tuned("a", 4), plain("b"))
		wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
		wantRollouts(t, s, 1, 0)
	})
}

func TestASingleExitIsNoAnswer(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.plane.QuietPeriod = 0
	s.configure(tuned("a", 3))
	s.pass(t)
	s.preflights[0].restarts = crashLoop - 1
	wantCondition(t, s.pass(t), v1alpha1.ConditionReconciling, "True", ReasonPreflight)
	wantRollouts(t, s, 0, 0)
	if len(s.preflights) != 1 {
		t.Errorf("%d preflight pods: compares already", len(s.preflights))
	}
	s.preflights[0].ready = true // it has loaded the file, whatever it did before and does next
	s.preflights[0].restarts = crashLoop + 1
	s.pass(t)
	wantRollouts(t, s, 1, 0)
}

func TestAComparisonThatIsNotToBeHadIsWaitedForOnceMore(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.plane.QuietPeriod = 0
	s.configure(tuned("a", 3))
	s.pass(t)
	s.preflights[0].restarts = crashLoop
	s.preflight.pending = true
	compares := s.now
	for s.stargate.rollouts == 0 && s.now.Sub(compares) < time.Hour {
		s.pass(t)
		s.now = s.now.Add(time.Second)
	}
	if waited := s.now.Sub(compares); waited < s.plane.ProgressDeadline || waited > s.plane.ProgressDeadline+time.Minute {
		t.Errorf("goes without after %s", waited)
	}
	if said := strings.Join(s.log, "\n"); !strings.Contains(said, "no comparison with the last good one") {
		t.Errorf("does not say why: %s", said)
	}
}

func TestARetryGoesThroughThePreflightAgain(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	bad := true
	s.refuses = func(r Revision) bool { return bad && strings.Contains(r.Data[render.LBConfigKey], `"max_queued":3`) }
	s.configure(tuned("a", 3))
	s.settle(t)
	made := s.preflight.made
	bad, s.plane.Retry = false, "now"
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 1, 0)
	if s.preflight.made != made+1 {
		t.Errorf("%d preflight pods after the retry", s.preflight.made-made)
	}
}

// A pod of the attempt that failed, which the operator was killed before deleting, says nothing about another attempt.
func TestARetryIsNotJudgedByThePreflightPodFromBeforeIt(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.plane.QuietPeriod = 0
	bad := true
	s.refuses = func(r Revision) bool { return bad && strings.Contains(r.Data[render.LBConfigKey], `"max_queued":3`) }
	s.configure(tuned("a", 3))
	for len(s.failures) == 0 {
		s.pass(t)
		for _, p := range s.preflights {
			p.terminating = false
		}
		for _, move := range s.preflightMoves() {
			move()
		}
		s.now = s.now.Add(time.Second)
	}
	made := s.preflight.made
	bad, s.plane.Retry = false, "now"
	wantCondition(t, s.pass(t), v1alpha1.ConditionReconciling, "True", ReasonPreflight)
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 1, 0)
	if s.preflight.made != made+1 {
		t.Errorf("%d preflight pods after the retry", s.preflight.made-made)
	}
}

// The status may tell of an earlier failure than the revision does, where the operator was killed between the two.
func TestAFailureOfTheLastAttemptStandsWhateverWasRecordedBefore(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.refuses = func(r Revision) bool { return strings.Contains(r.Data[render.LBConfigKey], `"max_queued":3`) }
	s.configure(tuned("a", 3))
	s.settle(t)
	before := s.plane.Status
	s.plane.Retry = "now"
	s.settle(t)
	made := s.preflight.made
	s.plane.Status = before
	wantCondition(t, s.settle(t), v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
	if s.preflight.made != made {
		t.Error("tries again what failed after the retry")
	}
}

// The operator was killed between deleting a revision that nobody wanted any more and deleting its preflight pod; then
// somebody wants it again.
func TestAPreflightPodWhoseRevisionIsGoneIsNoAnswer(t *testing.T) {
	for name, fares := range map[string]func(*pod){
		"it exits":            func(p *pod) { p.restarts = crashLoop },
		"it waits for a file": func(*pod) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
			s.plane.QuietPeriod = 0
			s.configure(tuned("a", 3))
			s.pass(t)
			asked := s.preflights[0]
			fares(asked)
			control := *asked
			control.name, control.template.revision, control.ready, control.restarts = "control", s.stargate.template.revision, true, 0
			s.preflights = append(s.preflights, &control)
			delete(s.revisions, asked.template.revision)
			s.pass(t)
			wantRollouts(t, s, 0, 0)
			if !asked.terminating {
				t.Error("the pod stays")
			}
			wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
			wantRollouts(t, s, 1, 0)
			if s.preflight.made != 2 || strings.Contains(strings.Join(s.log, "\n"), "without a preflight") {
				t.Errorf("%d preflight pods were made\n%s", s.preflight.made, strings.Join(s.log, "\n"))
			}
		})
	}
}

func TestARefusedWaveCostsNoReplica(t *testing.T) {
	s := preflighted(t, v1alpha1.KindStatefulSet, plain("a"), plain("b"))
	s.bad = "b"
	s.plane.Waves = []intstr.IntOrString{intstr.FromString("100%")}
	s.configure(affine("a"), affine("b"))
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
	wantRollouts(t, s, 1, 1) // the base
	if len(s.preflights) != 0 {
		t.Errorf("%d preflight pods are left", len(s.preflights))
	}
}

// What gives no answer holds a change up for the progress deadline at most.
func TestAPreflightThatGivesNoAnswerIsGoneWithout(t *testing.T) {
	for name, test := range map[string]struct {
		weather preflightWeather
		waits   bool
		says    string
	}{
		"no pod can be made of the template":      {preflightWeather{problem: "volume data is the claim data"}, false, "volume data is the claim data"},
		"the pod cannot be scheduled":             {preflightWeather{pending: true}, true, "Unschedulable"},
		"the API server refuses the pod":          {preflightWeather{quota: "exceeded quota"}, true, "exceeded quota"},
		"the pod is evicted":                      {preflightWeather{evicted: true}, false, "Evicted"},
		"it exits, and so does the last good one": {preflightWeather{exits: true}, false, "says nothing about the file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
			s.preflight = test.weather
			start := s.now
			s.configure(tuned("a", 3))
			for s.stargate.rollouts == 0 {
				plan := s.pass(t)
				for _, move := range s.moves(s.stargate) {
					move()
				}
				if s.now = s.now.Add(time.Second); s.now.Sub(start) > time.Hour {
					t.Fatalf("waits for ever: %v", plan.Notes)
				}
			}
			if took := s.now.Sub(start); (took >= s.plane.ProgressDeadline) != test.waits {
				t.Errorf("the rollout began after %s", took)
			}
			if !strings.Contains(strings.Join(s.log, "\n"), "without a preflight") || !strings.Contains(strings.Join(s.log, "\n"), test.says) {
				t.Errorf("does not say why: %s", strings.Join(s.log, "\n"))
			}
			wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
			wantRollouts(t, s, 1, 0)
			if len(s.preflights) != 0 {
				t.Errorf("%d preflight pods are left", len(s.preflights))
			}
		})
	}
}

func TestARefusedPodIsAskedForAgainWhenThereIsRoom(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.preflight.quota = "exceeded quota"
	s.configure(tuned("a", 3))
	for range 30 {
		s.pass(t)
		s.now = s.now.Add(time.Second)
	}
	if s.preflight.tries != 1 {
		t.Errorf("asked %d times within half a minute", s.preflight.tries)
	}
	s.preflight.quota = ""
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	if s.preflight.made != 1 || strings.Contains(strings.Join(s.log, "\n"), "without a preflight") {
		t.Errorf("made %d; %s", s.preflight.made, strings.Join(s.log, "\n"))
	}
}

func TestWhatCannotWaitGoesWithoutAPreflight(t *testing.T) {
	for name, urge := range map[string]func(*site){
		"a withdrawal": func(s *site) { s.configure(plain("a")) },
		"a file that the image would refuse": func(s *site) {
			s.stargate.change(func(to *template) { to.image = "router:0.14.1" })
		},
		"pods that exit": func(s *site) {
			s.stargate.pods[0].ready, s.stargate.pods[0].restarts = false, crashLoop
			s.configure(affine("a"), plain("b"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := preflighted(t, v1alpha1.KindDeployment, affine("a"))
			s.preflight.pending = true
			urge(s)
			rollouts := s.stargate.rollouts
			s.pass(t)
			if s.stargate.rollouts != rollouts+1 || s.preflight.made != 0 {
				t.Errorf("%d rollouts, %d preflight pods\n%s", s.stargate.rollouts-rollouts, s.preflight.made, s.describe())
			}
		})
	}
}

func TestAPreflightPodThatIsNoLongerNeededGoes(t *testing.T) {
	for name, change := range map[string]func(*site){
		"the setting is turned off":     func(s *site) { s.plane.Preflight = false },
		"the plane is deleted":          func(s *site) { s.plane.Deleted = s.now },
		"the plane is paused":           func(s *site) { s.plane.Paused = true },
		"another file is wanted":        func(s *site) { s.configure(tuned("a", 5)) },
		"the change is taken back":      func(s *site) { s.configure(plain("a")) },
		"another image is rolled out":   func(s *site) { s.stargate.change(func(to *template) { to.image = "router:0.22.1" }) },
		"the workload is not there any": func(s *site) { s.stargate.missing = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
			s.plane.QuietPeriod = 0
			s.configure(tuned("a", 3))
			s.pass(t)
			if len(s.preflights) != 1 {
				t.Fatalf("there are %d preflight pods", len(s.preflights))
			}
			old := s.preflights[0]
			change(s)
			s.pass(t)
			if !old.terminating {
				t.Errorf("it stays\n%s", s.describe())
			}
			again, err := Make(s.world())
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(again.Steps, func(s Step) bool { return s.Kind == StepDeletePreflight && s.Pod.Name == old.name }) {
				t.Error("it is deleted twice")
			}
		})
	}
}

func TestAnotherImageIsPreflightedAnew(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.plane.QuietPeriod = 0
	s.configure(tuned("a", 3))
	s.pass(t)
	old := s.preflights[0]
	old.ready = true
	s.stargate.change(func(to *template) { to.image = "router:0.22.1" })
	for !s.observe(s.stargate).RolledOut || len(s.stargate.pods) > s.stargate.replicas { // somebody else's rollout, while nobody looks
		s.moves(s.stargate)[0]()
	}
	s.reset()
	s.pass(t)
	wantRollouts(t, s, 0, 0)
	if len(s.preflights) != 2 || !old.terminating || s.preflights[1].template.image != "router:0.22.1" {
		t.Errorf("the preflight pods are not those of the old image, which goes, and of the new one")
	}
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	if s.preflight.made != 2 {
		t.Errorf("%d preflight pods for two images", s.preflight.made)
	}

	// What the old image's pods have loaded is not known of the new one's.
	s.stargate.change(func(to *template) { to.image = "router:0.22.2" })
	s.settle(t)
	s.configure(plain("a"))
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	if s.preflight.made != 3 {
		t.Errorf("%d preflight pods after the change back", s.preflight.made)
	}
}

func TestAFileThatStargateDoesNotReadIsNotPreflighted(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.stargate.change(func(to *template) { to.path = "/etc/llm-request-router/lb-config.json" })
	s.settle(t)
	s.reset()
	s.configure(tuned("a", 3))
	s.settle(t)
	wantRollouts(t, s, 1, 0)
	if s.preflight.tries != 0 {
		t.Errorf("%d preflight pods", s.preflight.tries)
	}
}

func TestAPlaneSaysThatThePreflightHasNoEffect(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.preflight.problem = "volume data is the claim data"
	if plan := s.pass(t); len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "spec.rollout.preflight has no effect") || len(plan.Steps) > 0 {
		t.Errorf("warnings %q, steps %v", plan.Warnings, plan.Steps)
	}
	s.plane.Preflight = false
	if plan := s.pass(t); len(plan.Warnings) != 0 {
		t.Errorf("warns of what is not asked for: %q", plan.Warnings)
	}
}

// What is known of preflight pods is put to use as far as it goes, and no further.
func TestAFailureTakesAComparisonOfTheSameKind(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *World, candidate, control *PreflightPod)
		fails  bool
	}{
		"the last good file is loaded where the new one is refused": {func(*World, *PreflightPod, *PreflightPod) {}, true},
		"the comparison is still to load":                           {func(_ *World, _, control *PreflightPod) { control.Loaded = false }, false},
		"the comparison is of another template":                     {func(_ *World, _, control *PreflightPod) { control.Made = "other" }, false},
		"the candidate is of another template":                      {func(_ *World, candidate, _ *PreflightPod) { candidate.Made = "other" }, false},
		"the candidate exited once":                                 {func(_ *World, candidate, _ *PreflightPod) { candidate.Crash.Restarts = 0 }, false},
		"the candidate has loaded and then exited":                  {func(_ *World, candidate, _ *PreflightPod) { candidate.Loaded = true }, false},
		"the candidate was evicted":                                 {func(_ *World, candidate, _ *PreflightPod) { candidate.Ended = "Evicted" }, false},
		"the candidate is being ended":                              {func(_ *World, candidate, _ *PreflightPod) { candidate.Terminating = true }, false},
		"the setting is off":                                        {func(w *World, _, _ *PreflightPod) { w.Plane.Preflight = false }, false},
		"it is known already": {func(w *World, candidate, _ *PreflightPod) {
			record := w.Revisions[candidate.Revision].Records[w.Stargate.Key()]
			record.Failed, record.Message = w.Now, "bad file"
			w.Revisions[candidate.Revision].Records[w.Stargate.Key()] = record
		}, false},
		"the revision is gone": {func(w *World, candidate, _ *PreflightPod) { delete(w.Revisions, candidate.Revision) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
			s.plane.QuietPeriod = 0
			s.configure(tuned("a", 3))
			plan := s.pass(t)
			ensure := plan.Steps[0]
			if ensure.Kind != StepEnsureRevision || ensure.Record.Change == "" || !ensure.Record.Applied.IsZero() {
				t.Errorf("the revision is made with %+v", ensure.Record)
			}
			w := s.world()
			candidate := w.Preflight.Pods[0]
			control := candidate
			control.Name, control.Revision, control.Loaded = "control", s.stargate.template.revision, true
			candidate.Started, candidate.Crash = true, &Crash{Container: "router", Restarts: crashLoop, Message: "bad file"}
			test.change(w, &candidate, &control)
			w.Preflight.Pods = []PreflightPod{candidate, control}
			plan, err := Make(w)
			if err != nil {
				t.Fatal(err)
			}
			fails := slices.ContainsFunc(plan.Steps, func(s Step) bool { return s.Kind == StepRecord && !s.Record.Failed.IsZero() })
			if fails != test.fails {
				t.Errorf("fails: %v; %v", fails, plan.Notes)
			}
		})
	}
}

func TestALogIsReadAgainSoon(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	s.plane.QuietPeriod = 0
	s.configure(tuned("a", 3))
	s.pass(t)
	s.preflights[0].restarts = 1
	if plan := s.pass(t); plan.Requeue.After(s.now.Add(preflightPoll)) || plan.Requeue.IsZero() {
		t.Errorf("looks again at %s, in %s", plan.Requeue, plan.Requeue.Sub(s.now))
	}
}

func TestWhatStargatesOwnPodsHaveLoadedIsNotPreflighted(t *testing.T) {
	s := preflighted(t, v1alpha1.KindDeployment, plain("a"))
	first := s.config
	s.configure(tuned("a", 3))
	s.settle(t)
	s.configure(first.Models...)
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 2, 0)
	if s.preflight.made != 1 {
		t.Errorf("%d preflight pods for a change and back", s.preflight.made)
	}
}

// TestPreflightsSurviveChaos walks at random through passes, moves, weather and people, and then lets it settle.
func TestPreflightsSurviveChaos(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			kind := []string{v1alpha1.KindDeployment, v1alpha1.KindStatefulSet}[seed%2]
			s := preflighted(t, kind, plain("a"), plain("b"))
			s.refuses = func(r Revision) bool { return strings.Contains(r.Data[render.LBConfigKey], `"max_queued":3`) }
			queued := int64(10)
			random := rand.New(rand.NewPCG(seed, 7))
			s.wander(t, random, 300, []func(*rand.Rand){
				func(*rand.Rand) { queued++; s.configure(tuned("a", queued), plain("b")) },
				func(*rand.Rand) { s.configure(tuned("a", 3), plain("b")) },
				func(*rand.Rand) { s.configure(affine("a"), affine("b")) },
				func(*rand.Rand) { s.plane.Preflight = !s.plane.Preflight },
				func(*rand.Rand) { s.plane.Paused = !s.plane.Paused },
				func(r *rand.Rand) { s.preflight.pending = r.IntN(2) > 0 },
				func(r *rand.Rand) { s.preflight.exits = r.IntN(2) > 0 },
				func(r *rand.Rand) { s.preflight.quota = []string{"", "exceeded quota"}[r.IntN(2)] },
				func(*rand.Rand) { s.stargate.change(func(to *template) { to.foreign += "x" }) },
				func(*rand.Rand) { s.plane.Status = v1alpha1.RoutingPlaneStatus{} },
				func(*rand.Rand) { s.preflights = nil }, // somebody deletes them by force
			})
			s.preflight = preflightWeather{}
			s.plane.Paused, s.plane.Preflight = false, true
			queued++
			s.configure(tuned("a", queued), affine("b"))
			wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
			if len(s.preflights) != 0 {
				t.Errorf("%d preflight pods are left", len(s.preflights))
			}
		})
	}
}

func conditionMessage(plan *Plan, kind string) string {
	for _, c := range plan.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

// preflightKey is the part of the preflight pods in the identity of a state.
func (s *site) preflightKey(name func(string) string) string {
	var pods []string
	key := s.stargate.kind + "/" + s.stargate.name
	for _, p := range s.preflights {
		last := p.created.After(s.revisions[p.template.revision].Records[key].Failed) // of all attempts
		for _, r := range s.plane.Status.Records {
			last = last && (r.Workload != key || r.Revision != p.template.revision || r.FailedAt == nil || p.created.After(r.FailedAt.Time))
		}
		pods = append(pods, fmt.Sprint(name(p.template.revision), p.template.image, p.template.foreign, p.ready, p.terminating, p.restarts, last))
	}
	slices.Sort(pods)
	return strings.Join(pods, ",")
}

// checkPreflight asserts that Stargate is given only what a preflight pod, or every pod of its own, has loaded in its
// present template, but for what cannot wait: a withdrawal, a file that would be refused, or pods that exit.
func (s *site) checkPreflight(t testing.TB, step Step, on render.Flags) {
	t.Helper()
	present := s.stargate.template
	if !s.plane.Preflight || !s.endless || step.Revision == present.revision {
		return
	}
	revision := s.revisions[present.revision]
	made := present
	made.revision = step.Revision
	loaded := slices.ContainsFunc(s.preflights, func(p *pod) bool { return p.ready && p.template.same(made) })
	key, foreign := s.stargate.kind+"/"+s.stargate.name, present.image+present.path+present.foreign
	record := s.revisions[step.Revision].Records[key]
	proven := !record.Completed.IsZero() && record.Template == foreign
	for _, r := range s.plane.Status.Records {
		proven = proven || r.Workload == key && r.Revision == step.Revision && r.CompletedAt != nil && r.Template == foreign
	}
	exits := slices.ContainsFunc(s.stargate.pods, func(p *pod) bool { return p.number == s.stargate.number && !p.terminating && p.restarts > 0 })
	withdrawn := revision.Flags.Difference(on).Len() > 0
	if refused := !readable(revision.Data[render.LBConfigKey], releaseOf(present.image).Generation); !loaded && !proven && !exits && !withdrawn && !refused {
		t.Fatalf("preflight: gives %s, which no pod has loaded in the present template\n%s", step.Revision, s.describe())
	}
}

// Preflight pods linger: each may be there still, or be terminating, or be gone, whatever else goes on, so that the states
// multiply with each of them. Nearly all of these are the same to everybody, and are not gone through: a pod in
// termination goes only where that makes a difference (matters), and of one that has loaded its file it makes none
// whether its deletion was asked for yet (deletesLoaded). That no plan is lost by it is tested beside explore.
func TestEveryReachableStateWithPreflightsKeepsTheInvariantsAndReachesTheEnd(t *testing.T) {
	t.Parallel()
	budget := outageBudget(t)
	kinds(t, func(t *testing.T, kind string) {
		t.Parallel()
		found := explore(t, preflightedSmall(t, kind), budget, preflightedAll)
		t.Logf("explored %d states and %d transitions with up to %d outages", found.states, found.transitions, budget)
	})
}

// preflightedSmall is the small site, where every change goes through a preflight.
func preflightedSmall(t testing.TB, kind string) *site {
	s := small(t, kind)
	s.plane.Preflight = true
	return s
}

// preflightedAll is the end of a site with preflights: all flags are on, and no preflight pod is left to delete.
func preflightedAll(s *site, plan *Plan) bool {
	return done(s, plan) && !slices.ContainsFunc(s.preflights, func(p *pod) bool { return !p.terminating })
}
