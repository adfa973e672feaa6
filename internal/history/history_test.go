package history_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/history"
)

func policy(model string) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llama", UID: "1"},
		Spec: v1alpha1.RoutingPolicySpec{
			PlaneRef: v1alpha1.PlaneReference{Name: "llm"},
			Models:   []v1alpha1.Model{{Name: model, AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Random}}},
		},
	}
}

// store is the API server, as far as revisions are concerned.
type store []*appsv1.ControllerRevision

func (s *store) accept(t *testing.T, p *v1alpha1.RoutingPolicy) (change history.Change, name string) {
	t.Helper()
	change, name, err := history.Accept(p, *s)
	if err != nil {
		t.Fatal(err)
	}
	if change.Create != nil {
		*s = append(*s, change.Create)
	}
	if change.Renumber != nil {
		change.Renumber.Revision = change.Number
	}
	var kept store
	for _, r := range *s {
		gone := false
		for _, d := range change.Delete {
			gone = gone || d == r
		}
		if !gone {
			kept = append(kept, r)
		}
	}
	*s = kept
	return change, name
}

func (s *store) last(t *testing.T) string {
	t.Helper()
	spec, err := history.Spec(history.Sorted(*s)[0])
	if err != nil {
		t.Fatal(err)
	}
	return spec.Models[0].Name
}

func TestTheLastAcceptedSpecIsTheOneThatWasAcceptedLast(t *testing.T) {
	var s store
	for step, model := range []string{"a", "b", "a", "c", "a", "b"} {
		_, name := s.accept(t, policy(model))
		if got := s.last(t); got != model {
			t.Errorf("step %d: the last accepted is of %s, not %s", step, got, model)
		}
		if got := history.Sorted(s)[0].Name; got != name {
			t.Errorf("step %d: the last accepted is %s, not %s", step, got, name)
		}
	}
	if len(s) != 3 {
		t.Errorf("%d revisions of three specs", len(s))
	}
}

func TestASpecThatIsTheLastAcceptedAlreadyChangesNothing(t *testing.T) {
	var s store
	s.accept(t, policy("a"))
	change, _ := s.accept(t, policy("a"))
	if change.Create != nil || change.Renumber != nil || len(change.Delete) > 0 {
		t.Errorf("got %+v", change)
	}
}

func TestTheOldestGoBeyondTheLimit(t *testing.T) {
	var s store
	for i := range 2 * history.Limit {
		s.accept(t, policy(fmt.Sprint(i)))
	}
	if len(s) != history.Limit {
		t.Fatalf("%d revisions", len(s))
	}
	for _, r := range s {
		if r.Revision <= int64(history.Limit) {
			t.Errorf("revision %d is kept", r.Revision)
		}
	}
	s.accept(t, policy(fmt.Sprint(history.Limit))) // the oldest that is left
	if got := s.last(t); got != fmt.Sprint(history.Limit) || len(s) != history.Limit {
		t.Errorf("the last accepted is of %s, among %d", got, len(s))
	}
}

func TestARevisionIsTheOperatorsAndGoesWithItsPolicy(t *testing.T) {
	var s store
	p := policy("a")
	p.Labels, p.Annotations = map[string]string{"argocd.argoproj.io/instance": "x"}, map[string]string{"a": "b"}
	change, _ := s.accept(t, p)
	r := change.Create
	if len(r.Labels) != 1 || r.Labels["app.kubernetes.io/managed-by"] != "routing-operator" || len(r.Annotations) > 0 {
		t.Errorf("labels %v, annotations %v", r.Labels, r.Annotations)
	}
	owner := metav1.GetControllerOf(r)
	if owner == nil || owner.UID != p.UID || owner.Kind != history.Kind || owner.BlockOwnerDeletion != nil {
		t.Errorf("owner %+v", owner)
	}
}

func TestNamesFitAndAreNotShared(t *testing.T) {
	long := strings.Repeat("x", 220)
	names := map[string]string{}
	for _, p := range []struct{ name, uid, model string }{
		{"llama", "1", "a"}, {"llama", "1", "b"}, {"llama", "2", "a"},
		{long + ".tail" + strings.Repeat("y", 28), "1", "a"}, {long + ".tail" + strings.Repeat("z", 28), "3", "a"}, {strings.Repeat("x", 235) + "-.b", "4", "a"},
	} {
		object := policy(p.model)
		object.Name, object.UID = p.name, types.UID(p.uid)
		_, name, err := history.Accept(object, nil)
		if err != nil {
			t.Fatal(err)
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		names[name] = p.name
	}
	if len(names) != 6 {
		t.Errorf("%d names for 6 revisions", len(names))
	}
}

func TestADecodedRevisionHoldsTheSameSpec(t *testing.T) {
	var s store
	change, _ := s.accept(t, policy("a"))
	decoded, err := history.Decode(change.Create)
	if err != nil {
		t.Fatal(err)
	}
	r := decoded.(*appsv1.ControllerRevision)
	if r.Data.Object == nil || r.Data.Raw != nil {
		t.Fatalf("it was not decoded: %+v", r.Data)
	}
	spec, err := history.Spec(r)
	if err != nil || spec.Models[0].Name != "a" {
		t.Errorf("got %+v, %v", spec, err)
	}
	broken := change.Create.DeepCopy()
	broken.Data.Object, broken.Data.Raw = nil, []byte("{")
	if _, err := history.Decode(broken); err != nil {
		t.Errorf("what cannot be read stays as it is: %v", err)
	}
	if _, err := history.Spec(broken); err == nil || !strings.Contains(err.Error(), "nvcf/llama-") {
		t.Errorf("got %v", err)
	}
}

func TestThePlaneIsInThePolicysNamespaceUnlessItSaysSo(t *testing.T) {
	p := policy("a")
	if got := history.PlaneOf(p.Namespace, &p.Spec).String(); got != "nvcf/llm" {
		t.Errorf("got %s", got)
	}
	p.Spec.PlaneRef.Namespace = "platform"
	if got := history.PlaneOf(p.Namespace, &p.Spec).String(); got != "platform/llm" {
		t.Errorf("got %s", got)
	}
}
