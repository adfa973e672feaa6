package patch_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/patch"
	"github.com/routing-operator/routing-operator/internal/render"
)

var (
	stargate = patch.Fields{Plane: "llm", Artefact: render.ArtefactStargate, Revision: "llm-stargate-1", Container: "router", ConfigPath: "/etc/routing-operator/lb-config.json"}
	gateway  = patch.Fields{Plane: "llm", Artefact: render.ArtefactGateway, Revision: "llm-gateway-1", Container: "gateway"}
	target   = patch.Target{Kind: v1alpha1.KindDeployment, Namespace: "nvcf", Name: "workload", ResourceVersion: "7"}
)

func TestAnApplyHasTheOperatorsFieldsAndNothingElse(t *testing.T) {
	renamed := stargate
	renamed.ConfigPath = "/etc/routing-operator/other.json"
	for name, test := range map[string]struct {
		kind   string
		fields patch.Fields
		want   string
	}{
		"a router gets the volume and its mount": {v1alpha1.KindDeployment, stargate, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: workload, namespace: nvcf, resourceVersion: "7", annotations: {routing.nvcf.io/plane: llm}}
spec:
  template:
    spec:
      containers:
      - name: router
        volumeMounts: [{name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]
      volumes: [{name: routing-lb-config, configMap: {name: llm-stargate-1}}]
`},
		"a file of another name is a projection of the key": {v1alpha1.KindStatefulSet, renamed, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: workload, namespace: nvcf, resourceVersion: "7", annotations: {routing.nvcf.io/plane: llm}}
spec:
  template:
    spec:
      containers:
      - name: router
        volumeMounts: [{name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]
      volumes: [{name: routing-lb-config, configMap: {name: llm-stargate-1, items: [{key: lb-config.json, path: other.json}]}}]
`},
		"a gateway gets its variables": {v1alpha1.KindDeployment, gateway, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: workload, namespace: nvcf, resourceVersion: "7", annotations: {routing.nvcf.io/plane: llm}}
spec:
  template:
    spec:
      containers:
      - name: gateway
        env:
        - {name: STARGATE_LAST_CLUSTER_ENABLED, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_ENABLED}}}
        - {name: STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES}}}
        - {name: STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT}}}
        - {name: STARGATE_LAST_CLUSTER_TTL, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_TTL}}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			target := target
			target.Kind = test.kind
			config, err := patch.Apply(target, test.fields)
			if err != nil {
				t.Fatal(err)
			}
			sameYAML(t, config, test.want)
		})
	}
}

