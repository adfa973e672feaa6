package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/analysis"
	"github.com/routing-operator/routing-operator/internal/effective"
	"github.com/routing-operator/routing-operator/internal/outcome"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// Caps of lists in the status.
const (
	maxTransitions = 10
	maxWarnings    = 32
)

// report writes the plane's status where it changed, and then tells events and metrics what changed.
func (r *PlaneReconciler) report(ctx context.Context, seen *observation, plan *rollout.Plan, done []rollout.Step, failed error, m *memory) error {
	plane := seen.plane
	before := plane.DeepCopy()
	fillStatus(&plane.Status, seen, plan)
	plane.Status.Stage = reached(before.Status.Stage, plan, done, failed)
	if failed != nil { // what a step was to record may not be on its revision; the next pass records it on both
		plane.Status.Records = before.Status.Records
	}
	noteFailure(&plane.Status, failed, plane.Generation, seen.world.Now)
	stageChanged := before.Status.Stage != plane.Status.Stage
	if stageChanged {
		addTransition(&plane.Status, plan, done, seen.world.Now)
	}
	if err := r.writeStatus(ctx, before, plane); err != nil {
		return err
	}
	r.announce(before, plane, done, stageChanged, seen.world.Now)
	r.metrics.observe(plane, done, stageChanged, m, seen.world.Now)
	return nil
}

// reached is the plan's stage, unless the plan was made from what is no longer so and nothing of it was done.
func reached(before v1alpha1.Stage, plan *rollout.Plan, done []rollout.Step, failed error) v1alpha1.Stage {
	if errors.Is(failed, errStale) && len(done) == 0 && before != "" {
		return before
	}
	return plan.Stage
}

// writeStatus writes the status unless somebody else wrote it since it was read: an operator that has lost the lead and
// does not know yet must not put back what it saw. A change of the spec meanwhile is no reason: the status says of which
// generation it speaks.
func (r *PlaneReconciler) writeStatus(ctx context.Context, before, plane *v1alpha1.RoutingPlane) error {
	if equality.Semantic.DeepEqual(before.Status, plane.Status) {
		return nil
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := r.Status().Patch(ctx, plane, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(workload.FieldManager))
		if !apierrors.IsConflict(err) {
			return err
		}
		var live v1alpha1.RoutingPlane
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(before), &live); err != nil {
			return err
		}
		if live.UID != before.UID || !equality.Semantic.DeepEqual(live.Status, before.Status) {
			return fmt.Errorf("%w: the plane's status was written by somebody else", errStale)
		}
		before.ResourceVersion, plane.ResourceVersion = live.ResourceVersion, live.ResourceVersion
		return err
	})
	if err != nil {
		// The plane is gone once its finalizer is.
		return client.IgnoreNotFound(fmt.Errorf("writing the plane's status: %w", err))
	}
	return nil
}

// refuse reports a spec that is not valid. Nothing is done with it: what runs keeps running.
func (r *PlaneReconciler) refuse(ctx context.Context, plane *v1alpha1.RoutingPlane, invalid field.ErrorList, now time.Time) error {
	before := plane.DeepCopy()
	plane.Status.ObservedGeneration = plane.Generation
	plane.Status.ObservedRetry = plane.Annotations[rollout.RetryAnnotation]
	plane.Status.Waiting = nil
	noteFailure(&plane.Status, &refusedError{reasonInvalid, fmt.Errorf("%s; what runs keeps running", bounded(invalid.ToAggregate().Error()))}, plane.Generation, now)
	if err := r.writeStatus(ctx, before, plane); err != nil {
		return err
	}
	r.announce(before, plane, nil, false, now)
	return nil
}

