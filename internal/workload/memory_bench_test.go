package workload_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/routing-operator/routing-operator/internal/workload"
)

// ordinary is a pod that is nothing to the operator, as most pods of a cluster are.
const ordinary = `
metadata:
  generateName: checkout-6b8f7c9d54-
  labels: {app.kubernetes.io/name: checkout, app.kubernetes.io/instance: checkout, app.kubernetes.io/version: 4.7.1, app.kubernetes.io/part-of: shop,
    app.kubernetes.io/managed-by: Helm, team: payments, environment: production, security.istio.io/tlsMode: istio, service.istio.io/canonical-name: checkout, pod-template-hash: 6b8f7c9d54}
  annotations: {prometheus.io/scrape: "true", kubectl.kubernetes.io/restartedAt: "2026-01-02T03:04:05Z", checksum/config: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}
  creationTimestamp: "2026-01-02T03:04:05Z"
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: checkout-6b8f7c9d54, uid: 8a1bd8f5-73cb-44cf-a92c-6a3c4d5e6f70, controller: true, blockOwnerDeletion: true}]
spec:
  nodeName: ip-10-20-30-40.eu-central-1.compute.internal
  serviceAccountName: checkout
  initContainers:
  - {name: migrate, image: "registry.example.com/shop/checkout:4.7.1", args: [migrate, up], volumeMounts: [{name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]}
  containers:
  - name: checkout
    image: registry.example.com/shop/checkout:4.7.1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    args: [serve, --http-port=8080, --config=/etc/checkout/config.yaml]
    env: [{name: LOG_LEVEL, value: info}, {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    envFrom: [{configMapRef: {name: checkout-env}}]
    resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 256Mi}}
    volumeMounts:
    - {name: config, mountPath: /etc/checkout, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  - name: istio-proxy
    image: registry.example.com/mesh/proxyv2:1.27.0
    args: [proxy, sidecar, --domain, $(POD_NAMESPACE).svc.cluster.local]
    volumeMounts:
    - {name: certs, mountPath: /var/run/secrets/istio}
    - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  volumes:
  - {name: config, configMap: {name: checkout-config, defaultMode: 420}}
  - {name: tmp, emptyDir: {}}
  - {name: certs, configMap: {name: istio-ca-root-cert, defaultMode: 420}}
  - {name: token, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}]}}
status:
  phase: Running
  podIP: 10.128.12.34
  hostIP: 10.20.30.40
  startTime: "2026-01-02T03:04:05Z"
  conditions:
  - {type: PodReadyToStartContainers, status: "True", lastTransitionTime: "2026-01-02T03:04:10Z"}
  - {type: Initialized, status: "True", lastTransitionTime: "2026-01-02T03:04:10Z"}
  - {type: Ready, status: "True", lastTransitionTime: "2026-01-02T03:04:20Z"}
  - {type: ContainersReady, status: "True", lastTransitionTime: "2026-01-02T03:04:20Z"}
  - {type: PodScheduled, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}
  initContainerStatuses:
  - {name: migrate, image: "registry.example.com/shop/checkout:4.7.1", imageID: "sha256:0123", ready: true, restartCount: 0, state: {terminated: {exitCode: 0, reason: Completed, containerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", startedAt: "2026-01-02T03:04:06Z", finishedAt: "2026-01-02T03:04:09Z"}}}
  containerStatuses:
  - {name: checkout, image: "registry.example.com/shop/checkout:4.7.1", imageID: "sha256:0123", containerID: "containerd://0123", ready: true, started: true, restartCount: 1, state: {running: {startedAt: "2026-01-02T03:04:12Z"}},
      lastState: {terminated: {exitCode: 137, reason: OOMKilled, containerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", startedAt: "2026-01-02T03:04:11Z", finishedAt: "2026-01-02T03:04:12Z"}}}
  - {name: istio-proxy, image: "registry.example.com/mesh/proxyv2:1.27.0", imageID: "sha256:4567", containerID: "containerd://4567", ready: true, started: true, restartCount: 0, state: {running: {startedAt: "2026-01-02T03:04:11Z"}}}
`

// BenchmarkCached measures what objects that are nothing to the operator take of the heap in a cluster of 20,000, in which
// ten pods are of one ReplicaSet.
func BenchmarkCached(b *testing.B) {
	b.Run("Pod", func(b *testing.B) {
		pod := &corev1.Pod{}
		unmarshal(b, ordinary, pod)
		owner := &pod.OwnerReferences[0]
		heapOf(b, func(i int) *corev1.Pod {
			hash := fmt.Sprintf("6b8f7%05d", i/10)
			pod.Namespace, pod.Name = fmt.Sprintf("team-%d", i%50), fmt.Sprintf("checkout-%s-%05d", hash, i)
			pod.UID, pod.ResourceVersion = types.UID(fmt.Sprintf("8a1bd8f5-73cb-44cf-a92c-6a3c4d5%05d", i)), strconv.Itoa(1_000_000+i)
			pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], owner.Name = hash, "checkout-"+hash
			owner.UID = types.UID(fmt.Sprintf("8a1bd8f5-73cb-44cf-a92c-6a3c4d6%05d", i/10))
			pod.Spec.NodeName = fmt.Sprintf("ip-10-20-30-%d.eu-central-1.compute.internal", i%250)
			return pod
		}, func() *corev1.Pod { return &corev1.Pod{} })
	})
	b.Run("ReplicaSet", func(b *testing.B) {
		pod := &corev1.Pod{}
		unmarshal(b, ordinary, pod)
		set := &appsv1.ReplicaSet{ObjectMeta: pod.ObjectMeta}
		set.Spec.Replicas = new(int32(0))
		set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
		set.OwnerReferences[0].Kind = "Deployment"
		heapOf(b, func(i int) *appsv1.ReplicaSet {
			hash := fmt.Sprintf("6b8f7%05d", i)
			set.Namespace, set.Name = fmt.Sprintf("team-%d", i%50), "checkout-"+hash
			set.UID, set.ResourceVersion = types.UID(fmt.Sprintf("8a1bd8f5-73cb-44cf-a92c-6a3c4d5%05d", i)), strconv.Itoa(1_000_000+i)
			set.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
			return set
		}, func() *appsv1.ReplicaSet { return &appsv1.ReplicaSet{} })
	})
}

// wired is an object as it comes from a watch.
type wired interface {
	Marshal() ([]byte, error)
	Unmarshal(wire []byte) error
}

func heapOf[T wired](b *testing.B, object func(i int) T, empty func() T) {
	b.Helper()
	kept := make([]T, 20_000)
	var before, after runtime.MemStats
	for b.Loop() {
		clear(kept)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			wire, err := object(i).Marshal()
			if err != nil {
				b.Fatal(err)
			}
			kept[i] = empty()
			if err := kept[i].Unmarshal(wire); err != nil {
				b.Fatal(err)
			}
			if _, err := workload.Strip(kept[i]); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(kept)), "B/object")
	runtime.KeepAlive(kept)
}
