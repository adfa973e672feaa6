package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/validate"
)

// PlaneReconciler brings planes' workloads to what their policies ask for.
type PlaneReconciler struct {
	client.Client
	// Cache reads without waiting for the writes before; an event's handler must not wait.
	Cache client.Reader
	// Live reads from the API server.
	Live    client.Reader
	scraper *scraper
	// Logs of pods.
	Logs     Logs
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Releases release.Table
	// Validation is what the admission webhook validates with too.
	Validation validate.Options

	outcomes *outcomes
	memories *memories
	metrics  *planeMetrics
}

func (r *PlaneReconciler) setup(mgr ctrl.Manager, o Options) error {
	enqueue := handler.EnqueueRequestsFromMapFunc
	own := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, tamperedWith())
	if o.StaleReads {
		own = predicate.ResourceVersionChangedPredicate{}
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("plane").
		For(&v1alpha1.RoutingPlane{}, builder.WithPredicates(own)).
		Watches(&v1alpha1.RoutingPlane{}, enqueue(r.planesBeside), builder.WithPredicates(onlyDeletions())).
		Watches(&v1alpha1.RoutingPolicy{}, enqueue(r.planesOfPolicy), builder.WithPredicates(policyGone())).
		Watches(&appsv1.ControllerRevision{}, enqueue(r.planesOfRevision)).
		Watches(&corev1.ConfigMap{}, enqueue(planesOfConfigMap)).
		Watches(&corev1.Namespace{}, enqueue(r.planesOfNamespace), builder.WithPredicates(namespaceChanged())).
		Watches(&appsv1.Deployment{}, enqueue(r.planesOfWorkload)).
		Watches(&appsv1.StatefulSet{}, enqueue(r.planesOfWorkload)).
		Watches(&appsv1.ReplicaSet{}, enqueue(r.planesOfReplicaSet)).
		Watches(&corev1.Pod{}, enqueue(r.planesOfPod), builder.WithPredicates(podChanged())).
		WithOptions(controllerOptions(o.PlaneWorkers, o)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of planes: %w", err)
	}
	return nil
}

// Reconcile does one pass over a plane.
func (r *PlaneReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var plane v1alpha1.RoutingPlane
	if err := r.Get(ctx, request.NamespacedName, &plane); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading the plane: %w", err)
	}
	now := r.Clock.Now()
	if invalid := validate.Plane(&plane.Spec, specPath, r.Validation); len(invalid) > 0 && plane.DeletionTimestamp == nil {
		err := r.refuse(ctx, &plane, invalid, now)
		if errors.Is(err, errStale) {
			return ctrl.Result{RequeueAfter: staleRetry}, nil
		}
		return ctrl.Result{}, err
	}
	m := r.memories.get(request.NamespacedName, plane.UID)
	seen, err := r.gather(ctx, &plane, m, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	if plane.DeletionTimestamp == nil && m.awaits(seen.unknown, now) {
		ctrl.LoggerFrom(ctx).V(1).Info("Waiting for policies to be looked at", "policies", seen.unknown)
		return ctrl.Result{RequeueAfter: policiesRetry}, nil
	}
	plan, err := rollout.Make(&seen.world)
	if err != nil {
		return ctrl.Result{}, err
	}
	failed := seen.merged.tooLarge()
	var done []rollout.Step
	if failed == nil || plane.DeletionTimestamp != nil {
		done, failed = r.execute(ctx, seen, plan.Steps)
		m.remember(done, now, seen.world.Plane.Retry)
		if failed != nil && len(done) < len(plan.Steps) {
			m.doubt(&plan.Steps[len(done)], failed)
		}
	}
	m.follower.follow(plan.Sampling, seen.world.Plane.Analysis)
	logSteps(ctx, plan, done)
	if err := r.report(ctx, seen, plan, done, failed, m); err != nil {
		if failed = errors.Join(err, failed); !errors.Is(err, errStale) {
			return ctrl.Result{}, failed
		}
		return r.next(ctx, m, plan, now, failed)
	}
	// Policies say what became of them once the plane does: who follows both must not see the plane as it was before.
	if err := r.publish(request.NamespacedName, seen, plan); err != nil {
		return ctrl.Result{}, err
	}
	return r.next(ctx, m, plan, now, failed)
}

const (
	// refusedRetry is when a write that was refused is tried again, should nothing that is watched change before.
	refusedRetry = time.Minute
	// overdueRetry is when to look again where the time to do so is past, and nothing came of it.
	overdueRetry = time.Second
	// soon is when to look at metrics that are to be followed from now on.
	soon         = 10 * time.Millisecond
	staleRetry   = 50 * time.Millisecond
	staleLongest = 5 * time.Second
	// policiesRetry and policiesLongest are how often and how long policies are waited for that were not looked at.
	policiesRetry   = 100 * time.Millisecond
	policiesLongest = 10 * time.Second
)

// next tells when to look again.
func (r *PlaneReconciler) next(ctx context.Context, m *memory, plan *rollout.Plan, now time.Time, failed error) (ctrl.Result, error) {
	var refused *refusedError
	switch {
	case errors.Is(failed, errStale):
		// The watch may be about to tell: this waits for it a little longer each time.
		m.stale++
		ctrl.LoggerFrom(ctx).V(1).Info("Planning again", "reason", failed.Error())
		return ctrl.Result{RequeueAfter: min(staleRetry<<min(m.stale-1, 10), staleLongest)}, nil
	case errors.As(failed, &refused):
		ctrl.LoggerFrom(ctx).Error(failed, "Write refused")
		return ctrl.Result{RequeueAfter: refusedRetry}, nil
	case failed != nil:
		return ctrl.Result{}, failed
	}
	m.stale = 0
	result := ctrl.Result{}
	if !plan.Requeue.IsZero() {
		if result.RequeueAfter = plan.Requeue.Sub(now); result.RequeueAfter <= 0 {
			result.RequeueAfter = overdueRetry
		}
	}
	if after, following := m.follower.due(now); following && (after < result.RequeueAfter || result.RequeueAfter == 0) {
		result.RequeueAfter = max(after, soon)
	}
	return result, nil
}

func logSteps(ctx context.Context, plan *rollout.Plan, done []rollout.Step) {
	log := ctrl.LoggerFrom(ctx)
	for i := range done {
		log.Info(done[i].Why, "step", done[i].Kind, "revision", done[i].Revision, "stage", plan.Stage)
	}
	log.V(1).Info("Planned", "stage", plan.Stage, "notes", plan.Notes)
}

// forget drops what is kept of a plane that is gone.
func (r *PlaneReconciler) forget(key types.NamespacedName) {
	r.memories.forget(key)
	r.metrics.forget(key)
	r.outcomes.publish(key, nil)
}

// tamperedWith lets through what nobody but the operator should write: a status that is gone, a finalizer that is.
func tamperedWith() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return observedGeneration(e.ObjectNew) < observedGeneration(e.ObjectOld) || len(e.ObjectNew.GetFinalizers()) < len(e.ObjectOld.GetFinalizers())
	}}
}

func observedGeneration(o client.Object) int64 {
	switch o := o.(type) {
	case *v1alpha1.RoutingPlane:
		return o.Status.ObservedGeneration
	case *v1alpha1.RoutingPolicy:
		return o.Status.ObservedGeneration
	}
	return 0
}

func onlyDeletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return true },
	}
}

// policyGone lets through what a policy's accepted specs do not tell: that it appears again beside them, or goes.
func policyGone() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

func namespaceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
			!equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}}
}

// podChanged compares what the cache keeps of pods.
func podChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Status, after.Status) ||
			!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
	}}
}
