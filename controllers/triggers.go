package controllers

import (
	"cmp"
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/revision"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// requests collects the planes that an event is about.
type requests struct{ sets.Set[types.NamespacedName] }

func newRequests() requests { return requests{sets.New[types.NamespacedName]()} }

func (r requests) list() []reconcile.Request {
	var list []reconcile.Request
	for key := range r.Set {
		list = append(list, reconcile.Request{NamespacedName: key})
	}
	return list
}

// addPlanes adds those that a list of the cache finds. Such a list fails only while the manager ends.
func (r *PlaneReconciler) addPlanes(ctx context.Context, to requests, options ...client.ListOption) {
	var planes v1alpha1.RoutingPlaneList
	if err := r.Cache.List(ctx, &planes, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the planes that an event is about")
		return
	}
	for i := range planes.Items {
		to.Insert(client.ObjectKeyFromObject(&planes.Items[i]))
	}
}

// planesBeside finds the planes that name a workload of a plane that is gone, be it that the plane named it, be it that
// the workload still names the plane: it may be theirs now.
func (r *PlaneReconciler) planesBeside(ctx context.Context, o client.Object) []reconcile.Request {
	plane, found := o.(*v1alpha1.RoutingPlane), newRequests()
	refs := []v1alpha1.WorkloadReference{plane.Spec.Stargate.WorkloadRef}
	for i := range plane.Spec.Gateways {
		refs = append(refs, plane.Spec.Gateways[i].WorkloadRef)
	}
	named, err := workloadsNaming(ctx, r.Cache, plane)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the workloads that a plane has left")
	}
	for _, ref := range slices.AppendSeq(refs, maps.Keys(named)) {
		r.addPlanes(ctx, found, client.InNamespace(plane.Namespace), index.Planes(ref))
	}
	found.Delete(client.ObjectKeyFromObject(plane))
	return found.list()
}

// planesOfPolicy finds the plane of every accepted spec of a policy.
func (r *PlaneReconciler) planesOfPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	policy, found := o.(*v1alpha1.RoutingPolicy), newRequests()
	found.Insert(history.PlaneOf(policy.Namespace, &policy.Spec))
	revisions, err := acceptedRevisions(ctx, r.Cache, policy.Namespace, policy.UID)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the planes that a policy was for")
	}
	for _, revision := range revisions {
		if plane, ok := planeOfRevision(revision); ok {
			found.Insert(plane)
		}
	}
	return found.list()
}

// planesOfRevision finds the planes of all accepted specs of a policy when one of them comes, goes or is accepted
// again: the last accepted may be another one now.
func (r *PlaneReconciler) planesOfRevision(ctx context.Context, o client.Object) []reconcile.Request {
	revision, found := o.(*appsv1.ControllerRevision), newRequests()
	plane, ok := planeOfRevision(revision)
	if !ok {
		return nil
	}
	found.Insert(plane)
	siblings, err := acceptedRevisions(ctx, r.Cache, revision.Namespace, metav1.GetControllerOfNoCopy(revision).UID)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the planes that a policy was for")
	}
	for _, sibling := range siblings {
		if plane, ok := planeOfRevision(sibling); ok {
			found.Insert(plane)
		}
	}
	return found.list()
}

// planesOfConfigMap goes by the annotation, or else by the label, which holds all but very long names whole.
func planesOfConfigMap(_ context.Context, o client.Object) []reconcile.Request {
	plane := cmp.Or(o.GetAnnotations()[annotationPlane], o.GetLabels()[revision.LabelPlane])
	if plane == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: plane}}}
}

// planesOfNamespace finds the planes in it, and those whose selector may take or no longer take its policies.
func (r *PlaneReconciler) planesOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	found := newRequests()
	var planes v1alpha1.RoutingPlaneList
	if err := r.Cache.List(ctx, &planes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the planes that a namespace concerns")
		return nil
	}
	for i := range planes.Items {
		plane := &planes.Items[i]
		if plane.Namespace == o.GetName() || plane.Spec.AllowedPolicies.Namespaces.From == v1alpha1.NamespacesFromSelector {
			found.Insert(client.ObjectKeyFromObject(plane))
		}
	}
	return found.list()
}

func (r *PlaneReconciler) planesOfWorkload(ctx context.Context, o client.Object) []reconcile.Request {
	kind := v1alpha1.KindDeployment
	if _, ok := o.(*appsv1.StatefulSet); ok {
		kind = v1alpha1.KindStatefulSet
	}
	found := newRequests()
	r.addPlanes(ctx, found, client.InNamespace(o.GetNamespace()), index.Planes(v1alpha1.WorkloadReference{Kind: kind, Name: o.GetName()}))
	if plane, ok := o.GetAnnotations()[workload.AnnotationPlane]; ok {
		found.Insert(types.NamespacedName{Namespace: o.GetNamespace(), Name: plane})
	}
	return found.list()
}

func (r *PlaneReconciler) planesOfReplicaSet(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != v1alpha1.KindDeployment {
		return nil
	}
	found := newRequests()
	r.addPlanes(ctx, found, client.InNamespace(o.GetNamespace()), index.Planes(v1alpha1.WorkloadReference{Kind: owner.Kind, Name: owner.Name}))
	return found.list()
}

func (r *PlaneReconciler) planesOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil {
		return nil
	}
	found := newRequests()
	if plane, ok := workload.IsPreflight(o.(*corev1.Pod)); ok {
		found.Insert(types.NamespacedName{Namespace: o.GetNamespace(), Name: plane})
		return found.list()
	}
	if owner.Kind == "ReplicaSet" {
		var rs appsv1.ReplicaSet
		if err := r.Cache.Get(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, &rs); err == nil {
			return r.planesOfReplicaSet(ctx, &rs)
		}
	}
	if ref, ok := madeBy(o, owner); ok {
		r.addPlanes(ctx, found, client.InNamespace(o.GetNamespace()), index.Planes(ref))
	}
	return found.list()
}
