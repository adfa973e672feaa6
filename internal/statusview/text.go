package statusview

import (
	"cmp"
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
	var said []string
	if _, message := t.Judge(); !strings.Contains(message, w.For) { // else the heading says it
		said = append(said, "waiting for "+w.For)
	}
	if !w.Since.IsZero() {
		said = append(said, fmt.Sprintf("since %s (%s)", clock(w.Since.Time), Ago(w.Since.Time, t.now)))
	}
	switch {
	case w.Until == nil:
	case w.Until.After(t.now):
		said = append(said, fmt.Sprintf("until %s (%s)", clock(w.Until.Time), Ago(w.Until.Time, t.now)))
	default:
		said = append(said, fmt.Sprintf("until %s (due)", clock(w.Until.Time)))
	}
	if len(said) > 0 {
		t.line("  %s", strings.Join(said, ", "))
	}
}

func clock(at time.Time) string { return at.UTC().Format(time.TimeOnly + "Z") }

// memories are the words for status.gateways[].memory.
var memories = map[string]string{
	"On": "memory on", "Off": "memory off", "Mixed": "memory on in some pods",
	"Unverified": "memory on by its variable, unverified since spec.gateways[].releases names no release for the image",
}

func (t *text) workload(w *v1alpha1.WorkloadStatus) {
	t.line("")
	heading := t.style.Strong(w.Kind + "/" + w.Name)
	if w.Release != "" {
		heading += "  release " + w.Release
	}
	if w.Memory != "" {
		heading += "  " + cmp.Or(memories[w.Memory], "memory "+w.Memory)
	}
	t.line("%s", heading)
	current, old := pods(w)
	dress := t.style.Busy
	if current.Ready >= w.Replicas {
		dress = t.style.Good
	}
	t.line("  %s%d of %d ready%s  %s", dress(t.bar(current.Ready, w.Replicas)), current.Ready, w.Replicas, terminating(current), revisionName(current))
	for _, count := range old {
		t.line("  %s", t.style.Faint(fmt.Sprintf("%s%d old: %d ready%s  %s", t.bar(count.Ready, w.Replicas), count.Total, count.Ready, terminating(count), revisionName(count))))
	}
}

func terminating(count v1alpha1.PodCount) string {
	if count.Terminating == 0 {
		return ""
	}
	return fmt.Sprintf(", %d terminating", count.Terminating)
}

func revisionName(count v1alpha1.PodCount) string {
	if count.Revision == noRevision {
		return "no revision of the operator's"
	}
	return count.Revision
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
	dress, wave := t.style.Busy, ""
	switch {
	case f.On == f.Desired:
		dress = t.style.Good
	case f.Wave > 0:
		wave = fmt.Sprintf(", wave %d was the last", f.Wave)
	}
	t.line("%s", t.style.Strong("Flags of lastClusterAffinity"))
	t.line("  %s%d of %d on%s", dress(t.bar(f.On, f.Desired)), f.On, f.Desired, wave)
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
		line := fmt.Sprintf("%s/%s: %s", p.Namespace, p.Name, strings.TrimSuffix(p.Status.Summary, ", 0/0 flags"))
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
