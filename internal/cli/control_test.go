package cli

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

func TestARetrySaysWhatIsTriedAgain(t *testing.T) {
	failed := v1alpha1.RevisionRecord{Workload: "Deployment/router", Revision: "llm-stargate-a", FailedAt: &metav1.Time{}, Message: "unknown field"}
	retriedAlready := failed
	retriedAlready.Retry = "earlier"
	for name, test := range map[string]struct {
		status v1alpha1.RoutingPlaneStatus
		want   string
	}{
		"a failure":             {v1alpha1.RoutingPlaneStatus{Records: []v1alpha1.RevisionRecord{failed}}, "tries again:\n  llm-stargate-a on Deployment/router: unknown field"},
		"one before a retry":    {v1alpha1.RoutingPlaneStatus{Records: []v1alpha1.RevisionRecord{retriedAlready}}, "no failure on record"},
		"a field that is taken": {v1alpha1.RoutingPlaneStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: rollout.ReasonFieldContested, Message: "helm keeps changing it"}}}, "takes its fields back once more:\n  helm keeps changing it"},
		"nothing":               {v1alpha1.RoutingPlaneStatus{}, "no failure on record"},
	} {
		plane := &v1alpha1.RoutingPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "nvcf", Name: "llm"}, Status: test.status}
		if got := retried(plane); !strings.HasPrefix(got, "plane nvcf/llm ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
