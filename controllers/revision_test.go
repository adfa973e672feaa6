package controllers

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

func TestARevisionCarriesWhatBecameOfEachWorkload(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 123456000, time.UTC)
	first := &rollout.Step{
		Kind: rollout.StepEnsureRevision, Workload: &rollout.Workload{Kind: "Deployment", Name: "llm-api-gateway"},
		Artefact: render.ArtefactGateway, Data: render.GatewayVariables(v1alpha1.LastClusterSpec{}, true), Wave: 2,
		Record: rollout.Record{Applied: at},
	}
	first.Revision = render.RevisionName("llm", first.Artefact, first.Data)
	cm, err := newRevision("nvcf", "llm", first)
	if err != nil {
		t.Fatal(err)
	}
	seen := observeRevision(cm, readContent("llm", cm))
	if !seen.Intact || seen.Wave != 2 {
		t.Errorf("a new revision is seen as %+v", seen)
	}
	for label := range cm.Labels { // an instance label of a GitOps tool would have it pruned
		if !strings.HasPrefix(label, "routing.nvcf.io/") && label != labelManagedBy {
			t.Errorf("label %s is not the operator's own", label)
		}
	}
	if len(cm.OwnerReferences) > 0 {
		t.Errorf("owned by %v: it would go with the plane while pods need it", cm.OwnerReferences)
	}
	second := &rollout.Step{
		Workload: &rollout.Workload{Kind: "Deployment", Name: "llm-api-gateway-eu"},
		Record: rollout.Record{Applied: at, Completed: at.Add(time.Minute), Template: "abc", Failed: at.Add(time.Hour), Retry: "1", Message: "why",
			Gate: &v1alpha1.GateRecord{Before: "llm-stargate-a", RequestsBefore: 100, ServerErrorsBefore: 1, Failed: true}},
	}
	text, err := rollout.EncodeRecords(withRecord(seen.Records, second))
	if err != nil {
		t.Fatal(err)
	}
	cm.Annotations[annotationRecords] = text
	want := map[string]rollout.Record{first.Workload.Key(): first.Record, second.Workload.Key(): second.Record}
	got := observeRevision(cm, content{}).Records
	for key, record := range got { // the zone that times are read in does not matter
		record.Applied, record.Completed, record.Failed = record.Applied.UTC(), record.Completed.UTC(), record.Failed.UTC()
		got[key] = record
	}
	want[first.Workload.Key()] = rollout.Record{Applied: at, Completed: time.Time{}.UTC(), Failed: time.Time{}.UTC()}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("records %+v, want %+v", got, want)
	}
	cm.Annotations[annotationRecords] = "tampered"
	if records := observeRevision(cm, content{}).Records; records != nil {
		t.Errorf("records %+v of an annotation that cannot be read", records)
	}
}
