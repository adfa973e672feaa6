package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/render"
)

// followed is a sampling that the site's metrics are followed for.
type followed struct {
	Sampling
	since time.Time
	// counted, of the exploration, is which of the kinds of traffic there was over the interval; empty until it is over.
	counted string
}

func (s *site) follow(samplings []Sampling) {
	before := s.followed
	s.followed = map[string]followed{}
	for _, sampling := range samplings {
		f, ok := before[sampling.Key]
		if !ok {
			f = followed{Sampling: sampling, since: s.now}
		}
		s.followed[sampling.Key] = f
	}
}

func (s *site) figures() map[string]analysis.Figures {
	all := map[string]analysis.Figures{}
	for key, f := range s.followed {
		figures := analysis.Figures{}
		switch {
		case f.counted != "":
			figures.Counts = kindsOfTraffic[f.counted]
		case s.traffic != nil:
			figures = s.traffic(f.Sampling)
		}
		figures.Since, figures.Last = f.since, s.now
		all[key] = figures
	}
	return all
}

var (
	wellBefore = analysis.Counts{Requests: 10_000, Errors: 10}
	well       = analysis.Counts{New: 500, Returning: 2000, Primary: 1900, Requests: 10_000, Errors: 12}
	noHints    = analysis.Counts{New: 2000, Stale: 490, Returning: 10, Primary: 10, Requests: 10_000, Errors: 12}
	failing    = analysis.Counts{New: 500, Returning: 2000, Primary: 1900, Requests: 10_000, Errors: 300}
	quietly    = analysis.Counts{New: 5, Returning: 2, Primary: 2, Requests: 30}
)

// kindsOfTraffic that the exploration lets there be, whatever was there before.
var kindsOfTraffic = map[string]analysis.Counts{"well": well, "failing": failing, "quietly": quietly}

const isBefore = "before"

// before tells whether what is followed is what there is before a wave.
func (f followed) before() bool { return strings.HasPrefix(f.Key, isBefore) }

// metricMove is something that happens to the metrics.
type metricMove struct {
	name string
	to   func(*site)
}

// metricMoves let, in an exploration, an interval end over which there was traffic of any kind, and more come where it
// was too little. Before a wave all is well.
func (s *site) metricMoves() (moves []metricMove) {
	for _, key := range slices.Sorted(maps.Keys(s.followed)) {
		f := s.followed[key]
		for _, kind := range slices.Sorted(maps.Keys(kindsOfTraffic)) {
			if f.counted == "" && (!f.before() || kind == "well") || f.counted == "quietly" && kind != f.counted {
				moves = append(moves, metricMove{kind + " " + key, func(s *site) {
					f.counted, f.since = kind, s.now.Add(-s.plane.Analysis.Interval)
					s.followed[key] = f
				}})
			}
		}
	}
	return moves
}

// metricsKey is the part of the metrics and of what they are for in the identity of a state.
func (s *site) metricsKey(name func(string) string) string {
	if s.plane.Analysis == nil {
		return ""
	}
	var b strings.Builder
	remembering := s.remembering()
	for _, key := range slices.Sorted(maps.Keys(s.followed)) {
		f := s.followed[key]
		fmt.Fprint(&b, "|", f.before(), name(f.Revision), f.counted, strings.HasSuffix(key, fmt.Sprint(remembering.Unix())))
	}
	fmt.Fprint(&b, "|", name(s.wave.revision), name(s.wave.before), s.wave.verdict, s.wave.withdrawn)
	return b.String()
}

// remembering is since when the gateways have their memory, as recorded: what is followed from before is begun anew.
func (s *site) remembering() (since time.Time) {
	for _, g := range s.gateways {
		key := g.kind + "/" + g.name
		completed := s.revisions[g.template.revision].Records[key].Completed
		for _, r := range s.plane.Status.Records {
			if r.Workload == key && r.Revision == g.template.revision && r.CompletedAt != nil && r.CompletedAt.After(completed) {
				completed = r.CompletedAt.Time
			}
		}
		if completed.After(since) {
			since = completed
		}
	}
	return since
}

// gateKey is the part of a recorded gate in the identity of a state.
func gateKey(gate *v1alpha1.GateRecord, name func(string) string) string {
	if gate == nil {
		return ""
	}
	return fmt.Sprint(" gate ", name(gate.Before), gate.PassedAt != nil, gate.Failed, gate.RequestsBefore, gate.ServerErrorsBefore)
}

