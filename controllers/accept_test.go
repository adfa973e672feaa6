package controllers

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
)

// The spec that is asked for was accepted first, and another one after it.
func TestAnEarlierSpecIsAcceptedAgainOnlyWhereItIsThePolicysPresentOne(t *testing.T) {
	for name, test := range map[string]struct {
		// live is the policy that the API server has, beside the one of generation 1 in the cache.
		live  func(*v1alpha1.RoutingPolicy)
		stale bool
		last  string
	}{
		"it is":                         {func(*v1alpha1.RoutingPolicy) {}, false, "first"},
		"the policy has been changed":   {func(p *v1alpha1.RoutingPolicy) { p.Generation = 2 }, true, "second"},
		"the policy has been made anew": {func(p *v1alpha1.RoutingPolicy) { p.UID = "2" }, true, "second"},
		"the policy has been deleted":   {nil, true, "second"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llama", UID: "1", Generation: 1}}
			policy.Spec.PlaneRef.Name = "first"
			later := policy.DeepCopy()
			later.Spec.PlaneRef.Name = "second"
			var revisions []*appsv1.ControllerRevision
			for _, p := range []*v1alpha1.RoutingPolicy{policy, later} {
				change, _, err := history.Accept(p, revisions)
				if err != nil {
					t.Fatal(err)
				}
				revisions = append(revisions, change.Create)
			}
			cached := apiServer(t, policy.DeepCopy(), revisions[0], revisions[1])
			live := apiServer(t)
			if test.live != nil {
				present := policy.DeepCopy()
				test.live(present)
				live = apiServer(t, present)
			}
			r := &PolicyReconciler{Client: cached, Cache: cached, Live: live}
			if _, _, err := r.accept(t.Context(), policy, true); errors.Is(err, errStale) != test.stale || !test.stale && err != nil {
				t.Fatalf("accepting it: %v", err)
			}
			var list appsv1.ControllerRevisionList
			if err := cached.List(t.Context(), &list, client.InNamespace("nvcf")); err != nil {
				t.Fatal(err)
			}
			var stored []*appsv1.ControllerRevision
			for i := range list.Items {
				stored = append(stored, &list.Items[i])
			}
			last, err := history.Spec(history.Sorted(stored)[0])
			if err != nil {
				t.Fatal(err)
			}
			if last.PlaneRef.Name != test.last {
				t.Errorf("the last accepted spec is the %s", last.PlaneRef.Name)
			}
		})
	}
}
