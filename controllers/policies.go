package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/tenancy"
)

// acceptedRevisions lists the accepted specs of a policy, the last accepted first.
func acceptedRevisions(ctx context.Context, c client.Reader, namespace string, policy types.UID) ([]*appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{indexOwner: string(policy)}); err != nil {
		return nil, fmt.Errorf("listing the accepted specs of a policy: %w", err)
	}
	revisions := make([]*appsv1.ControllerRevision, len(list.Items))
	for i := range list.Items {
		revisions[i] = &list.Items[i]
	}
	return history.Sorted(revisions), nil
}

// acceptedPolicy is a policy with its last accepted spec.
type acceptedPolicy struct {
	*v1alpha1.RoutingPolicy
	spec *v1alpha1.RoutingPolicySpec
	// revision that holds the spec.
	revision string
}

// acceptedPolicies are the policies whose last accepted spec is for the plane and whose namespace it allows.
func (g *gatherer) acceptedPolicies() ([]acceptedPolicy, error) {
	key := client.ObjectKeyFromObject(g.plane)
	var candidates appsv1.ControllerRevisionList
	if err := g.List(g.ctx, &candidates, client.MatchingFields{indexPlane: key.String()}); err != nil {
		return nil, fmt.Errorf("listing the accepted specs for the plane: %w", err)
	}
	allowed := map[string]bool{}
	seen := sets.New[types.UID]()
	var policies []acceptedPolicy
	for i := range candidates.Items {
		owner, namespace := metav1.GetControllerOfNoCopy(&candidates.Items[i]), candidates.Items[i].Namespace
		if seen.Has(owner.UID) {
			continue
		}
		seen.Insert(owner.UID)
		if _, known := allowed[namespace]; !known {
			var err error
			if allowed[namespace], err = namespaceAllowed(g.ctx, g, g.plane, namespace); err != nil {
				return nil, err
			}
		}
		if !allowed[namespace] {
			continue
		}
		policy, err := g.acceptedPolicy(types.NamespacedName{Namespace: namespace, Name: owner.Name}, owner.UID)
		if err != nil {
			return nil, err
		}
		if policy != nil && history.PlaneOf(namespace, policy.spec) == key {
			policies = append(policies, *policy)
		}
	}
	slices.SortFunc(policies, func(a, b acceptedPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return policies, nil
}

// unlookedAt are the policies for the plane whose present spec is still to be accepted or refused: nobody has said
// anything about it yet, as of all of them after a restore from a backup, or what was accepted is lost.
func (g *gatherer) unlookedAt(accepted []acceptedPolicy) ([]types.NamespacedName, error) {
	var list v1alpha1.RoutingPolicyList
	if err := g.List(g.ctx, &list, index.Policies(client.ObjectKeyFromObject(g.plane)), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the policies of the plane: %w", err)
	}
	kept := make(map[types.UID]*v1alpha1.RoutingPolicySpec, len(accepted))
	for _, a := range accepted {
		kept[a.UID] = a.spec
	}
	var unknown []types.NamespacedName
	for i := range list.Items {
		policy := &list.Items[i]
		if policy.DeletionTimestamp != nil {
			continue
		}
		spec := kept[policy.UID]
		isNew := policy.Status.ObservedGeneration <= 0 && spec == nil
		isLost := wasAccepted(policy) && (spec == nil || !equality.Semantic.DeepEqual(spec, &policy.Spec))
		if isNew || isLost {
			unknown = append(unknown, client.ObjectKeyFromObject(policy))
		}
	}
	return unknown, nil
}

// wasAccepted tells whether the status says so of the present spec.
func wasAccepted(policy *v1alpha1.RoutingPolicy) bool {
	condition := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionAccepted)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == policy.Generation
}

// acceptedPolicy is nil where the policy is gone or going: its absence is all that there is to know. It reads the cache
// without waiting: the list before has waited for what the operator wrote, and to wait once more for each of many
// policies would be to wait for all that is written meanwhile.
func (g *gatherer) acceptedPolicy(key types.NamespacedName, uid types.UID) (*acceptedPolicy, error) {
	policy := &v1alpha1.RoutingPolicy{}
	if err := g.Cache.Get(g.ctx, key, policy); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("reading policy %s: %w", key, err))
	}
	if policy.UID != uid || policy.DeletionTimestamp != nil {
		return nil, nil
	}
	revisions, err := acceptedRevisions(g.ctx, g.Cache, key.Namespace, uid)
	if err != nil || len(revisions) == 0 {
		return nil, err
	}
	spec, err := history.Spec(revisions[0])
	if err != nil {
		return nil, err
	}
	return &acceptedPolicy{RoutingPolicy: policy, spec: spec, revision: revisions[0].Name}, nil
}

// namespaceAllowed tells whether the plane takes policies from the namespace.
func namespaceAllowed(ctx context.Context, c client.Reader, plane *v1alpha1.RoutingPlane, namespace string) (bool, error) {
	var ns corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: namespace}, &ns); err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("reading namespace %s: %w", namespace, err))
	}
	return tenancy.Allows(plane, &ns)
}
