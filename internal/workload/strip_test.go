package workload_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/workload"
)

func deployment(t *testing.T, text string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: "d", Annotations: map[string]string{"routing.nvcf.io/plane": "llm", "kubectl.kubernetes.io/last-applied-configuration": "long"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "helm"}, {Manager: "kube-controller-manager", Subresource: "status"}},
	}}
	d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "router"}}, Spec: *spec(t, text)}
	return d
}

func strip[T any](t *testing.T, object T) T {
	t.Helper()
	stripped, err := workload.Strip(object)
	if err != nil {
		t.Fatal(err)
	}
	return stripped.(T)
}

func TestAStrippedTemplateReadsLikeTheWholeOne(t *testing.T) {
	whole := deployment(t, router)
	stripped := strip(t, whole.DeepCopy())
	if diff := cmp.Diff(stargateReader().Template(&whole.Spec.Template.Spec), stargateReader().Template(&stripped.Spec.Template.Spec)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(workload.HashesOf(&whole.ObjectMeta, &whole.Spec.Template), workload.HashesOf(&stripped.ObjectMeta, &stripped.Spec.Template)); diff != "" {
		t.Error(diff)
	}
	if stripped.Annotations["routing.nvcf.io/plane"] != "llm" || stripped.Annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		t.Errorf("annotations %v", stripped.Annotations)
	}
	if len(stripped.ManagedFields) != 1 || stripped.ManagedFields[0].Manager != "helm" {
		t.Errorf("managed fields %v", stripped.ManagedFields)
	}
	if diff := cmp.Diff(stripped, strip(t, stripped.DeepCopy())); diff != "" {
		t.Errorf("stripping twice: %s", diff)
	}
}

func TestTheHashOfWhatIsForeignKnowsNothingOfTheOperatorsFields(t *testing.T) {
	with := deployment(t, router)
	without := deployment(t, router)
	without.Spec.Template.Spec.Volumes, without.Spec.Template.Spec.Containers[1].VolumeMounts = nil, nil
	other := deployment(t, router)
	other.Spec.Template.Spec.Containers[1].Image = "registry:5000/nvcf/llm-request-router:0.19.0"
	hash := func(d *appsv1.Deployment) workload.Hashes { return workload.HashesOf(&d.ObjectMeta, &d.Spec.Template) }
	if hash(with).Foreign != hash(without).Foreign || hash(with).Whole == hash(without).Whole {
		t.Errorf("%v and %v", hash(with), hash(without))
	}
	if hash(with).Foreign == hash(other).Foreign {
		t.Error("another image has the same hash")
	}
	rs := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: *with.Spec.Template.DeepCopy()}}
	rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "abc"
	if workload.HashesOf(&rs.ObjectMeta, &rs.Spec.Template) != hash(with) {
		t.Error("the ReplicaSet's own label counts")
	}
}

func TestAStrippedPodKeepsWhatIsReadOfIt(t *testing.T) {
	whole := pod(t, `{phase: Running, hostIP: 10.0.0.1, conditions: [{type: Initialized, status: "True"}, {type: Ready, status: "True"}],
	  containerStatuses: [{name: helm-nvcf-llm-request-router, imageID: long, ready: true, restartCount: 1, state: {running: {}}}]}`)
	whole.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "d-abc", UID: "1", Controller: new(true)}}
	whole.Labels = map[string]string{"app": "x", appsv1.DefaultDeploymentUniqueLabelKey: "abc"}
	whole.Annotations = map[string]string{"a": "b"}
	stripped := strip(t, whole.DeepCopy())
	if diff := cmp.Diff(stargateReader().Pod(whole, true), stargateReader().Pod(stripped, true)); diff != "" {
		t.Error(diff)
	}
	if stripped.Status.HostIP != "" || stripped.Status.ContainerStatuses[0].ImageID != "" || len(stripped.Annotations) > 0 || len(stripped.Labels) != 1 || len(stripped.Status.Conditions) != 1 {
		t.Errorf("kept too much: %+v", stripped)
	}
	daemon := whole.DeepCopy()
	daemon.OwnerReferences[0].Kind = "DaemonSet"
	if got := strip(t, daemon); len(got.Spec.Containers) > 0 || got.Status.Phase != "" {
		t.Errorf("a pod of no workload of ours: %+v", got)
	}
}