// waveGiven is the last wave as the site saw it, whatever the operator has recorded of it: the revision that brought it,
// the one before, and what became of it.
type waveGiven struct {
	revision, before string
	verdict          analysis.Outcome
	withdrawn        bool
}

// retried takes the verdict back: somebody asks for another attempt.
func (w *waveGiven) retried(present string) {
	switch {
	case w.verdict != analysis.Failed:
	case w.withdrawn || present != w.revision:
		*w = waveGiven{}
	default:
		w.verdict = ""
	}
}

// checkGate asserts that what the step does is what the metrics of the last wave call for: the verdict is that of the
// traffic; no flag goes on before it, or after it was against the wave; and such a wave is withdrawn as one rollout, by
// which nothing else changes and after which nothing else is done.
func (s *site) checkGate(t testing.TB, step Step, file *lbconfig.File) {
	t.Helper()
	if s.plane.Analysis == nil || !s.endless {
		return
	}
	if step.Verdict != "" {
		counted := ""
		for _, f := range s.followed {
			if f.Revision == step.Revision && !f.before() {
				counted = f.counted
			}
		}
		want := map[string]analysis.Outcome{"well": analysis.Passed, "failing": analysis.Failed, "quietly": analysis.TooFew}[counted]
		if step.Verdict != want || want == analysis.TooFew && s.plane.Analysis.Hold || step.Record.failedByMetrics() != (want == analysis.Failed) {
			t.Fatalf("gate: judges %s %q, where traffic is %q\n%s", step.Revision, step.Verdict, counted, s.describe())
		}
	}
	if step.Kind != StepApply && step.Kind != StepLetGo {
		return
	}
	present := s.revisions[s.stargate.template.revision]
	var on render.Flags
	if file != nil {
		on = render.Flags{}.Insert(file.Flags()...)
	}
	switch {
	case file != nil && s.wave.verdict == "" && s.wave.revision != "" && on.Difference(present.Flags).Len() > 0:
		t.Fatalf("gate: switches on %v before wave %s was judged\n%s", on.Difference(present.Flags), s.wave.revision, s.describe())
	case s.wave.verdict != analysis.Failed:
	case s.wave.withdrawn:
		t.Fatalf("gate: gives %s %s after the wave that failed was withdrawn\n%s", step.Workload.Key(), step.Revision, s.describe())
	case file == nil || !on.Equal(s.revisions[s.wave.before].Flags) || !sameButFlags(file, present.File):
		t.Fatalf("gate: gives %s %s, which does not withdraw the wave that failed and it alone\n%s", step.Workload.Key(), step.Revision, s.describe())
	}
}

// sameButFlags tells whether two files differ by no more than flags.
func sameButFlags(one, other *lbconfig.File) bool {
	return one.Default == other.Default && maps.EqualFunc(one.Models, other.Models, func(a, b lbconfig.Entry) bool {
		return lbconfig.SameEntry(a.WithoutFlags(), b.WithoutFlags())
	})
}

// noteWave notes what the step, carried out, means for the last wave.
func (s *site) noteWave(step Step, was string) {
	on, flags := s.revisions[step.Revision].Flags, s.revisions[was].Flags
	switch {
	case s.plane.Analysis == nil || !s.endless:
	case step.Verdict != "":
		s.wave.verdict = step.Verdict
	case step.Kind != StepApply || step.Workload.Key() != s.stargate.kind+"/"+s.stargate.name || step.Revision == was:
	case on.Difference(flags).Len() > 0:
		s.wave = waveGiven{revision: step.Revision, before: was}
	case s.wave.verdict == analysis.Failed:
		s.wave.withdrawn = true
	case flags.Difference(on).Len() > 0:
		s.wave = waveGiven{}
	}
}

// counting counts the same in every sampling after a wave.
func counting(after analysis.Counts) func(Sampling) analysis.Figures {
	return func(s Sampling) analysis.Figures {
		if strings.HasPrefix(s.Key, isBefore) {
			return analysis.Figures{Counts: wellBefore}
		}
		return analysis.Figures{Counts: after}
	}
}