func fillStatus(status *v1alpha1.RoutingPlaneStatus, seen *observation, plan *rollout.Plan) {
	w := &seen.world
	status.ObservedGeneration = w.Plane.Generation
	status.ObservedRetry = w.Plane.Retry
	for _, condition := range plan.Conditions {
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	status.Waiting = waiting(status.Waiting, plan.Waiting, w.Now)
	stargate := workloadStatus(&w.Stargate)
	status.Stargate = &stargate
	status.Gateways = nil
	for i := range w.Gateways {
		gateway := workloadStatus(&w.Gateways[i])
		gateway.Memory = memoryStatus(&w.Gateways[i])
		status.Gateways = append(status.Gateways, gateway)
	}
	status.Flags = plan.Flags
	status.Policies = seen.merged.carried()
	status.Models = int32(len(w.Config.Models))
	warnings := slices.Clone(plan.Warnings)
	generations := validate.Only(w.Stargate.Template.Release.Generation)
	warnings = append(warnings, validate.Lines(validate.PlaneWarnings(&seen.plane.Spec, specPath, generations), 0)...)
	for _, omission := range plan.Omitted {
		warnings = append(warnings, fmt.Sprintf("%s: %s is left out: it takes Stargate of generation %s, and %s runs", omission.Place, omission.Field, omission.Since, w.Stargate.Template.Release.Version))
	}
	status.Warnings = capped(warnings, maxWarnings)
	status.Records = plan.Records
}

// capped keeps the first entries and counts the others in the last.
func capped(list []string, limit int) []string {
	if len(list) <= limit {
		return list
	}
	return append(list[:limit-1:limit-1], fmt.Sprintf("and %d more", len(list)-limit+1))
}

// waiting keeps the time since when the same is waited for.
func waiting(before, now *v1alpha1.Waiting, at time.Time) *v1alpha1.Waiting {
	if now == nil {
		return nil
	}
	next := *now
	next.Since = metav1.Time{Time: at}
	if before != nil && before.For == next.For {
		next.Since = before.Since
	}
	return &next
}

func workloadStatus(w *rollout.Workload) v1alpha1.WorkloadStatus {
	status := v1alpha1.WorkloadStatus{
		Kind: w.Kind, Name: w.Name, Revision: w.Template.Revision, Replicas: w.Replicas,
	}
	if w.Found {
		status.Release = w.Template.Release.Version
	}
	for i := range w.Pods {
		pod := &w.Pods[i]
		name := pod.Revision
		if name == "" {
			name = "none"
		}
		at := slices.IndexFunc(status.Pods, func(c v1alpha1.PodCount) bool { return c.Revision == name })
		if at < 0 {
			at = len(status.Pods)
			status.Pods = append(status.Pods, v1alpha1.PodCount{Revision: name})
		}
		count := &status.Pods[at]
		count.Total++
		if pod.Ready {
			count.Ready++
		}
		if pod.Terminating {
			count.Terminating++
		}
	}
	slices.SortFunc(status.Pods, func(a, b v1alpha1.PodCount) int { return strings.Compare(a.Revision, b.Revision) })
	return status
}

// memoryStatus is in a word what the gateway's pods have, or its template where there are none.
func memoryStatus(w *rollout.Workload) string {
	on, off, unverified := 0, 0, false
	count := func(m rollout.Memory) {
		if m.On {
			on++
		} else {
			off++
		}
		unverified = unverified || m.Unverified
	}
	for i := range w.Pods {
		count(w.Pods[i].Memory)
	}
	if len(w.Pods) == 0 {
		count(w.Template.Memory)
	}
	switch {
	case on == 0:
		return "Off"
	case off > 0:
		return "Mixed"
	case unverified:
		return "Unverified"
	}
	return "On"
}

// noteFailure says that the API server refuses a write that the plan asks for. What may pass by itself is in the log.
func noteFailure(status *v1alpha1.RoutingPlaneStatus, failed error, generation int64, now time.Time) {
	var refused *refusedError
	if !errors.As(failed, &refused) {
		return
	}
	message := refused.Error()
	for kind, value := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionReady: metav1.ConditionFalse, v1alpha1.ConditionReconciling: metav1.ConditionFalse, v1alpha1.ConditionStalled: metav1.ConditionTrue,
	} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: refused.reason, Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.Time{Time: now},
		})
	}
}

func addTransition(status *v1alpha1.RoutingPlaneStatus, plan *rollout.Plan, done []rollout.Step, now time.Time) {
	transition := v1alpha1.Transition{Time: metav1.Time{Time: now}, Stage: plan.Stage}
	switch {
	case len(done) > 0:
		transition.Message = done[len(done)-1].Why
	case len(plan.Notes) > 0:
		transition.Message = plan.Notes[0]
	default:
		if ready := meta.FindStatusCondition(plan.Conditions, v1alpha1.ConditionReady); ready != nil {
			transition.Message = ready.Message
		}
	}
	status.Transitions = append([]v1alpha1.Transition{transition}, status.Transitions...)
	if len(status.Transitions) > maxTransitions {
		status.Transitions = status.Transitions[:maxTransitions]
	}
}

// announced are the steps that are an event of their own.
var announced = map[rollout.StepKind]string{
	rollout.StepApply: "RolloutStarted", rollout.StepLetGo: "WorkloadLetGo", rollout.StepDeletePod: "PodDeleted",
	rollout.StepPreflight: "PreflightStarted", rollout.StepRemoveFinalizer: "PlaneReleased",
}

