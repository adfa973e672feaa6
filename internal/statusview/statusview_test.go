package statusview_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/statusview"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

type condition struct {
	kind, status, reason, message string
}

func conditions(generation int64, list ...condition) (all []metav1.Condition) {
	for _, c := range list {
		all = append(all, metav1.Condition{Type: c.kind, Status: metav1.ConditionStatus(c.status), Reason: c.reason, Message: c.message, ObservedGeneration: generation})
	}
	return all
}

// snapshot of a plane of generation 2 with conditions.
func snapshot(list ...condition) *statusview.Snapshot {
	p := &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llm", Generation: 2}}
	p.Status.ObservedGeneration = 2
	p.Status.Conditions = conditions(2, list...)
	return &statusview.Snapshot{Plane: p}
}

func policy(name string, generation, observed int64, list ...condition) v1alpha1.RoutingPolicy {
	p := v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: name, Generation: generation}}
	p.Status.ObservedGeneration = observed
	p.Status.Conditions = conditions(observed, list...)
	p.Status.Summary = "1/1 models"
	return p
}

var (
	ready    = condition{"Ready", "True", "Settled", "all in effect"}
	rolling  = condition{"Ready", "False", "RollingOut", "1 of 3 pods"}
	accepted = condition{"Accepted", "True", "Accepted", ""}
)