func gated(models ...v1alpha1.Model) *site {
	s := newSite(models...)
	s.plane.Analysis = analysis.SettingsOf(&v1alpha1.RolloutAnalysis{})
	s.traffic = counting(well)
	return s
}

func stalledMessage(plan *Plan) string {
	if c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionStalled); c != nil {
		return c.Message
	}
	return ""
}

func TestEachWaveIsJudgedBeforeTheNextAndBeforeReady(t *testing.T) {
	s := gated(affine("a"), affine("b"))
	s.plane.WaveInterval = 0
	start := s.now
	var judgedAt []time.Duration
	plan := s.pass(t)
	for range 3000 {
		if slices.ContainsFunc(plan.Steps, func(step Step) bool { return strings.Contains(step.Why, "passes: ") }) {
			judgedAt = append(judgedAt, s.now.Sub(start).Truncate(time.Minute))
		}
		if c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionReady); c != nil && c.Status == "True" {
			break
		}
		for _, w := range s.workloads() {
			if moves := s.moves(w); len(moves) > 0 {
				moves[0]()
			}
		}
		s.now = s.now.Add(time.Second)
		plan = s.pass(t)
	}
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	// The warm-up of 10 minutes counts the errors before the first wave, the gate of the first those before the second.
	if want := []time.Duration{15 * time.Minute, 20 * time.Minute}; !slices.Equal(judgedAt, want) {
		t.Errorf("waves passed after %v, want %v\n%s", judgedAt, want, s.describe())
	}
	wantRollouts(t, s, 3, 1)
	if len(plan.Sampling) != 0 {
		t.Errorf("a settled plane follows %+v", plan.Sampling)
	}
	if plan := s.pass(t); len(plan.Steps) != 0 {
		t.Errorf("a settled plane plans %+v", plan.Steps)
	}
}

func TestWhatIsFollowedIsTheWave(t *testing.T) {
	nested := affine("b")
	nested.RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.WaitAndWiden, LastClusterAffinity: new(true)}}}
	s := gated(affine("a"), nested, plain("c"))
	s.plane.WaveInterval = 0
	s.config.RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.WaitAndWiden, LastClusterAffinity: new(true)}}}
	seen := []string{}
	s.traffic = func(sampling Sampling) analysis.Figures {
		line := fmt.Sprintf("%.6s %v %v", sampling.Key, sampling.Subjects, sampling.Revision != "")
		if !slices.Contains(seen, line) {
			seen = append(seen, line)
		}
		return counting(well)(sampling)
	}
	s.settle(t)
	slices.Sort(seen)
	want := []string{
		"after  [{false a pulsar-wait-and-widen}] true",
		"after  [{false b pulsar-wait-and-widen} {false b wait-and-widen} {true  wait-and-widen}] true",
		"before [{false a }] false",
		"before [{false b } {false b wait-and-widen} {true  wait-and-widen}] false",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("followed:\n%s\nwant:\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}

func TestAWaveWithBadMetricsIsWithdrawnAsOneRolloutAndNotTriedAgain(t *testing.T) {
	tests := map[string]struct {
		counts analysis.Counts
		says   string
	}{
		"the hints do not arrive": {noHints, "99.6 % of 2500 classified sessions were new or stale, more than 95.0 %"},
		"server errors rise":      {failing, "3.0 % of 10000 requests ended in a 5xx, and 0.1 % of 10000 before the wave"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := gated(affine("a"), affine("b"), affine("c"))
			s.plane.Waves = []intstr.IntOrString{intstr.FromInt32(1)}
			s.traffic = func(sampling Sampling) analysis.Figures {
				if strings.HasPrefix(sampling.Key, "after") && sampling.Subjects[0].Model == "b" {
					return analysis.Figures{Counts: test.counts}
				}
				return counting(well)(sampling)
			}
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonAnalysisFailed)
			wantCondition(t, plan, v1alpha1.ConditionReady, "False", ReasonAnalysisFailed)
			wantCondition(t, plan, v1alpha1.ConditionFlagsReady, "False", ReasonAnalysisFailed)
			if message := stalledMessage(plan); !strings.Contains(message, test.says) || !strings.Contains(message, "wave 2 (b)") || !strings.Contains(message, RetryAnnotation) {
				t.Errorf("does not give the figures, the wave and the way out: %s", message)
			}
			if plan.Flags.On != 1 || plan.Flags.Desired != 3 || plan.Flags.Wave != 1 {
				t.Errorf("flags %+v, want the first wave to stay on and no other", plan.Flags)
			}
			wantRollouts(t, s, 4, 1) // base, two waves, back
			if len(plan.Sampling) != 0 {
				t.Errorf("a stalled plane follows %+v", plan.Sampling)
			}
			s.reset()
			s.now = s.now.Add(24 * time.Hour)
			s.settle(t)
			wantRollouts(t, s, 0, 0)
			s.plane.Status = v1alpha1.RoutingPlaneStatus{} // lost
			s.settle(t)
			wantRollouts(t, s, 0, 0)

			s.traffic = counting(well)
			s.plane.Retry = "please"
			plan = s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			wantRollouts(t, s, 2, 0)
			if plan.Flags.Wave != 3 {
				t.Errorf("%d waves, want 3", plan.Flags.Wave)
			}
		})
	}
}