// announce tells once what changed: a stage, a step that people notice, a plane that is stuck or no longer so. A failure
// that the plane is stuck for from now on is told with what to do about it, and one that is known is not told again when
// it becomes known whose it is.
func (r *PlaneReconciler) announce(before, plane *v1alpha1.RoutingPlane, done []rollout.Step, stageChanged bool, now time.Time) {
	stuck := meta.FindStatusCondition(plane.Status.Conditions, v1alpha1.ConditionStalled)
	if stuck == nil || stuck.Status != metav1.ConditionTrue || meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionStalled) {
		stuck = nil
	}
	told := func(s rollout.Step) bool {
		_, ok := announced[s.Kind]
		return ok && s.Why == plane.Status.Transitions[0].Message
	}
	if stageChanged && plane.Status.Stage != "" && !slices.ContainsFunc(done, told) { // else the step's event says the same
		r.Recorder.Eventf(plane, nil, corev1.EventTypeNormal, "StageChanged", string(plane.Status.Stage),
			"stage %s: %s", plane.Status.Stage, plane.Status.Transitions[0].Message)
	}
	for i := range done {
		step := &done[i]
		if reason, ok := announced[step.Kind]; ok {
			r.Recorder.Eventf(plane, nil, corev1.EventTypeNormal, reason, string(step.Kind), "%s", step.Why)
		}
		if failed := step.Record.Failed; step.Kind == rollout.StepRecord && !failed.IsZero() &&
			(!failed.Equal(now) || stuck != nil && strings.Contains(stuck.Message, step.Record.Message)) {
			continue
		}
		switch {
		case step.Verdict == analysis.Failed:
			r.Recorder.Eventf(plane, nil, corev1.EventTypeWarning, "AnalysisFailed", string(step.Kind), "%s", step.Why)
		case step.Verdict != "":
			r.Recorder.Eventf(plane, nil, corev1.EventTypeNormal, "AnalysisPassed", string(step.Kind), "%s", step.Why)
		case step.Kind == rollout.StepRecord && !step.Record.Failed.IsZero():
			r.Recorder.Eventf(plane, nil, corev1.EventTypeWarning, "RevisionFailed", string(step.Kind), "%s", step.Why)
		}
	}
	if stuck != nil {
		r.Recorder.Eventf(plane, nil, corev1.EventTypeWarning, stuck.Reason, "Stalled", "%s", stuck.Message)
	}
}

// publish gives the policies what the pass found out about them.
func (r *PlaneReconciler) publish(key types.NamespacedName, seen *observation, plan *rollout.Plan) error {
	judge, err := outcome.New(&seen.world, plan)
	if err != nil {
		return err
	}
	noRoom := map[types.NamespacedName]*effective.LeftOut{}
	for i := range seen.merged.LeftOut {
		noRoom[seen.merged.LeftOut[i].Policy] = &seen.merged.LeftOut[i]
	}
	policies := make(map[types.UID]policyOutcome, len(seen.merged.policies))
	for i := range seen.merged.policies {
		policy := &seen.merged.policies[i]
		result := policyOutcome{key: client.ObjectKeyFromObject(policy), accepted: policy.revision}
		lost := map[string]effective.Conflict{}
		for _, conflict := range seen.merged.Conflicts[result.key] {
			lost[conflict.Model] = conflict
		}
		leftOut := noRoom[result.key]
		if leftOut != nil {
			result.noRoom = leftOut.Message()
		}
		for j := range policy.spec.Models {
			result.models = append(result.models, modelStatus(policy.spec.Models[j].Name, lost, leftOut, judge))
		}
		policies[policy.UID] = result
	}
	r.outcomes.publish(key, policies)
	return nil
}

func modelStatus(name string, lost map[string]effective.Conflict, leftOut *effective.LeftOut, judge *outcome.Judge) v1alpha1.ModelStatus {
	if conflict, ok := lost[name]; ok {
		return v1alpha1.ModelStatus{Name: name, State: v1alpha1.ModelConflict, Message: conflict.Message()}
	}
	if leftOut == nil {
		return judge.Model(name)
	}
	state := v1alpha1.ModelPending
	if leftOut.KeepsRunning {
		state = v1alpha1.ModelHeld
	}
	return v1alpha1.ModelStatus{Name: name, State: state, Message: "there is no room for the policy on the plane"}
}
