package preflight_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/routing-operator/routing-operator/internal/preflight"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

var candidate = preflight.Candidate{
	Namespace: "nvcf", Plane: metav1.OwnerReference{APIVersion: "routing.nvcf.io/v1alpha1", Kind: "RoutingPlane", Name: "llm", UID: "1", BlockOwnerDeletion: new(true)},
	Revision: "llm-stargate-abc", Template: "0123456789abcdef", Container: fixtures.RouterContainer, Deadline: 31 * time.Minute,
}

// router is the platform's own template, changed.
func router(change ...func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
	template := &fixtures.Stargate{}.Objects("nvcf")[0].(*appsv1.Deployment).Spec.Template
	for _, f := range change {
		f(template)
	}
	return template
}

func claim(name string, change ...func(*corev1.PersistentVolumeClaimSpec)) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range change {
		f(&c.Spec)
	}
	return c
}

func volume(name string, source corev1.VolumeSource) func(*corev1.PodTemplateSpec) {
	return func(t *corev1.PodTemplateSpec) {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		t.Spec.Containers[0].VolumeMounts = append(t.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name, ReadOnly: name == "read"})
	}
}

func TestThePodOfThePlatformsTemplateIsStargateAndNothingElse(t *testing.T) {
	got, err := yaml.Marshal(preflight.Pod(router(), nil, candidate))
	if err != nil {
		t.Fatal(err)
	}
	const want = `metadata:
  annotations:
    cluster-autoscaler.kubernetes.io/safe-to-evict: "true"
    linkerd.io/inject: disabled
    sidecar.istio.io/inject: "false"
  labels:
    routing.nvcf.io/preflight: 0123456789abcdef
  name: llm-preflight-fa6635de325f7f4b
  namespace: nvcf
  ownerReferences:
  - apiVersion: routing.nvcf.io/v1alpha1
    controller: true
    kind: RoutingPlane
    name: llm
    uid: "1"
spec:
  activeDeadlineSeconds: 1860
  containers:
  - args:
    - --http-port=8000
    - --readiness-warmup-ms=60000
    - --lb-config-path=/etc/routing-operator/lb-config.json
    env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: POD_IP
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    image: registry.example.com/nvcf/llm-request-router:0.22.0
    name: helm-nvcf-llm-request-router
    ports:
    - containerPort: 8000
      name: http
    - containerPort: 50071
      name: grpc
    - containerPort: 9090
      name: metrics
    - containerPort: 50072
      name: reverse
      protocol: UDP
    readinessProbe:
      httpGet:
        path: /readyz
        port: http
      periodSeconds: 5
    resources: {}
  readinessGates:
  - conditionType: routing.nvcf.io/serves
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 1
status: {}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatOthersFindAPodByIsLeftOut(t *testing.T) {
	template := router(func(t *corev1.PodTemplateSpec) {
		t.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "fast", "prometheus.io/scrape": "true", "sidecar.istio.io/inject": "true", "vault.hashicorp.com/agent-inject": "true"}
		spec, stays := &t.Spec, corev1.ContainerRestartPolicyAlways
		spec.Hostname, spec.Subdomain, spec.PriorityClassName, spec.SetHostnameAsFQDN = "router", "headless", "critical", new(true)
		spec.HostPID, spec.HostIPC, spec.ShareProcessNamespace = true, true, new(true)
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1}}
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gang"}}
		spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "target-health.alb"}}
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}, PodAffinity: &corev1.PodAffinity{}}
		spec.InitContainers = []corev1.Container{{Name: "prepare"}, {Name: "proxy", RestartPolicy: &stays}}
		spec.Containers[0].Ports[0].HostPort, spec.Containers[0].Ports[0].HostIP = 8000, "10.0.0.1"
		spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}, PreStop: &corev1.LifecycleHandler{}}
		spec.Containers[0].StartupProbe = &corev1.Probe{}
		spec.Containers[0].RestartPolicy = &stays
		spec.Containers = slices.Insert(spec.Containers, 0, corev1.Container{Name: "registrar"})
		// What a program needs in order to start is kept.
		spec.ServiceAccountName, spec.NodeSelector = "router", map[string]string{"pool": "cpu"}
		spec.Tolerations = []corev1.Toleration{{Key: "pool"}}
		spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true)}
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	})
	before := template.DeepCopy()
	if problem := preflight.Problem(template, nil); problem != "" {
		t.Fatal(problem)
	}
	pod := preflight.Pod(template, nil, candidate)
	if diff := cmp.Diff(before, template); diff != "" {
		t.Errorf("the template was changed: %s", diff)
	}
	spec := &pod.Spec
	if got := slices.Sorted(maps.Keys(pod.Labels)); !slices.Equal(got, []string{preflight.LabelTemplate}) {
		t.Errorf("labels %v", got)
	}
	if diff := cmp.Diff(map[string]string{"vault.hashicorp.com/agent-inject": "true", "sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled",
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, pod.Annotations); diff != "" {
		t.Error(diff)
	}
	if spec.Hostname+spec.Subdomain+spec.PriorityClassName != "" || spec.SetHostnameAsFQDN != nil || spec.HostPID || spec.HostIPC || spec.TopologySpreadConstraints != nil || spec.SchedulingGates != nil {
		t.Errorf("kept too much: %+v", spec)
	}
	if len(spec.ReadinessGates) != 1 || spec.ReadinessGates[0].ConditionType != preflight.ReadinessGate {
		t.Errorf("readiness gates %v", spec.ReadinessGates)
	}
	if a := spec.Affinity; a == nil || a.NodeAffinity == nil || a.PodAffinity != nil || a.PodAntiAffinity != nil {
		t.Errorf("affinity %+v", a)
	}
	if len(spec.InitContainers) != 1 || spec.InitContainers[0].Name != "prepare" {
		t.Errorf("init containers %v", spec.InitContainers)
	}
	if len(spec.Containers) != 1 || spec.Containers[0].Name != fixtures.RouterContainer {
		t.Fatalf("containers %v", spec.Containers)
	}
	if c := &spec.Containers[0]; c.Lifecycle != nil || c.LivenessProbe != nil || c.StartupProbe != nil || c.ReadinessProbe == nil || c.RestartPolicy != nil || c.Ports[0].HostPort != 0 || c.Ports[0].HostIP != "" {
		t.Errorf("container %+v", c)
	}
	if spec.ServiceAccountName != "router" || spec.NodeSelector["pool"] != "cpu" || len(spec.Tolerations) != 1 || spec.SecurityContext == nil || len(spec.ImagePullSecrets) != 1 {
		t.Errorf("kept too little: %+v", spec)
	}
}

func TestNoServiceNorWorkloadOfThePlatformSelectsThePod(t *testing.T) {
	for name, stargate := range map[string]fixtures.Stargate{"Deployment": {}, "StatefulSet": {PodManagement: appsv1.ParallelPodManagement}} {
		t.Run(name, func(t *testing.T) {
			selectors := 0
			objects := stargate.Objects("nvcf")
			var template *corev1.PodTemplateSpec
			for _, object := range objects {
				selector := labels.Nothing()
				switch o := object.(type) {
				case *corev1.Service:
					selector = labels.SelectorFromSet(o.Spec.Selector)
				case *appsv1.Deployment:
					template, selector = &o.Spec.Template, labels.SelectorFromSet(o.Spec.Selector.MatchLabels)
				case *appsv1.StatefulSet:
					template, selector = &o.Spec.Template, labels.SelectorFromSet(o.Spec.Selector.MatchLabels)
				}
				if !selector.Matches(labels.Set(template.Labels)) {
					continue // of no concern to Stargate's pods
				}
				selectors++
				if selector.Matches(labels.Set(preflight.Pod(template, nil, candidate).Labels)) {
					t.Errorf("%T %s selects it", object, object.GetName())
				}
			}
			if selectors < 3 {
				t.Errorf("only %d selectors: the workload, a Service and the one for peers", selectors)
			}
		})
	}
}

func TestClaimsBecomeEmptyDirectories(t *testing.T) {
	template := router(volume("scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}),
		volume("state", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "whatever"}}),
		volume("settings", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}))
	claims := []corev1.PersistentVolumeClaim{claim("state")}
	if problem := preflight.Problem(template, claims); problem != "" {
		t.Fatal(problem)
	}
	pod := preflight.Pod(template, claims, candidate)
	empty := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if _, twice := empty[v.Name]; twice {
			t.Errorf("volume %s is there twice", v.Name)
		}
		empty[v.Name] = v.EmptyDir != nil && v.PersistentVolumeClaim == nil && v.Ephemeral == nil
	}
	if diff := cmp.Diff(map[string]bool{"scratch": true, "state": true, "settings": false}, empty); diff != "" {
		t.Error(diff)
	}
}

func TestOwnLabelsAreThoseOfTheTemplate(t *testing.T) {
	template := router(func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Env = append(t.Spec.Containers[0].Env, own("metadata.labels['app.kubernetes.io/instance']"))
	})
	if problem := preflight.Problem(template, nil); problem != "" {
		t.Fatal(problem)
	}
	env := preflight.Pod(template, nil, candidate).Spec.Containers[0].Env
	if last := env[len(env)-1]; last.Value != "llm-request-router" || last.ValueFrom != nil {
		t.Errorf("the variable is %+v", last)
	}
}

func own(path string) corev1.EnvVar {
	return corev1.EnvVar{Name: "OWN", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func TestNoPodIsMadeOfATemplateWhereItWouldDoHarmOrProveNothing(t *testing.T) {
	env := func(path string) func(*corev1.PodTemplateSpec) {
		return func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Env = []corev1.EnvVar{own(path)} }
	}
	block := corev1.PersistentVolumeBlock
	labelsFile := []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}
	for name, test := range map[string]struct {
		change func(*corev1.PodTemplateSpec)
		claims []corev1.PersistentVolumeClaim
		want   string // empty: one is made
	}{
		"the platform's own": {},
		"the node's network": {change: func(t *corev1.PodTemplateSpec) { t.Spec.HostNetwork = true }, want: "it is on its node's network"},
		"a device":           {change: func(t *corev1.PodTemplateSpec) { t.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic"}} }, want: "it claims devices"},
		"a claim": {change: volume("data", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "router-data"}}),
			want: "volume data is the claim router-data"},
		"a claim for each pod":                        {claims: []corev1.PersistentVolumeClaim{claim("data")}},
		"a claim for each pod, filled from elsewhere": {claims: []corev1.PersistentVolumeClaim{claim("data", func(s *corev1.PersistentVolumeClaimSpec) { s.DataSource = &corev1.TypedLocalObjectReference{} })}, want: "claim template data is not empty"},
		"a block device for each pod":                 {claims: []corev1.PersistentVolumeClaim{claim("data", func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeMode = &block })}, want: "claim template data is a block device"},
		"a directory of the node":                     {change: volume("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var"}}), want: "volume host is a directory of the node"},
		"a directory of the node, to read":            {change: volume("read", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/localtime"}})},
		"a file system of the network":                {change: volume("nfs", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), want: "volume nfs is of a kind"},
		"secrets of a driver":                         {change: volume("csi", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io", ReadOnly: new(true)}})},
		"a driver's volume to write":                  {change: volume("csi", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "cache"}}), want: "volume csi is of a kind"},
		"a secret":                                    {change: volume("tls", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}})},
		"its labels in a file":                        {change: volume("info", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: labelsFile}}), want: "volume info has the pod's labels"},
		"its labels in a projected file": {change: volume("info", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: labelsFile}}}}}), want: "volume info has the pod's labels"},
		"its name and address":                       {change: env("status.podIP")},
		"a label of the template":                    {change: env("metadata.labels['app.kubernetes.io/name']")},
		"a label that its controller gives":          {change: env("metadata.labels['apps.kubernetes.io/pod-index']"), want: "variable OWN of container helm-nvcf-llm-request-router is a label"},
		"an annotation":                              {change: env("metadata.annotations['x']"), want: "variable OWN"},
		"the operator's own fields are of no weight": {change: volume("routing-lb-config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}})},
	} {
		t.Run(name, func(t *testing.T) {
			template := router()
			if test.change != nil {
				test.change(template)
			}
			got := preflight.Problem(template, test.claims)
			if (got == "") != (test.want == "") || !strings.HasPrefix(strings.TrimPrefix(got, "the volume of "), test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestThereIsOneNameForEachFileAndTemplate(t *testing.T) {
	long := candidate
	long.Plane.Name = strings.Repeat("plane.", 40)
	other, image := candidate, candidate
	other.Revision, image.Template = "llm-stargate-def", "fedcba9876543210"
	names := map[string]bool{}
	for _, c := range []preflight.Candidate{candidate, candidate, long, other, image} {
		name := c.Name()
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > 63 {
			t.Errorf("%q: %v", name, problems)
		}
		names[name] = true
	}
	if len(names) != 4 {
		t.Errorf("the names are %v", slices.Sorted(maps.Keys(names)))
	}
}