func TestMountsAreKeptWhereOneOfThemMakesADifference(t *testing.T) {
	hidden := strings.Replace(router, "volumes:", "  - {name: token, mountPath: /etc/routing-operator/lb-config.json}\nvolumes:\n- {name: token, emptyDir: {}}", 1)
	for name, test := range map[string]struct {
		spec string
		kept bool
	}{
		"the operator's own, and what hides it": {hidden, true},
		"the chart's, which an argument names":  {"containers: [{name: helm-nvcf-llm-request-router, args: [--lb-config-path, /etc/lb/lb-config.json], volumeMounts: [{name: lb, mountPath: /etc/lb}]}]\nvolumes: [{name: lb, configMap: {name: llm-request-router-lb}}]", true},
		"the operator's, and no argument":       {strings.Replace(router, "--lb-config-path", "--other", 1), true},
		"another workload's":                    {"containers: [{name: helm-nvcf-llm-request-router, args: [serve], volumeMounts: [{name: c, mountPath: /etc/c}]}]\nvolumes: [{name: c, configMap: {name: c}}]", false},
	} {
		t.Run(name, func(t *testing.T) {
			whole := pod(t, "{phase: Running}")
			whole.Spec = *spec(t, test.spec)
			whole.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "d-abc", UID: "1", Controller: new(true)}}
			stripped := strip(t, whole.DeepCopy())
			for _, check := range []v1alpha1.ConfigPathCheck{v1alpha1.ConfigPathCheckArguments, v1alpha1.ConfigPathCheckSkip} {
				reader := stargateReader()
				reader.ConfigPathCheck = check
				if diff := cmp.Diff(reader.Template(&whole.Spec), reader.Template(&stripped.Spec)); diff != "" {
					t.Errorf("%s: %s", check, diff)
				}
			}
			if kept := len(stripped.Spec.Volumes) > 0; kept != test.kept {
				t.Errorf("kept volumes %v", stripped.Spec.Volumes)
			}
		})
	}
}

func TestAReplicaSetWithoutPodsKeepsItsTemplateOnlyWhereThatMayNameARevision(t *testing.T) {
	gateway := &corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Env: managedEnv()}}}
	other := &corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "other"}}}
	for name, test := range map[string]struct {
		spec            *corev1.PodSpec
		replicas, there int32
		kept            bool
	}{
		"a router's":                 {spec(t, router), 0, 0, true},
		"a gateway's":                {gateway, 0, 0, true},
		"another":                    {other, 0, 0, false},
		"another that is to have":    {other, 1, 0, true},
		"another that still has one": {other, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			rs := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: &test.replicas, Template: corev1.PodTemplateSpec{Spec: *test.spec}}}
			rs.Status.Replicas = test.there
			before := workload.HashesOf(&rs.ObjectMeta, &rs.Spec.Template)
			stripped := strip(t, rs.DeepCopy())
			if kept := len(stripped.Spec.Template.Spec.Containers) > 0; kept != test.kept {
				t.Errorf("kept %+v", stripped.Spec.Template.Spec)
			}
			if got := workload.HashesOf(&stripped.ObjectMeta, &stripped.Spec.Template); got != before {
				t.Errorf("hashes %+v, want %+v", got, before)
			}
			for _, reader := range []*workload.Reader{stargateReader(), gatewayReader()} {
				if got, want := reader.Template(&stripped.Spec.Template.Spec).Revision, reader.Template(&rs.Spec.Template.Spec).Revision; got != want {
					t.Errorf("revision %q, want %q", got, want)
				}
			}
		})
	}
}

func TestAStatefulSetsRevisionKeepsItsTemplateAndADaemonSetsNothing(t *testing.T) {
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"$patch": "replace", "spec": spec(t, router)}}})
	if err != nil {
		t.Fatal(err)
	}
	revisionOf := func(kind string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "r", OwnerReferences: []metav1.OwnerReference{{Kind: kind, UID: "1", Controller: new(true)}}},
			Data:       runtime.RawExtension{Raw: raw},
		}
	}
	set := strip(t, revisionOf("StatefulSet"))
	template, err := workload.TemplateOf(set)
	if err != nil {
		t.Fatal(err)
	}
	if got := stargateReader().Template(&template.Spec); got.Revision != revision {
		t.Errorf("got %+v", got)
	}
	whole := workload.HashesOf(&metav1.ObjectMeta{}, &corev1.PodTemplateSpec{Spec: *spec(t, router)})
	if got := workload.HashesOf(&set.ObjectMeta, template); got != whole || got == workload.HashesOf(&metav1.ObjectMeta{}, template) {
		t.Errorf("the hashes %+v are not those of the whole template, %+v", got, whole)
	}
	if daemon := strip(t, revisionOf("DaemonSet")); len(daemon.Data.Raw) > 0 {
		t.Error("a DaemonSet's revision is kept")
	}
	if policy := strip(t, revisionOf("RoutingPolicy")); len(policy.Data.Raw) != len(raw) {
		t.Error("a policy's accepted spec is cut")
	}
	damaged := revisionOf("StatefulSet")
	damaged.Data.Raw = []byte("{")
	if _, err := workload.TemplateOf(strip(t, damaged)); err == nil {
		t.Error("a revision that cannot be read is taken for an empty one")
	}
}
