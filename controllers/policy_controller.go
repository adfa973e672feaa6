package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/tenancy"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// PolicyReconciler judges policies, keeps their last accepted specs and is the only writer of their status.
type PolicyReconciler struct {
	client.Client
	// Cache reads without waiting for the writes before, Live from the API server.
	Cache, Live client.Reader
	Recorder    events.EventRecorder
	Clock       clock.PassiveClock
	Releases    release.Table

	outcomes *outcomes
}

func (r *PolicyReconciler) setup(mgr ctrl.Manager, o Options) error {
	enqueue := handler.EnqueueRequestsFromMapFunc
	own := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, tamperedWith())
	if o.StaleReads {
		own = predicate.ResourceVersionChangedPredicate{}
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("policy").
		For(&v1alpha1.RoutingPolicy{}, builder.WithPredicates(own)).
		Watches(&appsv1.ControllerRevision{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.RoutingPolicy{}, handler.OnlyControllerOwner()),
			builder.WithPredicates(historyChanged())).
		Watches(&v1alpha1.RoutingPlane{}, enqueue(r.policiesOfPlane), builder.WithPredicates(planeChanged())).
		Watches(&corev1.Namespace{}, enqueue(r.policiesOfNamespace), builder.WithPredicates(namespaceChanged())).
		WatchesRawSource(source.Func(r.outcomes.start)).
		WithOptions(controllerOptions(o.PolicyWorkers, o)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of policies: %w", err)
	}
	return nil
}

// Reasons of a policy's conditions.
const (
	reasonAccepted         = "Accepted"
	reasonInvalid          = "Invalid"
	reasonPlaneNotFound    = "PlaneNotFound"
	reasonPlaneDeleting    = "PlaneDeleting"
	reasonPlaneInvalid     = "PlaneInvalid"
	reasonNotAllowed       = "NamespaceNotAllowed"
	reasonModelConflict    = "ModelConflict"
	reasonNoRoom           = "NoRoom"
	reasonProgrammed       = "Programmed"
	reasonLimited          = "Limited"
	reasonPending          = "Pending"
	reasonFlagsHeld        = "FlagsHeld"
	reasonEarlierVersion   = "EarlierVersionKept"
	reasonNothingToProgram = "NoModels"
)

var specPath = field.NewPath("spec")

// Reconcile does one pass over a policy.
func (r *PolicyReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var policy v1alpha1.RoutingPolicy
	if err := r.Get(ctx, request.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("reading the policy: %w", err))
	}
	if policy.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	invalid := validate.Policy(&policy.Spec, specPath)
	accepted, spec, err := r.accept(ctx, &policy, len(invalid) == 0)
	if errors.Is(err, errStale) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	// An invalid policy stays with the plane of its last accepted spec.
	if spec == nil {
		spec = &policy.Spec
	}
	j := judgement{policy: &policy, invalid: invalid, accepted: accepted, plane: history.PlaneOf(policy.Namespace, spec)}
	plane := &v1alpha1.RoutingPlane{}
	switch err := r.Get(ctx, j.plane, plane); {
	case apierrors.IsNotFound(err):
		plane = nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading plane %s: %w", j.plane, err)
	}
	if j.reason, j.message, err = r.placement(ctx, &policy, plane, j.plane); err != nil {
		return ctrl.Result{}, err
	}
	if j.reason == "" && accepted != "" {
		var known bool
		// What the plane has not looked at yet it will look at, and then the policy's turn comes again.
		if j.outcome, known = r.outcomes.of(j.plane, policy.UID); !known || j.outcome.accepted != accepted {
			return ctrl.Result{}, nil
		}
	}
	j.generations = r.generations(plane)
	return ctrl.Result{}, r.write(ctx, &policy, &j)
}