func TestAPipelineGoesOnUntilThereIsAnOutcome(t *testing.T) {
	with := func(s *statusview.Snapshot, change func(*statusview.Snapshot)) *statusview.Snapshot {
		change(s)
		return s
	}
	pin := func(s *statusview.Snapshot) { s.Plane.Spec.Rollout.Pin = "llm-stargate-x" }
	pause := func(s *statusview.Snapshot) { s.Plane.Spec.Rollout.Paused = true }
	retried := func(observed, asked string) func(*statusview.Snapshot) {
		return func(s *statusview.Snapshot) {
			s.Plane.Annotations = map[string]string{"routing.nvcf.io/retry": asked}
			s.Plane.Status.ObservedRetry = observed
		}
	}
	carries := func(n int32, partial bool) func(*statusview.Snapshot) {
		return func(s *statusview.Snapshot) { s.Plane.Status.Policies, s.Partial = n, partial }
	}
	policies := func(list ...v1alpha1.RoutingPolicy) func(*statusview.Snapshot) {
		return func(s *statusview.Snapshot) { s.Policies = list }
	}
	for name, test := range map[string]struct {
		snapshot *statusview.Snapshot
		want     statusview.Outcome
		message  string
	}{
		"a new plane is pending": {&statusview.Snapshot{Plane: &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: v1alpha1.RoutingPlaneStatus{ObservedGeneration: -1}}},
			statusview.Pending, "the operator has not looked at generation 1 of the plane yet"},
		"a status of an older generation says nothing": {with(snapshot(ready), func(s *statusview.Snapshot) { s.Plane.Generation = 3 }),
			statusview.Pending, "the operator has not looked at generation 3 of the plane yet"},
		"a condition of an older generation says nothing": {with(snapshot(ready), func(s *statusview.Snapshot) { s.Plane.Status.Conditions[0].ObservedGeneration = 1 }),
			statusview.Pending, "the operator has not looked at generation 2 of the plane yet"},
		"a rollout is pending":                                {snapshot(rolling), statusview.Pending, "1 of 3 pods"},
		"Ready is ready":                                      {snapshot(ready), statusview.Ready, "all in effect"},
		"Stalled is stalled":                                  {snapshot(rolling, condition{"Stalled", "True", "FieldOwned", "helm owns it"}), statusview.Stalled, "helm owns it"},
		"Stalled False is not stalled":                        {snapshot(ready, condition{"Stalled", "False", "Settled", ""}), statusview.Ready, "all in effect"},
		"pinned and in effect is held":                        {with(snapshot(ready), pin), statusview.Held, "pinned: all in effect"},
		"pinned and on the way there is pending":              {with(snapshot(rolling), pin), statusview.Pending, "1 of 3 pods"},
		"paused with something to do is held":                 {with(snapshot(condition{"Ready", "False", "Paused", "would roll"}), pause), statusview.Held, "paused: would roll"},
		"paused with nothing to do is ready":                  {with(snapshot(ready), pause), statusview.Ready, "all in effect"},
		"paused while Kubernetes rolls out is pending":        {with(snapshot(rolling), pause), statusview.Pending, "1 of 3 pods"},
		"paused while a pod is missing is pending":            {with(snapshot(condition{"Ready", "False", "PodsNotReady", "1 of 3 pods"}), pause), statusview.Pending, "1 of 3 pods"},
		"paused is held though a policy is not in the file":   {with(with(snapshot(condition{"Ready", "False", "Paused", "would roll"}), pause), policies(policy("p", 1, 1, accepted, condition{"Programmed", "False", "Pending", ""}))), statusview.Held, "paused: would roll"},
		"a failure that was retried is pending":               {with(snapshot(rolling, condition{"Stalled", "True", "RevisionFailed", "it failed"}), retried("1", "2")), statusview.Pending, "the operator has not tried again yet"},
		"a failure of the present retry is stalled":           {with(snapshot(rolling, condition{"Stalled", "True", "RevisionFailed", "it failed"}), retried("2", "2")), statusview.Stalled, "it failed"},
		"a field that is taken back once more is pending":     {with(snapshot(rolling, condition{"Stalled", "True", "FieldContested", "helm changes it"}), retried("", "2")), statusview.Pending, "the operator has not tried again yet"},
		"a policy that was deleted and is carried is pending": {with(with(snapshot(ready), policies(policy("p", 1, 1, accepted))), carries(2, false)), statusview.Pending, "the plane carries 2 policies, and there are 1: the operator has not looked since"},
		"a policy that may not be read holds nothing up":      {with(with(snapshot(ready), policies(policy("p", 1, 1, accepted))), carries(2, true)), statusview.Ready, "all in effect"},
		"a policy that was not looked at is pending":          {with(snapshot(ready), policies(policy("p", 2, 1))), statusview.Pending, "the operator has not looked at generation 2 of policy nvcf/p yet"},
		"a policy that is not in the file yet is pending":     {with(snapshot(ready), policies(policy("p", 1, 1, accepted, condition{"Programmed", "False", "Pending", "not yet"}))), statusview.Pending, "policy nvcf/p: not yet"},
		"a policy that lost a model waits for nobody":         {with(snapshot(ready), policies(policy("p", 1, 1, condition{"Accepted", "False", "ModelConflict", ""}, condition{"Programmed", "False", "Pending", ""}))), statusview.Ready, "all in effect"},
		"a policy whose flag the site cannot have is fine":    {with(snapshot(ready), policies(policy("p", 1, 1, accepted, condition{"Programmed", "False", "FlagsHeld", ""}))), statusview.Ready, "all in effect"},
		"a stall counts before a policy that is new":          {with(snapshot(condition{"Ready", "False", "X", ""}, condition{"Stalled", "True", "X", "mend it"}), policies(policy("p", 2, 1))), statusview.Stalled, "mend it"},
	} {
		t.Run(name, func(t *testing.T) {
			got, message := test.snapshot.Judge()
			if got != test.want || message != test.message {
				t.Errorf("got %s: %s, want %s: %s", got, message, test.want, test.message)
			}
		})
	}
}

