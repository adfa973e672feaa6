package workload_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestAGatewayPodHasTheMemoryThatItStartedWith(t *testing.T) {
	const (
		made    = "2026-01-01T12:00:00Z" // the ConfigMap
		written = "2026-01-02T12:00:00Z" // the variable in it
		envFrom = "envFrom: [{configMapRef: {name: chart}}]"
		byKey   = "env: [{name: STARGATE_LAST_CLUSTER_ENABLED, valueFrom: {configMapKeyRef: {name: chart, key: memory}}}]"
		own     = "env: [{name: STARGATE_LAST_CLUSTER_ENABLED, valueFrom: {configMapKeyRef: {name: " + gatewayRevision + ", key: STARGATE_LAST_CLUSTER_ENABLED}}}]"
		helm    = "{manager: helm, operation: Update, time: " + made + ", fieldsType: FieldsV1, fieldsV1: {f:data: {f:LOG_LEVEL: {}}, f:metadata: {f:labels: {}}}}"
		edit    = "{manager: kubectl-edit, operation: Update, time: " + written + ", fieldsType: FieldsV1, fieldsV1: {f:data: {f:STARGATE_LAST_CLUSTER_ENABLED: {}, f:memory: {}}}}"
		another = "{manager: kubectl-edit, operation: Update, time: " + written + ", fieldsType: FieldsV1, fieldsV1: {f:data: {f:LOG_LEVEL: {}}}}"
		labels  = "{manager: kubectl-label, operation: Update, time: " + written + ", fieldsType: FieldsV1, fieldsV1: {f:metadata: {f:labels: {f:team: {}}}}}"
	)
	running := func(since string) string { return "running: {startedAt: " + since + "}" }
	for name, test := range map[string]struct {
		variables, configMapMade, managed string
		podMade, state                    string
		on                                bool
	}{
		"a pod from before the variable was written":              {envFrom, made, helm + "," + edit, "2026-01-01T13:00:00Z", running("2026-01-01T13:00:05Z"), false},
		"the same, by a reference to the key":                     {byKey, made, helm + "," + edit, "2026-01-01T13:00:00Z", running("2026-01-01T13:00:05Z"), false},
		"a pod from afterwards":                                   {envFrom, made, helm + "," + edit, "2026-01-02T12:00:01Z", running("2026-01-02T12:00:03Z"), true},
		"a pod of the same second, before it or after":            {envFrom, made, helm + "," + edit, written, running(written), false},
		"an installation within a second":                         {envFrom, written, "", written, running(written), true},
		"a node's clock that is behind":                           {envFrom, made, helm + "," + edit, "2026-01-02T12:00:01Z", running("2026-01-02T11:59:00Z"), true},
		"a container that started again afterwards":               {byKey, made, helm + "," + edit, "2026-01-01T13:00:00Z", running("2026-01-02T12:00:11Z"), true},
		"a container that did by a clock that may be ahead":       {envFrom, made, helm + "," + edit, "2026-01-01T13:00:00Z", running("2026-01-02T12:00:10Z"), false},
		"a container that is about to start again":                {envFrom, made, helm + "," + edit, "2026-01-01T13:00:00Z", "waiting: {reason: CrashLoopBackOff}", true},
		"another variable was written":                            {envFrom, made, "{manager: helm, operation: Update, time: " + made + ", fieldsV1: {f:data: {f:STARGATE_LAST_CLUSTER_ENABLED: {}}}}," + another, "2026-01-01T13:00:00Z", running("2026-01-01T13:00:05Z"), true},
		"a label was":                                             {envFrom, made, "{manager: helm, operation: Update, time: " + made + ", fieldsV1: {f:data: {f:STARGATE_LAST_CLUSTER_ENABLED: {}}}}," + labels, "2026-01-01T13:00:00Z", running("2026-01-01T13:00:05Z"), true},
		"the ConfigMap was deleted and made anew":                 {envFrom, written, "", "2026-01-01T13:00:00Z", running("2026-01-01T13:00:05Z"), false},
		"it was, before the pod was made":                         {envFrom, written, "", "2026-01-02T12:00:01Z", running("2026-01-02T12:00:05Z"), true},
		"a revision of the operator's, whose name is its content": {own, made, "", "2025-01-01T00:00:00Z", running("2025-01-01T00:00:05Z"), true},
	} {
		t.Run(name, func(t *testing.T) {
			chart := &corev1.ConfigMap{}
			unmarshal(t, "metadata: {name: chart, creationTimestamp: "+test.configMapMade+", managedFields: ["+test.managed+"]}\ndata: {STARGATE_LAST_CLUSTER_ENABLED: 'true', memory: 'true'}", chart)
			reader := gatewayReader()
			revisions := reader.Lookup
			reader.Lookup = func(name string) *corev1.ConfigMap {
				if name == "chart" {
					return chart
				}
				return revisions(name)
			}
			p := &corev1.Pod{}
			unmarshal(t, "metadata: {creationTimestamp: "+test.podMade+", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: gateway-1, uid: x, controller: true}]}\nspec: {containers: [{name: gateway, image: new, "+test.variables+"}]}\nstatus: {containerStatuses: [{name: gateway, state: {"+test.state+"}}]}", p)
			if template := reader.Template(&p.Spec); !template.Memory.On {
				t.Error("a new pod would not have the memory on")
			}
			for what, p := range map[string]*corev1.Pod{"whole": p, "stripped": strip(t, p.DeepCopy())} {
				outdated := "chart"
				if test.on {
					outdated = ""
				}
				if got := reader.Pod(p, true).Memory; got.On != test.on || got.Outdated != outdated {
					t.Errorf("%s: got %+v", what, got)
				}
			}
		})
	}
}

func unmarshal(t testing.TB, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}