func TestAGateThatFailedStaysSoWhateverIsLost(t *testing.T) {
	losses := map[string]func(*site){
		"the status": func(s *site) { s.plane.Status = v1alpha1.RoutingPlaneStatus{} },
		"the annotations": func(s *site) {
			for name, r := range s.revisions {
				r.Records = nil
				s.revisions[name] = r
			}
		},
		"the operator's memory": func(s *site) { s.followed = nil },
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			s := gated(affine("a"))
			s.traffic = counting(noHints)
			s.settle(t)
			s.reset()
			lose(s)
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonAnalysisFailed)
			wantRollouts(t, s, 0, 0)
		})
	}
}

func TestAWaveThatPassedIsNotJudgedAgainWhateverIsLost(t *testing.T) {
	s := gated(affine("a"))
	s.settle(t)
	s.reset()
	s.traffic = counting(noHints)
	for _, lose := range []func(){
		func() { s.followed = nil },
		func() { s.plane.Status = v1alpha1.RoutingPlaneStatus{} },
		func() {
			for name, r := range s.revisions {
				r.Records = nil
				s.revisions[name] = r
			}
		},
	} {
		lose()
		plan := s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	}
	wantRollouts(t, s, 0, 0)
}

func TestTooFewSamplesGoOnOrHoldAsSet(t *testing.T) {
	t.Run("Continue", func(t *testing.T) {
		s := gated(affine("a"))
		s.traffic = counting(quietly)
		wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	})
	t.Run("Hold, until there are enough", func(t *testing.T) {
		s := gated(affine("a"), affine("b"))
		s.plane.Analysis.Hold = true
		s.traffic = counting(quietly)
		plan := s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonAnalysis)
		wantCondition(t, plan, v1alpha1.ConditionFlagsReady, "False", ReasonAnalysis)
		if c := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionFlagsReady); !strings.Contains(c.Message, "7 sessions were classified, of the 100 that it takes") {
			t.Errorf("does not give the figures: %s", c.Message)
		}
		if plan.Flags.On != 1 {
			t.Errorf("flags %+v, want one wave", plan.Flags)
		}
		s.traffic = counting(well)
		wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	})
}

func TestAChangeWaitsForTheVerdictAndNotForMoreSamples(t *testing.T) {
	s := gated(affine("a"))
	s.plane.Analysis.Hold = true
	s.traffic = counting(quietly)
	s.untilJudging(t)
	s.configure(affine("a"), plain("c"))
	s.reset()
	s.now = s.now.Add(time.Minute)
	plan := s.pass(t)
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonAnalysis)
	wantRollouts(t, s, 0, 0)
	plan = s.settle(t) // the interval is over, and samples are too few
	wantRollouts(t, s, 1, 0)
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonAnalysis)
	// What replaced the wave is judged in its place, and what goes back is the wave and not the change.
	s.traffic = counting(noHints)
	plan = s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonAnalysisFailed)
	if file := s.revisions[s.stargate.template.revision]; file.Flags.Len() != 0 || len(file.File.Models) != 2 {
		t.Errorf("runs %s", file.Data[render.LBConfigKey])
	}
	wantRollouts(t, s, 2, 0)
}

