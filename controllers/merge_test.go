package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

func TestAModelStaysWithThePolicyThatHadIt(t *testing.T) {
	const had, may, lost = v1alpha1.ModelProgrammed, v1alpha1.ModelPending, v1alpha1.ModelConflict
	for name, test := range map[string]struct {
		older, newer v1alpha1.ModelState // of the model in the policies' status; empty: no status
		otherPlane   bool                // the newer policy's status is of another plane
		before       types.UID           // whose the model was at the last merge
		want         string
	}{
		"the older, where nobody had it":                       {want: "older"},
		"the newer, if it had it":                              {newer: had, want: "newer"},
		"the newer, if its change is on its way":               {newer: may, want: "newer"},
		"the newer, if the older lost it before":               {older: lost, newer: may, want: "newer"},
		"the one that ran it before the one that may run it":   {older: may, newer: had, want: "newer"},
		"the older, if the newer had it on another plane":      {newer: had, otherPlane: true, want: "older"},
		"whose it was at the last merge, whatever status says": {older: had, newer: may, before: "newer", want: "newer"},
		"the older, if both claim to have had it":              {older: had, newer: had, want: "older"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := func(name string, age time.Duration, state v1alpha1.ModelState) acceptedPolicy {
				p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{
					Namespace: "nvcf", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(100000, 0).Add(-age)),
				}}
				p.Status.Plane = "nvcf/llm"
				if test.otherPlane && name == "newer" {
					p.Status.Plane = "nvcf/other"
				}
				if state != "" {
					p.Status.Models = []v1alpha1.ModelStatus{{Name: "a", State: state}}
				}
				spec := &v1alpha1.RoutingPolicySpec{Models: []v1alpha1.Model{{Name: "a", AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}}}}
				return acceptedPolicy{RoutingPolicy: p, spec: spec, revision: name}
			}
			g := &gatherer{
				plane:  &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llm"}},
				memory: newMemories().get(types.NamespacedName{}, ""), seen: &observation{},
			}
			if test.before != "" {
				g.memory.owners = map[string]types.UID{"a": test.before}
			}
			m := g.merge([]acceptedPolicy{policy("newer", time.Hour, test.newer), policy("older", 2*time.Hour, test.older)})
			if got := m.Owners["a"].Name; got != test.want {
				t.Errorf("it is with %s", got)
			}
			if got := g.memory.owners["a"]; string(got) != test.want {
				t.Errorf("remembered is %s", got)
			}
			if m.carried() != 1 {
				t.Errorf("%d policies have a model", m.carried())
			}
		})
	}
}
