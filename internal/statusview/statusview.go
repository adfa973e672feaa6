// Package statusview says how a plane does, for people and for pipelines that wait on it. It is pure.
package statusview

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// Snapshot is a plane and the policies on it, as read.
type Snapshot struct {
	Plane *v1alpha1.RoutingPlane
	// Policies sorted by namespace and name.
	Policies []v1alpha1.RoutingPolicy
	// Partial tells that there may be more policies on it, which could not be read.
	Partial bool
}

// Outcome is what a pipeline waits for.
type Outcome string

// The outcomes.
const (
	// Pending: the operator works on it, or waits for something that passes.
	Pending Outcome = "Pending"
	// Ready: everything is in effect as specified.
	Ready Outcome = "Ready"
	// Stalled: only a change by a person gets it further.
	Stalled Outcome = "Stalled"
	// Held: the plane is paused with something to do, or pinned, so that what the policies say is not in effect.
	Held Outcome = "Held"
)

// Judge tells the outcome and what it is about. A status that speaks of an older generation, of the plane or of a
// policy, says nothing yet.
func (s *Snapshot) Judge() (Outcome, string) {
	plane := s.Plane
	ready, stalled := s.condition(v1alpha1.ConditionReady), s.condition(v1alpha1.ConditionStalled)
	switch {
	case ready == nil:
		return Pending, fmt.Sprintf("the operator has not looked at generation %d of the plane yet", plane.Generation)
	case plane.Annotations[rollout.RetryAnnotation] != plane.Status.ObservedRetry:
		return Pending, "the operator has not tried again yet"
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		return Stalled, stalled.Message
	}
	if message := s.unseen(); message != "" {
		return Pending, message
	}
	isReady := ready.Status == metav1.ConditionTrue
	said := strings.TrimPrefix(ready.Message, string(plane.Status.Stage)+": ") // the stage is shown beside it
	if plane.Spec.Rollout.Paused && !isReady && ready.Reason != rollout.ReasonRollingOut && ready.Reason != rollout.ReasonPodsNotReady {
		return Held, "paused: " + said
	}
	if plane.Spec.Rollout.Pin != "" && isReady {
		return Held, "pinned: " + said
	}
	if message := s.unprogrammed(); isReady && message != "" {
		return Pending, message
	}
	if isReady {
		return Ready, said
	}
	return Pending, said
}

// condition of the plane, if it speaks of the present generation.
func (s *Snapshot) condition(kind string) *metav1.Condition {
	if s.Plane.Status.ObservedGeneration != s.Plane.Generation {
		return nil
	}
	c := meta.FindStatusCondition(s.Plane.Status.Conditions, kind)
	if c == nil || c.ObservedGeneration != s.Plane.Generation {
		return nil
	}
	return c
}

// unseen names a policy whose present spec nobody has looked at, or tells that the plane carries more than there are.
func (s *Snapshot) unseen() string {
	for i := range s.Policies {
		if p := &s.Policies[i]; p.Status.ObservedGeneration != p.Generation {
			return fmt.Sprintf("the operator has not looked at generation %d of policy %s/%s yet", p.Generation, p.Namespace, p.Name)
		}
	}
	if carried := int(s.Plane.Status.Policies); !s.Partial && carried > len(s.Policies) {
		return fmt.Sprintf("the plane carries %d policies, and there are %d: the operator has not looked since", carried, len(s.Policies))
	}
	return ""
}

// unprogrammed names a policy that was accepted and has not got as far as the plane.
func (s *Snapshot) unprogrammed() string {
	for i := range s.Policies {
		p := &s.Policies[i]
		programmed := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProgrammed)
		if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionAccepted) && programmed != nil && programmed.Reason == "Pending" {
			return fmt.Sprintf("policy %s/%s: %s", p.Namespace, p.Name, programmed.Message)
		}
	}
	return ""
}

// Refused is a policy that names the plane and that the plane does not take, or not all of.
type Refused struct {
	// Message names the policy and says why.
	Message string
	// Since when that is so.
	Since time.Time
}

// Refused policies do not keep a plane from being Ready: what it took is in effect. Those from namespaces that the
// plane takes nothing from are none of its own.
func (s *Snapshot) Refused() (refused []Refused) {
	for i := range s.Policies {
		p := &s.Policies[i]
		accepted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
		if accepted == nil || accepted.Status != metav1.ConditionFalse || accepted.Reason == "NamespaceNotAllowed" || p.Status.ObservedGeneration != p.Generation {
			continue
		}
		refused = append(refused, Refused{fmt.Sprintf("policy %s/%s is not in effect as it is: %s", p.Namespace, p.Name, accepted.Message), accepted.LastTransitionTime.Time})
	}
	return refused
}

// Line is the whole in one line, for a log: it changes when something does.
func (s *Snapshot) Line() string {
	status := &s.Plane.Status
	outcome, message := s.Judge()
	parts := []string{fmt.Sprintf("%s/%s", s.Plane.Namespace, s.Plane.Name), string(outcome)}
	if status.Stage != "" {
		parts = append(parts, "stage "+string(status.Stage))
	}
	for _, w := range s.workloads() {
		current, _ := pods(w)
		parts = append(parts, fmt.Sprintf("%s %d/%d pods up to date", w.Name, current.Ready, w.Replicas))
	}
	if status.Flags.Desired > 0 {
		parts = append(parts, fmt.Sprintf("flags %d/%d on", status.Flags.On, status.Flags.Desired))
	}
	line := strings.Join(parts, ", ") + ": " + message
	if refused := s.Refused(); len(refused) > 0 {
		line += "; " + refused[0].Message
		if len(refused) > 1 {
			line += fmt.Sprintf(" (and %d more)", len(refused)-1)
		}
	}
	return strings.Join(strings.Fields(line), " ")
}

func (s *Snapshot) workloads() (all []*v1alpha1.WorkloadStatus) {
	if s.Plane.Status.Stargate != nil {
		all = append(all, s.Plane.Status.Stargate)
	}
	for i := range s.Plane.Status.Gateways {
		all = append(all, &s.Plane.Status.Gateways[i])
	}
	return all
}

// pods on the revision that the template names, or on none where it names none, and the others.
func pods(w *v1alpha1.WorkloadStatus) (current v1alpha1.PodCount, old []v1alpha1.PodCount) {
	current.Revision = cmp.Or(w.Revision, noRevision)
	for _, count := range w.Pods {
		if count.Revision == current.Revision {
			current = count
		} else {
			old = append(old, count)
		}
	}
	return current, old
}

// noRevision is how the status names pods on none of the operator's revisions.
const noRevision = "none"

// Ago writes a time relative to now, in one unit.
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		return "in " + span(-d)
	}
	return span(d) + " ago"
}

func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
