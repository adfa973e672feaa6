package workload_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/internal/workload"
)

func TestADeploymentIsRolledOutWhenEveryCountIsWhatIsWanted(t *testing.T) {
	for name, test := range map[string]struct {
		object    string
		rolledOut bool
		hold      bool
	}{
		"complete":                       {`{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}}`, true, false},
		"counts of before the change":    {`{metadata: {generation: 3}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}}`, false, false},
		"an old pod is left":             {`{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 4, updatedReplicas: 3, readyReplicas: 4, availableReplicas: 4}}`, false, false},
		"not all are updated":            {`{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 2, readyReplicas: 3, availableReplicas: 3}}`, false, false},
		"ready and not yet available":    {`{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 2}}`, false, false},
		"available without a pod":        {`{metadata: {generation: 1}, spec: {replicas: 1}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, conditions: [{type: Available, status: "True"}]}}`, false, false},
		"an old deadline does not count": {`{metadata: {generation: 2}, spec: {replicas: 1}, status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, conditions: [{type: Progressing, status: "False"}]}}`, true, false},
		"scaled to zero":                 {`{metadata: {generation: 2}, spec: {replicas: 0}, status: {observedGeneration: 2}}`, true, false},
		"scaled to zero with a pod left": {`{metadata: {generation: 2}, spec: {replicas: 0}, status: {observedGeneration: 2, replicas: 1}}`, false, false},
		"without a number it is one":     {`{metadata: {generation: 1}, status: {observedGeneration: 1}}`, false, false},
		"paused":                         {`{metadata: {generation: 1}, spec: {replicas: 0, paused: true}, status: {observedGeneration: 1}}`, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{}
			if err := yaml.UnmarshalStrict([]byte(test.object), d); err != nil {
				t.Fatal(err)
			}
			if got := workload.DeploymentState(d); got.RolledOut != test.rolledOut || (got.Hold != "") != test.hold {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAStatefulSetIsRolledOutWhenItsRevisionsAreOne(t *testing.T) {
	for name, test := range map[string]struct {
		object    string
		rolledOut bool
		hold      bool
	}{
		"complete":                    {`{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 2, currentRevision: b, updateRevision: b}}`, true, false},
		"on the way":                  {`{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}}`, false, false},
		"not observed":                {`{metadata: {generation: 3}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, readyReplicas: 2, availableReplicas: 2, currentRevision: b, updateRevision: b}}`, false, false},
		"a replica is not ready":      {`{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, readyReplicas: 1, availableReplicas: 1, currentRevision: b, updateRevision: b}}`, false, false},
		"scaled to zero":              {`{metadata: {generation: 2}, spec: {replicas: 0}, status: {observedGeneration: 2, currentRevision: b, updateRevision: b}}`, true, false},
		"replaced by hand only":       {`{metadata: {generation: 1}, spec: {replicas: 0, updateStrategy: {type: OnDelete}}, status: {observedGeneration: 1}}`, true, true},
		"a partition keeps some back": {`{metadata: {generation: 1}, spec: {replicas: 0, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}, status: {observedGeneration: 1}}`, true, true},
		"a partition of none":         {`{metadata: {generation: 1}, spec: {replicas: 0, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}}, status: {observedGeneration: 1}}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &appsv1.StatefulSet{}
			if err := yaml.UnmarshalStrict([]byte(test.object), s); err != nil {
				t.Fatal(err)
			}
			if got := workload.StatefulSetState(s); got.RolledOut != test.rolledOut || (got.Hold != "") != test.hold {
				t.Errorf("got %+v", got)
			}
		})
	}
}
