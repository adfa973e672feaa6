package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

func TestNothingIsDoneOnARevisionThatTheCacheIsYetToHave(t *testing.T) {
	const name = "llm-stargate-1"
	for what, test := range map[string]struct {
		labels map[string]string
		stale  bool
	}{
		"it is there":                  {labels: revisionLabels("llm"), stale: true},
		"it is gone":                   {},
		"what has its name is no such": {labels: map[string]string{"app": "other"}},
	} {
		t.Run(what, func(t *testing.T) {
			plane := planeNamed("llm")
			router := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "router"}}
			objects := []client.Object{plane, router}
			if test.labels != nil {
				objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: name, Labels: test.labels}})
			}
			live := apiServer(t, objects...)
			for _, o := range []client.Object{plane, router} {
				if err := live.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
					t.Fatal(err)
				}
			}
			world := rollout.World{
				Plane: rollout.Plane{Namespace: "nvcf", Name: "llm"},
				Stargate: rollout.Workload{Kind: v1alpha1.KindDeployment, Name: "router", Found: true, ResourceVersion: router.ResourceVersion,
					Template: rollout.Template{Revision: name}},
			}
			e := &executor{PlaneReconciler: &PlaneReconciler{Live: live}, seen: &observation{plane: plane, world: world}}
			if err := e.current(t.Context()); errors.Is(err, errStale) != test.stale || !test.stale && err != nil {
				t.Error(err)
			}
		})
	}
}
