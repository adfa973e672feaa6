package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/internal/workload"
)

func owned(manager string, operation metav1.ManagedFieldsOperationType, container string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "apps/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"gateway\"}":` + container + `}}}}}`)}
}

const (
	enabledByValue = `{"f:env":{"k:{\"name\":\"STARGATE_LAST_CLUSTER_ENABLED\"}":{".":{},"f:name":{},"f:value":{}}}}`
	enabledName    = `{"f:env":{"k:{\"name\":\"STARGATE_LAST_CLUSTER_ENABLED\"}":{".":{},"f:name":{}}}}`
	otherVariable  = `{"f:env":{"k:{\"name\":\"OTHER\"}":{".":{},"f:name":{},"f:value":{}}}}`
	field          = `.spec.template.spec.containers[name="gateway"].env[name="STARGATE_LAST_CLUSTER_ENABLED"]`
)

func TestRivalsOwnWhatTheOperatorWouldSetAndNeverHad(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	enabled := []corev1.EnvVar{{Name: "STARGATE_LAST_CLUSTER_ENABLED", Value: "true"}}
	status := owned("kube-controller-manager", update, enabledByValue)
	status.Subresource = "status"
	for name, test := range map[string]struct {
		env     []corev1.EnvVar
		entries []metav1.ManagedFieldsEntry
		want    workload.Ownership
	}{
		"nothing is set": {nil, []metav1.ManagedFieldsEntry{owned("helm", update, otherVariable)}, workload.Ownership{}},
		"a chart's variable": {enabled, []metav1.ManagedFieldsEntry{owned("helm", apply, enabledByValue)},
			workload.Ownership{Rivals: []rollout.Rival{{Manager: "helm", Field: field}}, Sharers: []string{"helm"}}},
		"two managers of one": {enabled, []metav1.ManagedFieldsEntry{owned("kubectl", update, enabledByValue), owned("helm", apply, enabledName)},
			workload.Ownership{Rivals: []rollout.Rival{{Manager: "helm", Field: field}, {Manager: "kubectl", Field: field}}, Sharers: []string{"helm", "kubectl"}}},
		"of which nobody says whose it is": {enabled, nil, workload.Ownership{Rivals: []rollout.Rival{{Manager: "unknown", Field: field}}}},
		"the operator's own":               {enabled, []metav1.ManagedFieldsEntry{owned("routing-operator", apply, enabledByValue)}, workload.Ownership{}},
		"the operator's, with a value by another": {enabled, []metav1.ManagedFieldsEntry{owned("routing-operator", apply, enabledName), owned("kubectl-set", update, enabledByValue)},
			workload.Ownership{Sharers: []string{"kubectl-set"}}},
		"patched by the operator":   {enabled, []metav1.ManagedFieldsEntry{owned("routing-operator", update, enabledByValue)}, workload.Ownership{Updated: true}},
		"the status is no template": {enabled, []metav1.ManagedFieldsEntry{status, owned("routing-operator", apply, enabledByValue)}, workload.Ownership{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gatewayReader().OwnershipOf(test.entries, &corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Env: test.env}}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestManagedFieldsThatCannotBeReadAreAnError(t *testing.T) {
	entry := owned("helm", metav1.ManagedFieldsOperationApply, "{")
	if _, err := gatewayReader().OwnershipOf([]metav1.ManagedFieldsEntry{entry}, &corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway"}}}); err == nil {
		t.Error("they were passed over in silence")
	}
}

func TestAMountOfSomebodyElsesIsARivalOrAProblem(t *testing.T) {
	for name, test := range map[string]struct {
		mount  corev1.VolumeMount
		rivals int
		hides  bool
	}{
		"at the operator's directory":       {corev1.VolumeMount{Name: "x", MountPath: "/etc/routing-operator"}, 1, false},
		"at the file":                       {corev1.VolumeMount{Name: "x", MountPath: "/etc/routing-operator/lb-config.json", SubPath: "f"}, 0, true},
		"at the directory, otherwise spelt": {corev1.VolumeMount{Name: "x", MountPath: "/etc/routing-operator/"}, 0, true},
		"above it":                          {corev1.VolumeMount{Name: "x", MountPath: "/etc"}, 0, false},
		"beside it":                         {corev1.VolumeMount{Name: "x", MountPath: "/etc/routing-operator-2"}, 0, false},
		"in it, where the file is not":      {corev1.VolumeMount{Name: "x", MountPath: "/etc/routing-operator/tls"}, 0, false},
		"the operator's own":                {corev1.VolumeMount{Name: "routing-lb-config", MountPath: "/etc/routing-operator/"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, router)
			s.Volumes = nil
			s.Containers[1].VolumeMounts = []corev1.VolumeMount{test.mount}
			reader := stargateReader()
			o, err := reader.OwnershipOf(nil, s)
			if err != nil {
				t.Fatal(err)
			}
			if problem := reader.Problem(s); len(o.Rivals) != test.rivals || (problem != "") != test.hides {
				t.Errorf("rivals %v, problem %q", o.Rivals, problem)
			}
		})
	}
}

func TestAVariableThatIsThereTwiceIsAProblem(t *testing.T) {
	twice := func(name string) *corev1.PodSpec {
		return &corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Env: []corev1.EnvVar{{Name: name, Value: "a"}, {Name: name, Value: "b"}}}}}
	}
	if problem := gatewayReader().Problem(twice("STARGATE_LAST_CLUSTER_TTL")); !contains(problem, "STARGATE_LAST_CLUSTER_TTL 2 times") {
		t.Errorf("got %q", problem)
	}
	if problem := gatewayReader().Problem(twice("OTHER")); problem != "" {
		t.Errorf("a variable that is none of the operator's business: %q", problem)
	}
}
