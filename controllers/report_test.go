package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

// indexer gives a fake client the indexes of a manager's cache.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, name string, keys client.IndexerFunc) error {
	i.WithIndex(o, name, keys)
	return nil
}

// apiServer holds the objects.
func apiServer(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.RoutingPlane{}).WithReturnManagedFields()
	for _, err := range []error{
		clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		addIndexes(t.Context(), indexer{builder}), index.Setup(t.Context(), indexer{builder}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return builder.Build()
}

func planeNamed(name string) *v1alpha1.RoutingPlane {
	return &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: name, UID: "1"}}
}

func TestAStatusThatSomebodyElseWroteMeanwhileIsNotOverwritten(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(c client.Client, plane *v1alpha1.RoutingPlane) error
		stale     bool
		want      v1alpha1.Stage
	}{
		"nothing": {func(client.Client, *v1alpha1.RoutingPlane) error { return nil }, false, v1alpha1.StageFlags},
		"the spec was changed": {func(c client.Client, plane *v1alpha1.RoutingPlane) error {
			plane.Spec.Rollout.Paused = true
			return c.Update(t.Context(), plane)
		}, false, v1alpha1.StageFlags},
		"another leader wrote the status": {func(c client.Client, plane *v1alpha1.RoutingPlane) error {
			plane.Status.Stage = v1alpha1.StageSettled
			return c.Status().Update(t.Context(), plane)
		}, true, v1alpha1.StageSettled},
	} {
		t.Run(name, func(t *testing.T) {
			c := apiServer(t, planeNamed("llm"))
			r := &PlaneReconciler{Client: c, Live: c}
			read := func() *v1alpha1.RoutingPlane {
				t.Helper()
				plane := planeNamed("llm")
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(plane), plane); err != nil {
					t.Fatal(err)
				}
				return plane
			}
			before := read()
			if err := test.meanwhile(c, read()); err != nil {
				t.Fatal(err)
			}
			plane := before.DeepCopy()
			plane.Status.Stage = v1alpha1.StageFlags
			if err := r.writeStatus(t.Context(), before, plane); errors.Is(err, errStale) != test.stale || !test.stale && err != nil {
				t.Errorf("got %v", err)
			}
			if got := read(); got.Status.Stage != test.want || test.want == v1alpha1.StageFlags && plane.ResourceVersion != got.ResourceVersion {
				t.Errorf("stored %+v in version %s, returned version %s", got.Status, got.ResourceVersion, plane.ResourceVersion)
			}
		})
	}
}

func TestAPlaneThatIsGoneIsGivenNothing(t *testing.T) {
	e := &executor{PlaneReconciler: &PlaneReconciler{Client: apiServer(t)}, seen: &observation{plane: planeNamed("llm")}}
	if err := e.finalize(t.Context(), controllerutil.AddFinalizer); !errors.Is(err, errStale) {
		t.Errorf("got %v", err)
	}
}