func TestLettingGoAppliesNoField(t *testing.T) {
	for name, test := range map[string]struct{ plane, want string }{
		"at first the annotation stays": {"llm", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: workload, namespace: nvcf, resourceVersion: "7", annotations: {routing.nvcf.io/plane: llm}}}`},
		"and then goes too":             {"", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: workload, namespace: nvcf, resourceVersion: "7"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := patch.LetGo(target, test.plane)
			if err != nil {
				t.Fatal(err)
			}
			sameYAML(t, config, test.want)
		})
	}
}

func TestAnUnknownKindIsRefused(t *testing.T) {
	target := target
	target.Kind = "DaemonSet"
	if _, err := patch.Apply(target, gateway); err == nil {
		t.Error("Apply took a DaemonSet")
	}
	if _, err := patch.LetGo(target, ""); err == nil {
		t.Error("LetGo took a DaemonSet")
	}
}

func TestWhatAnApplyWouldLeaveIsMended(t *testing.T) {
	for name, test := range map[string]struct {
		fields       patch.Fields
		before, want string
	}{
		"a plain value beside the reference": {gateway,
			`{containers: [{name: sidecar}, {name: gateway, image: a, env: [{name: B, value: b}, {name: STARGATE_LAST_CLUSTER_ENABLED, value: "false"}, {name: A, value: $(B)}]}]}`,
			`{containers: [{name: sidecar}, {name: gateway, image: a, env: [{name: B, value: b},
             {name: STARGATE_LAST_CLUSTER_ENABLED, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_ENABLED}}}, {name: A, value: $(B)},
             {name: STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES}}},
             {name: STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT}}},
             {name: STARGATE_LAST_CLUSTER_TTL, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_TTL}}}]}]}`},
		"another source of a variable": {gateway,
			`{containers: [{name: gateway, env: [{name: STARGATE_LAST_CLUSTER_TTL, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}`,
			`{containers: [{name: gateway, env: [
             {name: STARGATE_LAST_CLUSTER_TTL, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_TTL}}},
             {name: STARGATE_LAST_CLUSTER_ENABLED, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_ENABLED}}},
             {name: STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES}}},
             {name: STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT, valueFrom: {configMapKeyRef: {name: llm-gateway-1, key: STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT}}}]}]}`},
		"another source of the volume": {stargate,
			`{containers: [{name: router, volumeMounts: [{name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]}], volumes: [{name: other, emptyDir: {}}, {name: routing-lb-config, emptyDir: {}}]}`,
			`{containers: [{name: router, volumeMounts: [{name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]}], volumes: [{name: other, emptyDir: {}}, {name: routing-lb-config, configMap: {name: llm-stargate-1}}]}`},
		"a volume that may be missing, and shows other keys": {stargate,
			`{containers: [{name: router}], volumes: [{name: routing-lb-config, configMap: {name: old, optional: true, items: [{key: a, path: b}]}}]}`,
			`{containers: [{name: router, volumeMounts: [{name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]}], volumes: [{name: routing-lb-config, configMap: {name: llm-stargate-1}}]}`},
		"a path within the volume": {stargate,
			`{containers: [{name: router, volumeMounts: [{name: x, mountPath: /x}, {name: other, mountPath: /etc/routing-operator, subPath: a}]}], volumes: [{name: routing-lb-config, configMap: {name: old}}]}`,
			`{containers: [{name: router, volumeMounts: [{name: x, mountPath: /x}, {name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]}], volumes: [{name: routing-lb-config, configMap: {name: llm-stargate-1}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := &appsv1.Deployment{}
			parse(t, test.before, &before.Spec.Template.Spec)
			if !patch.NeedsMending(&before.Spec.Template.Spec, test.fields) {
				t.Error("it is not seen that an apply would not do")
			}
			after := before.DeepCopy()
			patch.Mend(&after.Spec.Template, test.fields)
			want := &corev1.PodSpec{}
			parse(t, test.want, want)
			if diff := cmp.Diff(want, &after.Spec.Template.Spec); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if patch.NeedsMending(&after.Spec.Template.Spec, test.fields) {
				t.Error("it is still to be mended")
			}
		})
	}
}

func TestWhatAnApplyOverwritesNeedsNoMending(t *testing.T) {
	for name, test := range map[string]struct {
		fields patch.Fields
		spec   string
	}{
		"an old revision": {stargate,
			`{containers: [{name: router, volumeMounts: [{name: routing-lb-config, mountPath: /etc/routing-operator, readOnly: true}]}], volumes: [{name: routing-lb-config, configMap: {name: old, defaultMode: 420}}]}`},
		"nothing at all":                      {stargate, `{containers: [{name: router}]}`},
		"a value of another container":        {gateway, `{containers: [{name: sidecar, env: [{name: STARGATE_LAST_CLUSTER_TTL, value: 1m}]}, {name: gateway}]}`},
		"an empty value beside the reference": {gateway, `{containers: [{name: gateway, env: [{name: STARGATE_LAST_CLUSTER_TTL, value: "", valueFrom: {configMapKeyRef: {name: old, key: k}}}]}]}`},
		"a missing container":                 {gateway, `{containers: [{name: other}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{}
			parse(t, test.spec, spec)
			if patch.NeedsMending(spec, test.fields) {
				t.Error("it is taken for something that an apply cannot set right")
			}
		})
	}
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func sameYAML(t *testing.T, got any, want string) {
	t.Helper()
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var have, wanted any
	if err := json.Unmarshal(data, &have); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, have); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