// full has something to say of everything.
func full() *statusview.Snapshot {
	s := snapshot(condition{"Ready", "False", "Warmup", "Warmup: waiting for: the gateways' memory to fill"})
	at := func(minutes int) metav1.Time { return metav1.Time{Time: now.Add(time.Duration(minutes) * time.Minute)} }
	until := at(6)
	s.Plane.Status.Stage = v1alpha1.StageWarmup
	s.Plane.Status.Waiting = &v1alpha1.Waiting{For: "the gateways' memory to fill", Since: at(-4), Until: &until}
	s.Plane.Status.Stargate = &v1alpha1.WorkloadStatus{
		Kind: "Deployment", Name: "router", Release: "0.22.0", Revision: "llm-stargate-b", Replicas: 3,
		Pods: []v1alpha1.PodCount{{Revision: "llm-stargate-a", Total: 2, Ready: 1, Terminating: 1}, {Revision: "llm-stargate-b", Total: 2, Ready: 2}},
	}
	s.Plane.Status.Gateways = []v1alpha1.WorkloadStatus{{
		Kind: "Deployment", Name: "gateway", Memory: "On", Replicas: 2, Pods: []v1alpha1.PodCount{{Revision: "none", Total: 2, Ready: 2}},
	}}
	s.Plane.Status.Flags = v1alpha1.FlagsStatus{Desired: 4, On: 1, Wave: 1, Pending: []string{"m", "k"}}
	s.Plane.Status.Models = 7
	s.Plane.Status.Transitions = []v1alpha1.Transition{{Time: at(-4), Stage: v1alpha1.StageWarmup, Message: "the memory is on"}}
	s.Plane.Status.Warnings = []string{"no seed"}
	s.Policies = []v1alpha1.RoutingPolicy{policy("a", 1, 1, condition{"Ready", "True", "Programmed", ""}), policy("b", 2, 1), policy("c", 1, 1, condition{"Ready", "False", "FlagsHeld", "held"})}
	return s
}

const fullText = `plane nvcf/llm  Pending, stage Warmup
  the operator has not looked at generation 2 of policy nvcf/b yet
  waiting for the gateways' memory to fill, since 11:56:00Z (4m ago), until 12:06:00Z (in 6m)

Deployment/router  release 0.22.0
  2 of 3 ready  llm-stargate-b
  2 old: 1 ready, 1 terminating  llm-stargate-a

Deployment/gateway  memory on
  2 of 2 ready  no revision of the operator's

Flags of lastClusterAffinity
  1 of 4 on, wave 1 was the last
  pending: m, k

Policies, with 7 models
  nvcf/a: 1/1 models
  nvcf/b: not looked at yet
  nvcf/c: 1/1 models; held

Last transitions
  4m ago  Warmup: the memory is on

Warnings
  no seed
`

func TestTheTextTellsTheWhole(t *testing.T) {
	if got := full().Text(now, statusview.Plain); got != fullText {
		t.Errorf("got\n%s", got)
	}
}