func TestAPlanOfWhatIsNoLongerSoMovesNoStage(t *testing.T) {
	plan := &rollout.Plan{Stage: v1alpha1.StageRelease}
	some := []rollout.Step{{Kind: rollout.StepDisown}}
	for name, test := range map[string]struct {
		before v1alpha1.Stage
		done   []rollout.Step
		failed error
		want   v1alpha1.Stage
	}{
		"done":                   {v1alpha1.StageBase, some, nil, v1alpha1.StageRelease},
		"nothing to do":          {v1alpha1.StageBase, nil, nil, v1alpha1.StageRelease},
		"stale":                  {v1alpha1.StageBase, nil, fmt.Errorf("%w: it changed", errStale), v1alpha1.StageBase},
		"stale after a step":     {v1alpha1.StageBase, some, fmt.Errorf("%w: it changed", errStale), v1alpha1.StageRelease},
		"stale in the first one": {"", nil, fmt.Errorf("%w: it changed", errStale), v1alpha1.StageRelease},
		"refused":                {v1alpha1.StageBase, nil, errors.New("forbidden"), v1alpha1.StageRelease},
	} {
		if got := reached(test.before, plan, test.done, test.failed); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestAFailureIsOneEvent(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	router := &rollout.Workload{Kind: "Deployment", Name: "router"}
	failure := func(at time.Time, why string) rollout.Step {
		return rollout.Step{Kind: rollout.StepRecord, Workload: router, Why: why, Record: rollout.Record{Failed: at, Message: "container router exits"}}
	}
	stalled := func(status metav1.ConditionStatus, message string) *v1alpha1.RoutingPlane {
		plane := planeNamed("llm")
		plane.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: status, Reason: rollout.ReasonRevisionFailed, Message: message}}
		return plane
	}
	const told = "what policy nvcf/a changes is held: r failed: container router exits"
	for name, test := range map[string]struct {
		before, after *v1alpha1.RoutingPlane
		done          []rollout.Step
		want          []string
	}{
		"that the plane is stuck for, and whose it is": {stalled("False", ""), stalled("True", told), []rollout.Step{failure(now, "r failed"), failure(now, "r failed by what policy nvcf/a changes")},
			[]string{"Warning RevisionFailed " + told}},
		"that is tried apart":                            {stalled("False", ""), stalled("False", ""), []rollout.Step{failure(now, "r failed")}, []string{"Warning RevisionFailed r failed"}},
		"that is known, and now it is known whose it is": {stalled("False", ""), stalled("False", ""), []rollout.Step{failure(now.Add(-time.Minute), "r failed by what policy nvcf/a changes")}, nil},
		"of a plane that is stuck already":               {stalled("True", "other"), stalled("True", told), []rollout.Step{failure(now, "r failed")}, []string{"Warning RevisionFailed r failed"}},
		"beside another that the plane is stuck for": {stalled("False", ""), stalled("True", "other"), []rollout.Step{failure(now, "r failed")},
			[]string{"Warning RevisionFailed r failed", "Warning RevisionFailed other"}},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			(&PlaneReconciler{Recorder: recorder}).announce(test.before, test.after, test.done, false, now)
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				got = append(got, e)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestAPlaneIsLookedAtWhenOneIsGoneThatHasItsWorkload(t *testing.T) {
	gone := planeNamed("former")
	gone.Spec.Gateways = []v1alpha1.GatewaySpec{{WorkloadRef: v1alpha1.WorkloadReference{Kind: "Deployment", Name: "gateway"}}}
	naming := func(name string, ref v1alpha1.WorkloadReference) *v1alpha1.RoutingPlane {
		plane := planeNamed(name)
		plane.Spec.Stargate.WorkloadRef = ref
		return plane
	}
	left := metav1.ObjectMeta{Namespace: "nvcf", Name: "router", Annotations: map[string]string{workload.AnnotationPlane: "former"}}
	c := apiServer(t, &appsv1.StatefulSet{ObjectMeta: left},
		naming("names-what-was-left", v1alpha1.WorkloadReference{Kind: "StatefulSet", Name: "router"}),
		naming("names-another-kind", v1alpha1.WorkloadReference{Kind: "Deployment", Name: "router"}),
		naming("names-its-gateway", v1alpha1.WorkloadReference{Kind: "Deployment", Name: "gateway"}))
	var names []string
	for _, request := range (&PlaneReconciler{Cache: c}).planesBeside(t.Context(), gone) {
		names = append(names, request.Name)
	}
	slices.Sort(names)
	if want := "[names-its-gateway names-what-was-left]"; fmt.Sprint(names) != want {
		t.Errorf("got %v, want %s", names, want)
	}
}

func TestAStatusThatIsTakenIsNoticed(t *testing.T) {
	status := func(generation int64) (*v1alpha1.RoutingPlane, *v1alpha1.RoutingPolicy) {
		return &v1alpha1.RoutingPlane{Status: v1alpha1.RoutingPlaneStatus{ObservedGeneration: generation}},
			&v1alpha1.RoutingPolicy{Status: v1alpha1.RoutingPolicyStatus{ObservedGeneration: generation}}
	}
	plane, policy := status(2)
	noPlane, noPolicy := status(-1)
	for _, o := range []struct{ with, without client.Object }{{plane, noPlane}, {policy, noPolicy}} {
		if !tamperedWith().Update(event.UpdateEvent{ObjectOld: o.with, ObjectNew: o.without}) {
			t.Errorf("%T: its loss is not noticed", o.with)
		}
		if tamperedWith().Update(event.UpdateEvent{ObjectOld: o.without, ObjectNew: o.with}) {
			t.Errorf("%T: the operator's own write is taken for somebody else's", o.with)
		}
	}
}