func TestAChangeThatFailsWhileAWaveIsHeldGoesBack(t *testing.T) {
	s := gated(affine("a"))
	s.plane.Analysis.Hold = true
	s.traffic = counting(quietly)
	s.settle(t)
	s.stargate.change(func(to *template) { to.image = "router:0.22.1" }) // since the last good revision was complete
	s.settle(t)
	s.refuses = func(r Revision) bool { return strings.Contains(r.Data[render.LBConfigKey], `"poison"`) }
	s.configure(affine("a"), plain("poison"))
	s.now = s.now.Add(time.Minute)
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonRevisionFailed)
	for _, p := range s.stargate.pods {
		if !p.ready {
			t.Errorf("pod %s was left behind\n%s", p.name, s.describe())
		}
	}
}

// untilJudging lets the site go on until a wave is being judged.
func (s *site) untilJudging(t *testing.T) {
	t.Helper()
	for range 2000 {
		plan := s.pass(t)
		if slices.ContainsFunc(plan.Sampling, func(f Sampling) bool { return strings.HasPrefix(f.Key, "after") }) {
			return
		}
		for _, w := range s.workloads() {
			if moves := s.moves(w); len(moves) > 0 {
				moves[0]()
			}
		}
		s.now = s.now.Add(time.Second)
	}
	t.Fatalf("no wave is judged\n%s", s.describe())
}

func TestAWithdrawalDoesNotWaitForTheVerdict(t *testing.T) {
	s := gated(affine("a"), affine("b"))
	s.untilJudging(t)
	s.reset()
	s.configure(plain("a"), affine("b"))
	s.now = s.now.Add(time.Second)
	plan := s.pass(t)
	if plan.Stage != v1alpha1.StageWithdrawFlags || s.stargate.rollouts != 1 {
		t.Errorf("stage %s, want the flag to go at once; waits for %+v", plan.Stage, plan.Waiting)
	}
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
}

func TestWhatAWaveWithdrawalLeavesIsNotJudgedOnceTheHistoryIsGone(t *testing.T) {
	s := gated(affine("a"), affine("b"))
	s.plane.Waves = []intstr.IntOrString{intstr.FromInt32(1)}
	s.plane.HistoryLimit = 0
	s.traffic = func(sampling Sampling) analysis.Figures {
		if sampling.Subjects[0].Model == "b" && strings.HasPrefix(sampling.Key, "after") {
			return analysis.Figures{Counts: noHints}
		}
		return counting(well)(sampling)
	}
	s.settle(t)                          // b is withdrawn
	s.configure(affine("a"), plain("b")) // and not asked for any more
	s.settle(t)                          // so that its revision is deleted, and all before it
	s.traffic = counting(noHints)
	s.reset()
	for range 3 {
		s.now = s.now.Add(time.Hour)
		plan := s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
		if len(plan.Sampling) != 0 || len(s.revisions) != 2 {
			t.Errorf("follows %+v, with %d revisions", plan.Sampling, len(s.revisions))
		}
	}
	wantRollouts(t, s, 0, 0)
}

func TestPausedWithdrawsNothingAndSaysSo(t *testing.T) {
	s := gated(affine("a"))
	s.traffic = counting(noHints)
	s.untilJudging(t)
	s.plane.Paused = true
	s.reset()
	plan := s.settle(t)
	wantRollouts(t, s, 0, 0)
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonPaused)
	wantCondition(t, plan, v1alpha1.ConditionFlagsReady, "False", ReasonAnalysisFailed)
	if !strings.Contains(plan.Waiting.For, "going back") {
		t.Errorf("does not say what it would do: %s", plan.Waiting.For)
	}
	if len(plan.Sampling) != 0 {
		t.Errorf("judges again what has failed: %+v", plan.Sampling)
	}
	t.Run("and a retry judges it where it is", func(t *testing.T) {
		s := s.clone()
		s.plane.Paused, s.plane.Retry = false, "please"
		s.traffic = counting(well)
		plan := s.settle(t)
		wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
		wantRollouts(t, s, 0, 0)
		for _, record := range plan.Records {
			if gate := record.Gate; gate != nil && (gate.Failed || gate.PassedAt == nil) {
				t.Errorf("the gate is recorded as %+v", gate)
			}
		}
	})
	s.plane.Paused = false
	wantCondition(t, s.settle(t), v1alpha1.ConditionStalled, "True", ReasonAnalysisFailed)
	wantRollouts(t, s, 1, 0)
}

