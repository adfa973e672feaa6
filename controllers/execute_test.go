package controllers

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

// counting is an API server that counts the patches.
type counting struct {
	client.Client
	patches int
}

func (c *counting) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	c.patches++
	return c.Client.Patch(ctx, object, patch, options...)
}

func TestAPlaneThatManagesWorkloadsHasItsFinalizerButInANamespaceThatIsDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		terminating bool
		before      []string
		writes      int
		after       bool
	}{
		"one that was taken comes back":                {before: nil, writes: 1, after: true},
		"one that is there stays":                      {before: []string{Finalizer}, after: true},
		"none comes where the namespace is deleted":    {terminating: true},
		"it goes by one write where that goes for all": {terminating: true, before: []string{Finalizer}, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			plane := &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llm", Finalizers: test.before}}
			server := &counting{Client: apiServer(t, plane)}
			if err := server.Get(t.Context(), client.ObjectKeyFromObject(plane), plane); err != nil {
				t.Fatal(err)
			}
			world := rollout.World{
				Plane:    rollout.Plane{Namespace: "nvcf", Name: "llm", NamespaceTerminating: test.terminating},
				Stargate: rollout.Workload{Kind: v1alpha1.KindDeployment, Name: "router", Managed: true},
			}
			plan, err := rollout.Make(&world)
			if err != nil {
				t.Fatal(err)
			}
			r := &PlaneReconciler{Client: server, Live: server}
			if _, err := r.execute(t.Context(), &observation{plane: plane, world: world}, plan.Steps); err != nil {
				t.Fatal(err)
			}
			if err := server.Get(t.Context(), client.ObjectKeyFromObject(plane), plane); err != nil {
				t.Fatal(err)
			}
			if after := slices.Contains(plane.Finalizers, Finalizer); after != test.after || server.patches != test.writes {
				t.Errorf("has it: %t, by %d writes", after, server.patches)
			}
		})
	}
}
