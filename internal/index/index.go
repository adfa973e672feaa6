// Package index finds, in a cache, the policies of a plane and the planes of a workload.
package index

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
)

const (
	policiesByPlane  = "policies-by-plane"
	planesByWorkload = "planes-by-workload"
)

// Setup adds the indexes to a manager's cache, once and before it starts.
func Setup(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.RoutingPolicy{}, policiesByPlane, func(o client.Object) []string {
		policy := o.(*v1alpha1.RoutingPolicy)
		return []string{history.PlaneOf(policy.Namespace, &policy.Spec).String()}
	})
	if err != nil {
		return fmt.Errorf("index policies by plane: %w", err)
	}
	err = indexer.IndexField(ctx, &v1alpha1.RoutingPlane{}, planesByWorkload, func(o client.Object) []string {
		return workloads(o.(*v1alpha1.RoutingPlane))
	})
	if err != nil {
		return fmt.Errorf("index planes by workload: %w", err)
	}
	return nil
}

// Policies restricts a list of RoutingPolicies to those that refer to the plane.
func Policies(plane types.NamespacedName) client.ListOption {
	return client.MatchingFields{policiesByPlane: plane.String()}
}

// Planes restricts a list of RoutingPlanes to those that refer to the workload as Stargate or as a gateway. The
// namespace has to be given beside it.
func Planes(workload v1alpha1.WorkloadReference) client.ListOption {
	return client.MatchingFields{planesByWorkload: key(workload)}
}

func workloads(plane *v1alpha1.RoutingPlane) []string {
	keys := []string{key(plane.Spec.Stargate.WorkloadRef)}
	for i := range plane.Spec.Gateways {
		keys = append(keys, key(plane.Spec.Gateways[i].WorkloadRef))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func key(workload v1alpha1.WorkloadReference) string { return workload.Kind + "/" + workload.Name }