func TestNothingIsCountedBeforeAWaveWhilePaused(t *testing.T) {
	s := gated(affine("a"))
	s.settle(t)
	s.plane.Waves = []intstr.IntOrString{intstr.FromInt32(1)}
	s.configure(affine("a"), affine("b"), affine("c"))
	s.untilJudging(t)
	s.plane.Paused = true
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonPaused)
	if len(plan.Sampling) != 0 {
		t.Errorf("counts for a wave that does not come: %+v", plan.Sampling)
	}
}

func TestNoVerdictFallsWhileSomebodyRollsAWorkload(t *testing.T) {
	s := gated(affine("a"))
	s.traffic = counting(failing)
	s.untilJudging(t)
	s.now = s.now.Add(s.plane.Analysis.Interval)
	s.stargate.change(func(to *template) { to.image = "router:0.22.1" })
	s.reset()
	plan := s.pass(t)
	if wantCondition(t, plan, v1alpha1.ConditionReconciling, "True", ReasonRollingOut); len(plan.Steps) != 0 {
		t.Errorf("plans %+v", plan.Steps)
	}
	s.traffic = counting(well)
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 0, 0)
}

func TestARestartOfTheOperatorBeginsTheIntervalAnewAndKeepsWhatWasCountedBefore(t *testing.T) {
	s := gated(affine("a"))
	s.traffic = counting(failing)
	s.untilJudging(t)
	s.now = s.now.Add(4 * time.Minute)
	s.pass(t)
	s.followed = nil
	restarted := s.now
	s.pass(t)
	s.now = s.now.Add(4 * time.Minute)
	if plan := s.pass(t); plan.Waiting == nil || plan.Waiting.Until == nil || !plan.Waiting.Until.Time.Equal(restarted.Add(5*time.Minute)) {
		t.Errorf("waits for %+v, want the interval from the restart at %s on", plan.Waiting, restarted)
	}
	plan := s.settle(t)
	wantCondition(t, plan, v1alpha1.ConditionStalled, "True", ReasonAnalysisFailed)
	if message := stalledMessage(plan); !strings.Contains(message, "0.1 % of 10000 before the wave") {
		t.Errorf("what was counted before the wave is lost: %s", message)
	}
}

func TestARolloutOfTheGatewayBeginsTheIntervalAnew(t *testing.T) {
	s := gated(affine("a"))
	s.untilJudging(t)
	s.now = s.now.Add(4 * time.Minute)
	s.traffic = counting(noHints)
	s.pass(t)
	s.gateways[0].change(func(to *template) { to.foreign = "upgraded" })
	for range 60 { // of which every look counts sessions without hints
		for _, move := range s.moves(s.gateways[0]) {
			move()
			break
		}
		s.now = s.now.Add(time.Second)
		s.pass(t)
	}
	s.now = s.now.Add(time.Minute)
	if plan := s.pass(t); plan.Waiting == nil || plan.Waiting.Until == nil || plan.Waiting.Until.Time.Before(s.now.Add(3*time.Minute)) {
		t.Errorf("waits for %+v, want an interval from the upgrade of the gateway on", plan.Waiting)
	}
	s.traffic = counting(well)
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
}

func TestMetricsThatCannotBeReadAreAWarning(t *testing.T) {
	s := gated(affine("a"))
	s.traffic = func(Sampling) analysis.Figures {
		return analysis.Figures{Unread: []string{"pod router-1: no answer within 2s"}}
	}
	s.untilJudging(t)
	s.now = s.now.Add(time.Second)
	plan := s.pass(t)
	if len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "cannot read the metrics of pod router-1: no answer within 2s") {
		t.Errorf("warnings: %q", plan.Warnings)
	}
	s.now = s.now.Add(s.plane.Analysis.Interval)
	plan = s.pass(t) // of which nobody knows whether there will be another
	wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
	if len(plan.Warnings) != 0 {
		t.Errorf("warnings that are over: %q", plan.Warnings)
	}
}

func TestWithoutAnalysisNothingIsFollowed(t *testing.T) {
	s := newSite(affine("a"), affine("b"))
	s.traffic = func(sampling Sampling) analysis.Figures {
		t.Errorf("follows %+v", sampling)
		return analysis.Figures{}
	}
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	// Switched on later, it judges what comes and not what is there.
	s.reset()
	s.plane.Analysis = analysis.SettingsOf(&v1alpha1.RolloutAnalysis{})
	wantCondition(t, s.settle(t), v1alpha1.ConditionReady, "True", ReasonSettled)
	wantRollouts(t, s, 0, 0)
}