// accept records the spec as accepted where it is valid, and returns the last accepted one.
func (r *PolicyReconciler) accept(ctx context.Context, policy *v1alpha1.RoutingPolicy, valid bool) (name string, spec *v1alpha1.RoutingPolicySpec, err error) {
	revisions, err := acceptedRevisions(ctx, r, policy.Namespace, policy.UID)
	if err != nil {
		return "", nil, err
	}
	if !valid {
		if len(revisions) == 0 {
			return "", nil, nil
		}
		spec, err := history.Spec(revisions[0])
		return revisions[0].Name, spec, err
	}
	change, name, err := history.Accept(policy, revisions)
	if err != nil {
		return "", nil, err
	}
	if len(revisions) > 0 && !change.IsEmpty() {
		if err := r.current(ctx, policy); err != nil {
			return "", nil, err
		}
	}
	if change.Create != nil {
		err := r.Create(ctx, change.Create.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			err = r.takeOver(ctx, policy, change.Create)
		}
		if err != nil {
			return "", nil, fmt.Errorf("keeping the accepted spec: %w", err)
		}
	}
	if change.Renumber != nil {
		data := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"revision":%d}`, change.Renumber.ResourceVersion, change.Number)
		if err := r.Patch(ctx, identity(change.Renumber), client.RawPatch(types.MergePatchType, []byte(data)), client.FieldOwner(workload.FieldManager)); err != nil {
			return "", nil, fmt.Errorf("renewing an accepted spec: %w", err)
		}
	}
	for _, old := range change.Delete {
		err := r.Delete(ctx, identity(old), preconditions(string(old.UID), old.ResourceVersion))
		if client.IgnoreNotFound(err) != nil {
			return "", nil, fmt.Errorf("deleting an accepted spec beyond the limit: %w", err)
		}
	}
	return name, &policy.Spec, nil
}

// current compares the policy with the API server. An operator that has lost the lead and does not know yet may see a
// spec late of which a later one was accepted, and would make it the last accepted one again.
func (r *PolicyReconciler) current(ctx context.Context, policy *v1alpha1.RoutingPolicy) error {
	live, err := liveMetadata(ctx, r.Live, v1alpha1.GroupVersion.WithKind(history.Kind), client.ObjectKeyFromObject(policy))
	if err != nil {
		return err
	}
	if live == nil || live.UID != policy.UID || live.Generation != policy.Generation {
		return fmt.Errorf("%w: policy %s/%s", errStale, policy.Namespace, policy.Name)
	}
	return nil
}

// takeOver has a revision of the wanted name owned by the policy again where its owner was taken, as it is then not
// found among the policy's. One that is the policy's the cache will have.
func (r *PolicyReconciler) takeOver(ctx context.Context, policy *v1alpha1.RoutingPolicy, wanted *appsv1.ControllerRevision) error {
	var live appsv1.ControllerRevision
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), &live); err != nil {
		return err
	}
	owner := metav1.GetControllerOfNoCopy(&live)
	if owner != nil && owner.UID == policy.UID {
		return nil
	}
	spec, err := history.Spec(&live)
	if owner != nil || err != nil || !equality.Semantic.DeepEqual(spec, &policy.Spec) {
		err := fmt.Errorf("ControllerRevision %s, which keeps the policy's accepted spec, exists and is something else; delete it: kubectl delete controllerrevision %s -n %s",
			live.Name, live.Name, live.Namespace)
		r.Recorder.Eventf(policy, nil, corev1.EventTypeWarning, "RevisionOccupied", "Accept", "%s", err)
		return err
	}
	owned := live.DeepCopy()
	owned.Labels = wanted.Labels
	owned.OwnerReferences = append(owned.OwnerReferences, wanted.OwnerReferences...)
	return r.Patch(ctx, owned, client.MergeFromWithOptions(&live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(workload.FieldManager))
}

func identity(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
}

// placement says why the plane does not take the policy; nothing where it does.
func (r *PolicyReconciler) placement(ctx context.Context, policy *v1alpha1.RoutingPolicy, plane *v1alpha1.RoutingPlane, key types.NamespacedName) (reason, message string, err error) {
	if plane == nil {
		return reasonPlaneNotFound, fmt.Sprintf("there is no RoutingPlane %s; the policy waits until there is one, correct spec.planeRef if it is misspelt", key), nil
	}
	if plane.DeletionTimestamp != nil {
		return reasonPlaneDeleting, fmt.Sprintf("RoutingPlane %s is being deleted", key), nil
	}
	if isInvalid(plane) {
		return reasonPlaneInvalid, fmt.Sprintf("RoutingPlane %s is not valid; its status says why", key), nil
	}
	var namespace corev1.Namespace
	if err := r.Get(ctx, types.NamespacedName{Name: policy.Namespace}, &namespace); err != nil {
		return "", "", fmt.Errorf("reading namespace %s: %w", policy.Namespace, err)
	}
	allowed, err := tenancy.Allows(plane, &namespace)
	if err != nil || allowed {
		return "", "", err
	}
	return reasonNotAllowed, fmt.Sprintf("RoutingPlane %s takes no policies from namespace %s; have its owner allow the namespace in spec.allowedPolicies, or move the policy",
		key, policy.Namespace), nil
}

func (r *PolicyReconciler) generations(plane *v1alpha1.RoutingPlane) validate.Generations {
	if plane == nil || plane.Status.Stargate == nil {
		return validate.AnyGeneration
	}
	running, err := r.Releases.Parse(plane.Status.Stargate.Release)
	if err != nil {
		return validate.AnyGeneration
	}
	return validate.Only(running.Generation)
}

// judgement is everything that a policy's status says.
type judgement struct {
	policy  *v1alpha1.RoutingPolicy
	invalid field.ErrorList
	// accepted is the name of the last accepted revision; empty if there is none.
	accepted string
	plane    types.NamespacedName
	// reason and message say why the plane does not take the policy.
	reason, message string
	outcome         policyOutcome
	generations     validate.Generations
}

func (r *PolicyReconciler) write(ctx context.Context, policy *v1alpha1.RoutingPolicy, j *judgement) error {
	before := policy.DeepCopy()
	policy.Status = *before.Status.DeepCopy()
	j.fill(&policy.Status, r.Clock)
	if equality.Semantic.DeepEqual(before.Status, policy.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, policy, client.MergeFrom(before), client.FieldOwner(workload.FieldManager)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the policy's status: %w", err))
	}
	r.announce(before, policy)
	return nil
}

// troubles are the reasons that a person should look at.
var troubles = map[string]bool{
	reasonInvalid: true, reasonNotAllowed: true, reasonModelConflict: true, reasonNoRoom: true, reasonEarlierVersion: true,
}

// announce tells once that a policy came into effect, or that something is in its way. What passes by itself is in
// the status.
func (r *PolicyReconciler) announce(before, after *v1alpha1.RoutingPolicy) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	if was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	switch {
	case troubles[is.Reason]:
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, v1alpha1.ConditionReady, "%s", is.Message)
	case is.Status == metav1.ConditionTrue:
		r.Recorder.Eventf(after, nil, corev1.EventTypeNormal, is.Reason, v1alpha1.ConditionReady, "%s", is.Message)
	}
}

// historyChanged lets through what may leave a policy without its last accepted spec.
func historyChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*appsv1.ControllerRevision), e.ObjectNew.(*appsv1.ControllerRevision)
			return before.Revision != after.Revision || !equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
		},
	}
}

func planeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.RoutingPlane), e.ObjectNew.(*v1alpha1.RoutingPlane)
		return (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || stargateRelease(before) != stargateRelease(after) || isInvalid(before) != isInvalid(after) ||
			!equality.Semantic.DeepEqual(before.Spec.AllowedPolicies, after.Spec.AllowedPolicies)
	}}
}

func isInvalid(plane *v1alpha1.RoutingPlane) bool {
	stalled := meta.FindStatusCondition(plane.Status.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Status == metav1.ConditionTrue && stalled.Reason == reasonInvalid
}

func stargateRelease(plane *v1alpha1.RoutingPlane) string {
	if plane.Status.Stargate == nil {
		return ""
	}
	return plane.Status.Stargate.Release
}

func (r *PolicyReconciler) policiesOfPlane(ctx context.Context, o client.Object) []reconcile.Request {
	return r.policies(ctx, index.Policies(client.ObjectKeyFromObject(o)))
}

// policiesOfNamespace looks through all policies: a cache that is limited to some namespaces refuses to be asked about
// another.
func (r *PolicyReconciler) policiesOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return slices.DeleteFunc(r.policies(ctx), func(request reconcile.Request) bool { return request.Namespace != o.GetName() })
}

func (r *PolicyReconciler) policies(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var list v1alpha1.RoutingPolicyList
	if err := r.Cache.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the policies that an event is about")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
