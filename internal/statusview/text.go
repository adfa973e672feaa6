package statusview

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

// Style dresses parts of the text; each function returns its text, at least.
type Style struct {
	Good, Bad, Busy, Faint, Strong func(string) string
	// Bars draws progress as bars; without, there are numbers alone.
	Bars bool
}

// Plain is the style of a text that is no terminal's.
var Plain = Style{Good: same, Bad: same, Busy: same, Faint: same, Strong: same}

func same(s string) string { return s }

// Caps of lists in the text.
const (
	maxPolicies    = 10
	maxTransitions = 5
	maxWarnings    = 5
)

// Text tells the whole on several lines.
func (s *Snapshot) Text(now time.Time, style Style) string {
	t := &text{Snapshot: s, now: now, style: style}
	t.heading()
	t.waiting()
	for _, w := range s.workloads() {
		t.workload(w)
	}
	t.flags()
	t.policies()
	t.transitions()
	t.warnings()
	return t.b.String()
}

type text struct {
	*Snapshot
	now   time.Time
	style Style
	b     strings.Builder
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(&t.b, format+"\n", args...) }

func (t *text) heading() {
	outcome, message := t.Judge()
	dress := map[Outcome]func(string) string{Ready: t.style.Good, Stalled: t.style.Bad, Held: t.style.Busy, Pending: t.style.Busy}[outcome]
	stage := ""
	if t.Plane.Status.Stage != "" {
		stage = ", stage " + string(t.Plane.Status.Stage)
	}
	t.line("%s  %s%s", t.style.Strong(fmt.Sprintf("plane %s/%s", t.Plane.Namespace, t.Plane.Name)), dress(string(outcome)), stage)
	t.line("  %s", message)
}

func (t *text) waiting() {
	w := t.Plane.Status.Waiting
	if w == nil {
		return
	}
	var times []string
	if !w.Since.IsZero() {
		times = append(times, "for "+strings.TrimSuffix(Ago(w.Since.Time, t.now), " ago"))
	}
	if w.Until != nil {
		times = append(times, fmt.Sprintf("until %s (%s)", w.Until.UTC().Format(time.TimeOnly+"Z"), Ago(w.Until.Time, t.now)))
	}
	what := []string{"waits for " + w.For}
	if _, message := t.Judge(); strings.Contains(message, w.For) { // the heading says it
		if len(times) == 0 {
			return
		}
		times[0], what = "waits "+times[0], nil
	}
	t.line("  %s", strings.Join(append(what, times...), ", "))
}

func (t *text) workload(w *v1alpha1.WorkloadStatus) {
	t.line("")
	heading := t.style.Strong(w.Kind + "/" + w.Name)
	if w.Release != "" {
		heading += "  release " + w.Release
	}
	if w.Memory != "" {
		heading += "  memory " + w.Memory
	}
	t.line("%s", heading)
	if len(w.Pods) == 0 {
		t.line("  no pods of %d", w.Replicas)
	}
	for _, pods := range w.Pods {
		current := pods.Revision == w.Revision || w.Revision == "" && pods.Revision == noRevision
		note, name := "", pods.Revision
		if pods.Revision == noRevision {
			name = "no revision of the operator's"
		}
		if pods.Terminating > 0 {
			note = fmt.Sprintf(", %d terminating", pods.Terminating)
		}
		line := fmt.Sprintf("%d of %d ready%s  %s", pods.Ready, w.Replicas, note, name)
		switch {
		case !current:
			line = t.style.Faint(t.bar(pods.Ready, w.Replicas) + line)
		case pods.Ready >= w.Replicas:
			line = t.style.Good(t.bar(pods.Ready, w.Replicas)) + line
		default:
			line = t.style.Busy(t.bar(pods.Ready, w.Replicas)) + line
		}
		t.line("  %s", line)
	}
}

const barWidth = 20

func (t *text) bar(part, whole int32) string {
	if !t.style.Bars || whole == 0 {
		return ""
	}
	full := int(min(part, whole)) * barWidth / int(whole)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + " "
}

func (t *text) flags() {
	f := t.Plane.Status.Flags
	if f.Desired == 0 {
		return
	}
	t.line("")
	line := fmt.Sprintf("%s%d of %d on, after wave %d", t.style.Busy(t.bar(f.On, f.Desired)), f.On, f.Desired, f.Wave)
	if f.On == f.Desired {
		line = fmt.Sprintf("%sall %d on", t.style.Good(t.bar(f.On, f.Desired)), f.Desired)
	}
	t.line("%s", t.style.Strong("Flags of lastClusterAffinity"))
	t.line("  %s", line)
	if len(f.Pending) > 0 {
		t.line("  pending: %s", strings.Join(f.Pending, ", "))
	}
}

func (t *text) policies() {
	if len(t.Policies) == 0 {
		return
	}
	t.line("")
	t.line("%s", t.style.Strong(fmt.Sprintf("Policies, with %d models", t.Plane.Status.Models)))
	for i := range t.Policies {
		if i == maxPolicies {
			t.line("  and %d more", len(t.Policies)-i)
			return
		}
		p := &t.Policies[i]
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		line := fmt.Sprintf("%s/%s: %s", p.Namespace, p.Name, p.Status.Summary)
		switch {
		case ready == nil || p.Status.ObservedGeneration != p.Generation:
			line = t.style.Busy(fmt.Sprintf("%s/%s: not looked at yet", p.Namespace, p.Name))
		case meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionStalled):
			line = t.style.Bad(line + "; " + ready.Message)
		case ready.Status != metav1.ConditionTrue:
			line = t.style.Busy(line + "; " + ready.Message)
		}
		t.line("  %s", line)
	}
}

func (t *text) transitions() {
	if len(t.Plane.Status.Transitions) == 0 {
		return
	}
	t.line("")
	t.line("%s", t.style.Strong("Last transitions"))
	for i, transition := range t.Plane.Status.Transitions {
		if i == maxTransitions {
			return
		}
		t.line("  %s", t.style.Faint(fmt.Sprintf("%s  %s: %s", Ago(transition.Time.Time, t.now), transition.Stage, transition.Message)))
	}
}

func (t *text) warnings() {
	warnings := t.Plane.Status.Warnings
	if len(warnings) == 0 {
		return
	}
	t.line("")
	t.line("%s", t.style.Strong("Warnings"))
	for i, warning := range warnings {
		if i == maxWarnings {
			t.line("  and %d more: kubectl get rpl %s -n %s -o yaml", len(warnings)-i, t.Plane.Name, t.Plane.Namespace)
			return
		}
		t.line("  %s", warning)
	}
}
