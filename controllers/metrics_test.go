package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

func TestMetricsFollowThePlaneAndGoWithIt(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := planeMetricsOn(registry)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	plane := &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llm"}, Status: v1alpha1.RoutingPlaneStatus{
		Stage: v1alpha1.StageBase, Models: 3, Flags: v1alpha1.FlagsStatus{Desired: 2, On: 1},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionStalled, Status: "True"},
			{Type: v1alpha1.ConditionFlagsReady, Status: "False", Reason: rollout.ReasonMemoryOff},
		},
	}}
	router := &rollout.Workload{Kind: "Deployment", Name: "router"}
	m := &memory{started: map[string]time.Time{}}
	observe := func(changed bool, steps ...rollout.Step) { metrics.observe(plane, steps, changed, m, now) }

	observe(true, rollout.Step{Kind: rollout.StepApply, Workload: router})
	now = now.Add(42 * time.Second)
	observe(false, rollout.Step{Kind: rollout.StepRecord, Workload: router, Record: rollout.Record{Completed: now}})
	failed := rollout.Record{Failed: now}
	observe(false, rollout.Step{Kind: rollout.StepRecord, Workload: router, Record: failed})
	now = now.Add(time.Minute)
	observe(false, rollout.Step{Kind: rollout.StepRecord, Workload: router, Record: failed}) // now it is known whose it is

	const want = `
# HELP routing_operator_interlocks_total Times that flags had to be held or withdrawn, by reason.
# TYPE routing_operator_interlocks_total counter
routing_operator_interlocks_total{namespace="nvcf",plane="llm",reason="MemoryOff"} 1
# HELP routing_operator_plane_flags Units of lastClusterAffinity flags: desired, and on in every Stargate pod.
# TYPE routing_operator_plane_flags gauge
routing_operator_plane_flags{namespace="nvcf",plane="llm",state="desired"} 2
routing_operator_plane_flags{namespace="nvcf",plane="llm",state="on"} 1
# HELP routing_operator_plane_interlocked 1 while flags that are asked for must not be on.
# TYPE routing_operator_plane_interlocked gauge
routing_operator_plane_interlocked{namespace="nvcf",plane="llm"} 1
# HELP routing_operator_plane_models Models in the effective configuration.
# TYPE routing_operator_plane_models gauge
routing_operator_plane_models{namespace="nvcf",plane="llm"} 3
# HELP routing_operator_plane_ready 1 where the plane is in effect as specified.
# TYPE routing_operator_plane_ready gauge
routing_operator_plane_ready{namespace="nvcf",plane="llm"} 0
routing_operator_plane_stage: 8 series
# HELP routing_operator_plane_stalled 1 where only a person gets the plane further.
# TYPE routing_operator_plane_stalled gauge
routing_operator_plane_stalled{namespace="nvcf",plane="llm"} 1
# HELP routing_operator_plane_transitions_total Changes of stage, by the stage that was entered.
# TYPE routing_operator_plane_transitions_total counter
routing_operator_plane_transitions_total{namespace="nvcf",plane="llm",stage="Base"} 1
routing_operator_rollout_duration_seconds: 1 series
# HELP routing_operator_rollout_failures_total Revisions that failed on a workload.
# TYPE routing_operator_rollout_failures_total counter
routing_operator_rollout_failures_total{namespace="nvcf",plane="llm"} 1
`
	if got := exposed(t, registry); got != want[1:] {
		t.Errorf("exposes\n%s\nwant\n%s", got, want)
	}

	metrics.forget(types.NamespacedName{Namespace: "nvcf", Name: "llm"})
	if left := exposed(t, registry); left != "" {
		t.Errorf("series are left of a plane that is gone:\n%s", left)
	}
}

// exposed is what the registry exposes, stages and histograms apart: of these the series are counted.
func exposed(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		switch family.GetName() {
		case "routing_operator_plane_stage", "routing_operator_rollout_duration_seconds":
			fmt.Fprintf(&text, "%s: %d series\n", family.GetName(), len(family.GetMetric()))
		default:
			if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
				t.Fatal(err)
			}
		}
	}
	return text.String()
}