func TestBarsShowTheShare(t *testing.T) {
	style := statusview.Plain
	style.Bars = true
	got := full().Text(now, style)
	for _, want := range []string{"██████░░░░░░░░░░░░░░ 2 old: 1 ready", "█████████████░░░░░░░ 2 of 3 ready", "████████████████████ 2 of 2 ready", "█████░░░░░░░░░░░░░░░ 1 of 4 on"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestStylesDressWhatIsGoodAndBad(t *testing.T) {
	mark := func(c string) func(string) string { return func(s string) string { return c + s + c } }
	style := statusview.Style{Good: mark("+"), Bad: mark("!"), Busy: mark("~"), Faint: mark("."), Strong: mark("*")}
	for want, s := range map[string]*statusview.Snapshot{
		"*plane nvcf/llm*  +Ready+":   snapshot(ready),
		"*plane nvcf/llm*  !Stalled!": snapshot(rolling, condition{"Stalled", "True", "X", ""}),
		"*plane nvcf/llm*  ~Pending~": snapshot(rolling),
	} {
		if got := s.Text(now, style); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestTheLineHasWhatChanges(t *testing.T) {
	s := full()
	s.Policies = nil
	const want = "nvcf/llm, Pending, stage Warmup, router 2/3 pods up to date, gateway 2/2 pods up to date, flags 1/4 on: waiting for: the gateways' memory to fill"
	if got := s.Line(); got != want {
		t.Errorf("got %s", got)
	}
}

func TestWhatIsWaitedForIsSaidOnce(t *testing.T) {
	s := full()
	s.Policies = nil
	const want = "plane nvcf/llm  Pending, stage Warmup\n  waiting for: the gateways' memory to fill\n  since 11:56:00Z (4m ago), until 12:06:00Z (in 6m)\n"
	if got := s.Text(now, statusview.Plain); !strings.HasPrefix(got, want) {
		t.Errorf("got %s", got)
	}
}

func TestTheEndOfAWaitIsAheadOrDue(t *testing.T) {
	for name, test := range map[string]struct {
		since, until time.Duration
		want         string
	}{
		"its end is ahead":    {-time.Minute, time.Minute, "  since 11:59:00Z (60s ago), until 12:01:00Z (in 60s)\n"},
		"its end is now":      {-time.Minute, 0, "  since 11:59:00Z (60s ago), until 12:00:00Z (due)\n"},
		"its end is past":     {-time.Minute, -time.Second, "  since 11:59:00Z (60s ago), until 11:59:59Z (due)\n"},
		"it has just started": {0, time.Second, "  since 12:00:00Z (0s ago), until 12:00:01Z (in 1s)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := full()
			s.Policies = nil
			s.Plane.Status.Waiting.Since = metav1.Time{Time: now.Add(test.since)}
			s.Plane.Status.Waiting.Until = &metav1.Time{Time: now.Add(test.until)}
			if got := s.Text(now, statusview.Plain); !strings.Contains(got, test.want) {
				t.Errorf("no %q in\n%s", test.want, got)
			}
		})
	}
}

func TestPodsAreCountedAgainstWhatTheyAreAShareOf(t *testing.T) {
	for name, test := range map[string]struct {
		stargate v1alpha1.WorkloadStatus
		want     string
	}{
		"no pod has the template's revision yet": {
			v1alpha1.WorkloadStatus{Revision: "b", Replicas: 3, Pods: []v1alpha1.PodCount{{Revision: "a", Total: 3, Ready: 3}}}, "  0 of 3 ready  b\n  3 old: 3 ready  a\n"},
		"there is no pod at all": {v1alpha1.WorkloadStatus{Revision: "b", Replicas: 3}, "  0 of 3 ready  b\n\n"},
		"one pod too many is being ended": {
			v1alpha1.WorkloadStatus{Revision: "b", Replicas: 1, Pods: []v1alpha1.PodCount{{Revision: "b", Total: 2, Ready: 1, Terminating: 1}}}, "  1 of 1 ready, 1 terminating  b\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := full()
			test.stargate.Kind, test.stargate.Name = "Deployment", "router"
			s.Plane.Status.Stargate = &test.stargate
			if got := s.Text(now, statusview.Plain); !strings.Contains(got, "Deployment/router\n"+test.want) {
				t.Errorf("no %q in\n%s", test.want, got)
			}
		})
	}
}

func TestAPolicyWithoutAFlagIsNotCountedByFlags(t *testing.T) {
	s := full()
	s.Policies[0].Status.Summary = "2/2 models, 0/0 flags"
	if got := s.Text(now, statusview.Plain); !strings.Contains(got, "  nvcf/a: 2/2 models\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestPoliciesThatThePlaneDoesNotTakeAreNamed(t *testing.T) {
	s := snapshot(ready)
	conflict := condition{"Accepted", "False", "ModelConflict", "model \"m\" is policy nvcf/a's"}
	s.Policies = []v1alpha1.RoutingPolicy{
		policy("a", 1, 1, accepted), policy("b", 1, 1, conflict), policy("c", 1, 1, condition{"Accepted", "False", "NoRoom", "no room"}),
		policy("elsewhere", 1, 1, condition{"Accepted", "False", "NamespaceNotAllowed", "not allowed"}), policy("new", 2, 1, conflict),
	}
	s.Policies[1].Status.Conditions[0].LastTransitionTime = metav1.Time{Time: now}
	refused := s.Refused()
	if len(refused) != 2 || !refused[0].Since.Equal(now) || refused[0].Message != `policy nvcf/b is not in effect as it is: model "m" is policy nvcf/a's` {
		t.Errorf("got %+v", refused)
	}
	s.Policies = s.Policies[:4]
	const want = `nvcf/llm, Ready: all in effect; policy nvcf/b is not in effect as it is: model "m" is policy nvcf/a's (and 1 more)`
	if got := s.Line(); got != want {
		t.Errorf("got %s", got)
	}
}

func TestTimesAreRelative(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "1s ago", -90 * time.Second: "90s ago", -3 * time.Minute: "3m ago", -3 * time.Hour: "3h ago", -72 * time.Hour: "3d ago", 5 * time.Minute: "in 5m",
	} {
		if got := statusview.Ago(now.Add(d), now); got != want {
			t.Errorf("%s: %s", d, got)
		}
	}
}
