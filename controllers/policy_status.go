package controllers

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// verdict is the content of a condition.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// fill makes the status say what was found. Only what a person must mend in the policy itself is Stalled: Git
// applies in any order, and everything else may pass.
func (j *judgement) fill(status *v1alpha1.RoutingPolicyStatus, now clock.PassiveClock) {
	status.ObservedGeneration = j.policy.Generation
	status.Plane = j.plane.String()
	status.Models = j.models()
	status.Summary = summary(status.Models)
	status.Warnings = nil
	if len(j.invalid) == 0 {
		status.Warnings = validate.Lines(validate.PolicyWarnings(&j.policy.Spec, specPath, j.generations), maxWarnings)
	}
	accepted, programmed := j.isAccepted(status.Models), j.isProgrammed(status.Models)
	ready, reconciling, stalled := programmed, verdict{metav1.ConditionTrue, programmed.reason, programmed.message}, verdict{status: metav1.ConditionFalse, reason: programmed.reason}
	switch {
	case len(j.invalid) > 0:
		ready = verdict{metav1.ConditionFalse, accepted.reason, accepted.message}
		reconciling, stalled = verdict{status: metav1.ConditionFalse, reason: accepted.reason}, verdict{metav1.ConditionTrue, accepted.reason, accepted.message}
	case accepted.status != metav1.ConditionTrue:
		ready = accepted
		reconciling.reason, reconciling.message, stalled.reason = accepted.reason, accepted.message, accepted.reason
	case programmed.status == metav1.ConditionTrue:
		reconciling = verdict{status: metav1.ConditionFalse, reason: programmed.reason}
	}
	for _, c := range []struct {
		kind string
		verdict
	}{
		{v1alpha1.ConditionAccepted, accepted}, {v1alpha1.ConditionProgrammed, programmed}, {v1alpha1.ConditionReady, ready},
		{v1alpha1.ConditionReconciling, reconciling}, {v1alpha1.ConditionStalled, stalled},
	} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message,
			ObservedGeneration: j.policy.Generation, LastTransitionTime: metav1.Time{Time: now.Now()},
		})
	}
}

// models are those of the present spec. Where that is not the accepted one, what is kept of the accepted one is
// said of the models that both have.
func (j *judgement) models() []v1alpha1.ModelStatus {
	found := map[string]v1alpha1.ModelStatus{}
	for _, m := range j.outcome.models {
		found[m.Name] = m
	}
	seen := map[string]bool{}
	var models []v1alpha1.ModelStatus
	for i := range j.policy.Spec.Models {
		name := j.policy.Spec.Models[i].Name
		if seen[name] {
			continue // an invalid spec may list one twice
		}
		seen[name] = true
		status, ok := found[name]
		switch {
		case !ok:
			status = v1alpha1.ModelStatus{Name: name, State: v1alpha1.ModelPending, Message: "not on the plane", LastClusterAffinity: wantsFlag(&j.policy.Spec.Models[i])}
		case len(j.invalid) > 0 && status.State != v1alpha1.ModelConflict:
			status.State, status.Message = v1alpha1.ModelHeld, "the last accepted version is kept: the policy is not valid"
		}
		models = append(models, status)
	}
	return models
}

// wantsFlag tells whether the model, or a request algorithm of its own, asks for last-cluster affinity.
func wantsFlag(m *v1alpha1.Model) bool {
	asks := func(s *v1alpha1.AlgorithmSettings) bool { return ptr.Deref(s.LastClusterAffinity, false) }
	return asks(&m.AlgorithmSettings) || slices.ContainsFunc(m.RequestAlgorithms, func(r v1alpha1.RequestAlgorithm) bool { return asks(&r.AlgorithmSettings) })
}

func (j *judgement) isAccepted(models []v1alpha1.ModelStatus) verdict {
	if len(j.invalid) > 0 {
		kept := "; nothing of the policy is in effect"
		if j.accepted != "" {
			kept = "; the last accepted version stays in effect"
		}
		return verdict{metav1.ConditionFalse, reasonInvalid, bounded(j.invalid.ToAggregate().Error()) + kept}
	}
	if j.reason != "" {
		return verdict{metav1.ConditionFalse, j.reason, j.message}
	}
	if j.outcome.noRoom != "" {
		return verdict{metav1.ConditionFalse, reasonNoRoom, j.outcome.noRoom}
	}
	if m := first(models, v1alpha1.ModelConflict); m != nil {
		return verdict{metav1.ConditionFalse, reasonModelConflict, m.Message}
	}
	return verdict{metav1.ConditionTrue, reasonAccepted, "accepted by plane " + j.plane.String()}
}

// isProgrammed speaks of what the plane was asked to run; models that are another policy's are not.
func (j *judgement) isProgrammed(models []v1alpha1.ModelStatus) verdict {
	if j.reason != "" || j.accepted == "" {
		return verdict{metav1.ConditionFalse, reasonPending, "the policy is on no plane"}
	}
	for _, state := range []struct {
		state  v1alpha1.ModelState
		reason string
	}{
		{v1alpha1.ModelHeld, reasonEarlierVersion}, {v1alpha1.ModelPending, reasonPending}, {v1alpha1.ModelFlagHeld, reasonFlagsHeld},
	} {
		if m := first(models, state.state); m != nil {
			return verdict{metav1.ConditionFalse, state.reason, fmt.Sprintf("model %q: %s", m.Name, m.Message)}
		}
	}
	if m := first(models, v1alpha1.ModelLimited); m != nil {
		return verdict{metav1.ConditionTrue, reasonLimited, fmt.Sprintf("model %q: %s", m.Name, m.Message)}
	}
	if len(models) == 0 {
		return verdict{metav1.ConditionTrue, reasonNothingToProgram, "the policy lists no model"}
	}
	return verdict{metav1.ConditionTrue, reasonProgrammed, "every Stargate pod runs the policy's configuration"}
}

func first(models []v1alpha1.ModelStatus, state v1alpha1.ModelState) *v1alpha1.ModelStatus {
	for i := range models {
		if models[i].State == state {
			return &models[i]
		}
	}
	return nil
}

// summary counts for the printer column.
func summary(models []v1alpha1.ModelStatus) string {
	programmed, flags, on := 0, 0, 0
	for i := range models {
		switch m := &models[i]; m.State {
		case v1alpha1.ModelProgrammed, v1alpha1.ModelLimited, v1alpha1.ModelFlagHeld:
			programmed++
		}
		if models[i].LastClusterAffinity {
			flags++
		}
		if models[i].EffectiveLastClusterAffinity {
			on++
		}
	}
	return fmt.Sprintf("%d/%d models, %d/%d flags", programmed, len(models), on, flags)
}

// maxMessage keeps a condition's message within what the API server takes, and people read.
const maxMessage = 4096

func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return message[:maxMessage] + " ..."
}