func TestErrorsThatAreNotJudgedAreNotWaitedFor(t *testing.T) {
	s := newSite(affine("a"))
	s.plane.WaveInterval = 0
	s.settle(t)
	s.traffic = counting(well)
	s.plane.Analysis = analysis.SettingsOf(&v1alpha1.RolloutAnalysis{MaxServerErrorIncrease: new(v1alpha1.Decimal("1"))})
	s.configure(affine("a"), affine("b"))
	started := s.now
	s.untilJudging(t)
	if took := s.now.Sub(started); took >= s.plane.Analysis.Interval {
		t.Errorf("the wave took %s", took)
	}
}

// TestNoInterleavingBreaksTheGate walks at random, with metrics that change their mind.
func TestNoInterleavingBreaksTheGate(t *testing.T) {
	walks := 200
	if testing.Short() {
		walks = 40
	}
	for seed := range walks {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(seed), 2))
			s := gated(affine("a"), plain("b"))
			s.plane.Analysis.Hold = seed%2 == 1
			if seed%3 > 0 {
				s.plane.GatewayWarmup, s.plane.WaveInterval = 0, 0
			}
			s.drains = func() bool { return random.IntN(8) == 0 }
			counts := []analysis.Counts{well, well, noHints, failing, quietly}
			everybody := append(people(s),
				func(r *rand.Rand) { s.traffic = counting(counts[r.IntN(len(counts))]) },
				func(*rand.Rand) { s.followed = nil },
				func(r *rand.Rand) { s.plane.Retry = fmt.Sprint(r.IntN(3)) },
				func(*rand.Rand) {
					on := s.plane.Analysis
					s.plane.Analysis = nil
					if on == nil {
						s.plane.Analysis = analysis.SettingsOf(&v1alpha1.RolloutAnalysis{})
					}
				})
			s.wander(t, random, 400, everybody)
			s.drains = nil
			s.heal()
			s.traffic = counting(well)
			s.plane.Retry = "healed"
			plan := s.settle(t)
			wantCondition(t, plan, v1alpha1.ConditionReady, "True", ReasonSettled)
			if t.Failed() {
				t.Log(s.describe())
			}
		})
	}
}

// judgedSmall is the small site, where every wave is judged: the interval ends when the exploration lets it.
func judgedSmall(t testing.TB, kind string, hold bool) *site {
	s := small(t, kind)
	s.plane.Analysis = analysis.SettingsOf(&v1alpha1.RolloutAnalysis{})
	s.plane.Analysis.Interval, s.plane.Analysis.Hold = 1000*time.Hour, hold
	return s
}

// judgedWell is the end of a site where waves are judged: all flags are on and no wave failed, or the one that did is
// off, those before it are on, and a person is told.
func judgedWell(s *site, plan *Plan) bool {
	if s.wave.verdict != analysis.Failed {
		return done(s, plan)
	}
	stalled := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionStalled)
	return s.wave.withdrawn && len(plan.Steps) == 0 && plan.Waiting == nil && len(plan.Sampling) == 0 &&
		stalled.Status == "True" && stalled.Reason == ReasonAnalysisFailed && int(plan.Flags.On) == s.revisions[s.wave.before].Flags.Len()
}

func TestEveryReachableStateWithGatesKeepsTheInvariantsAndReachesTheEnd(t *testing.T) {
	t.Parallel()
	budget := outageBudget(t)
	// What the operator answers by changes of its own, so that a wave that failed is no longer all that there is to do.
	changing := []string{"Helm puts an older Stargate in", "the gateway's variables are taken out", "a policy withdraws its flag", "a revision is deleted", "a flagged Stargate exits"}
	for name, hold := range map[string]bool{"too few samples go on": false, "too few samples hold": true} {
		t.Run(name, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind string) {
				t.Parallel()
				found := exploration{budget: budget, goal: judgedWell, spared: changing}.of(t, judgedSmall(t, kind, hold))
				t.Logf("explored %d states and %d transitions with up to %d outages", found.states, found.transitions, budget)
			})
		})
	}
}
