package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/revision"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// revisionOf a file that was complete some minutes before noon; 0 is never.
func revisionOf(t *testing.T, name, text string, minutes int) *past {
	t.Helper()
	file, err := lbconfig.Read([]byte(text), release.Newest)
	if err != nil {
		t.Fatal(err)
	}
	p := &past{name: name, artefact: "stargate", intact: true, file: file}
	if minutes > 0 {
		p.completed = noon.Add(-time.Duration(minutes) * time.Minute)
	}
	return p
}

func TestGoingBackChoosesWhatRanBeforeTheLastChange(t *testing.T) {
	const (
		flagged  = `{"models":{"a":{"algorithm":"pulsar-wait-and-widen","last_cluster_affinity":true},"b":{"algorithm":"pulsar-wait-and-widen","last_cluster_affinity":true}}}`
		firstOne = `{"models":{"a":{"algorithm":"pulsar-wait-and-widen","last_cluster_affinity":true},"b":"pulsar-wait-and-widen"}}`
		none     = `{"models":{"a":"pulsar-wait-and-widen","b":"pulsar-wait-and-widen"}}`
		older    = `{"models":{"a":{"algorithm":"pulsar-wait-and-widen","last_cluster_affinity":true},"b":"random"}}`
	)
	plane := &v1alpha1.RoutingPlane{Status: v1alpha1.RoutingPlaneStatus{Stargate: &v1alpha1.WorkloadStatus{Revision: "current"}}}
	changed := func(p *past, change func(*past)) *past {
		change(p)
		return p
	}
	for name, test := range map[string]struct {
		revisions []*past
		to, want  string
	}{
		"the one before": {[]*past{revisionOf(t, "current", none, 1), revisionOf(t, "old", older, 9), revisionOf(t, "before", `{}`, 5)}, "", "before"},
		"a wave on the way to the present one is passed over": {
			[]*past{revisionOf(t, "current", flagged, 1), revisionOf(t, "wave", firstOne, 2), revisionOf(t, "base", none, 5)}, "", "base"},
		"flags of another configuration are none of its waves": {
			[]*past{revisionOf(t, "current", flagged, 1), revisionOf(t, "older", older, 2)}, "", "older"},
		"what never was complete, failed or was changed is passed over": {[]*past{
			revisionOf(t, "current", none, 1), revisionOf(t, "never", `{}`, 0), revisionOf(t, "good", `{}`, 9),
			changed(revisionOf(t, "failed", `{}`, 2), func(p *past) { p.failed = "exits" }),
			changed(revisionOf(t, "changed", `{}`, 3), func(p *past) { p.intact = false }),
			changed(revisionOf(t, "gateway", `{}`, 4), func(p *past) { p.artefact, p.file = "gateway", nil }),
		}, "", "good"},
		"the one that is named, complete or not": {[]*past{revisionOf(t, "current", none, 1), revisionOf(t, "never", `{}`, 0)}, "never", "never"},
		"nothing to go back to":                  {[]*past{revisionOf(t, "current", none, 1)}, "", ""},
		"a name that is none":                    {[]*past{revisionOf(t, "current", none, 1)}, "other", ""},
	} {
		t.Run(name, func(t *testing.T) {
			target, _, err := choose(plane, test.revisions, test.to)
			switch {
			case test.want == "" && err == nil:
				t.Errorf("got %s", target.name)
			case test.want != "" && err != nil:
				t.Error(err)
			case test.want != "" && target.name != test.want:
				t.Errorf("got %s, want %s", target.name, test.want)
			}
		})
	}
}

func TestGoingBackFromAPinTakesAName(t *testing.T) {
	revisions := []*past{revisionOf(t, "current", `{}`, 1), revisionOf(t, "bad", `{"default":"random"}`, 2)}
	plane := &v1alpha1.RoutingPlane{Status: v1alpha1.RoutingPlaneStatus{Stargate: &v1alpha1.WorkloadStatus{Revision: "current"}}}
	plane.Spec.Rollout.Pin = "current"
	if target, _, err := choose(plane, revisions, ""); err == nil || !strings.Contains(err.Error(), "the plane is pinned to current already; name the revision to hold instead with --to") {
		t.Errorf("got %v and %v", target, err)
	}
	if target, _, err := choose(plane, revisions, "bad"); err != nil || target.name != "bad" {
		t.Errorf("got %v and %v", target, err)
	}
}

func TestOfTwoThatWereCompleteInOneSecondTheLaterIsTheOneBefore(t *testing.T) {
	plane := &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llm"}}
	plane.Status.Stargate = &v1alpha1.WorkloadStatus{Kind: "Deployment", Name: "router", Revision: "none"}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reader := fake.NewClientBuilder().WithScheme(scheme)
	names := map[string]string{}
	for file, micros := range map[string]int{`{}`: 200_000, `{"default":"random"}`: 700_000, `{"default":"round-robin"}`: 100_000} {
		completed := noon.Add(time.Duration(micros) * time.Microsecond)
		data := map[string]string{render.LBConfigKey: file}
		name := render.RevisionName(plane.Name, render.ArtefactStargate, data)
		names[file] = name
		records, err := rollout.EncodeRecords(map[string]rollout.Record{"Deployment/router": {Completed: completed}})
		if err != nil {
			t.Fatal(err)
		}
		cm := revision.New(plane.Namespace, plane.Name, name, render.ArtefactStargate, data, 0)
		cm.Annotations[revision.AnnotationRecords] = records
		reader.WithObjects(cm)
		plane.Status.Records = append(plane.Status.Records, v1alpha1.RevisionRecord{Revision: name, Workload: "Deployment/router", CompletedAt: &metav1.Time{Time: completed.Truncate(time.Second)}})
	}
	revisions, err := pastOf(t.Context(), reader.Build(), plane)
	if err != nil {
		t.Fatal(err)
	}
	target, _, err := choose(plane, revisions, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := names[`{"default":"random"}`]; target.name != want {
		t.Errorf("goes back to %s and not to %s", target.name, want)
	}
}
