package standin_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

var (
	env     *testenv.Environment
	c       client.Client
	typed   kubernetes.Interface
	kubelet *standin.Standin
)

func TestStandin(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Stand-in for scheduler and kubelet")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	started := time.Now()
	var err error
	env, err = testenv.Start(ctx, testenv.Options{ControllerManager: true, WithoutCRDs: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	AddReportEntry("start of the control plane", time.Since(started).String())

	c, err = client.New(env.Config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	typed, err = kubernetes.NewForConfig(env.Config)
	Expect(err).NotTo(HaveOccurred())
	releases, err := release.ParseTable(fixtures.Releases())
	Expect(err).NotTo(HaveOccurred())
	kubelet, err = standin.Start(ctx, env.Config, standin.Options{Releases: &releases})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(kubelet.Stop)
})

// create makes the objects and returns the first, the workload.
func create(ctx context.Context, objects []client.Object) client.Object {
	GinkgoHelper()
	Expect(fixtures.Create(ctx, c, objects)).To(Succeed())
	return objects[0]
}

func namespace(ctx context.Context) string {
	GinkgoHelper()
	ns, err := env.Namespace(ctx, "standin")
	Expect(err).NotTo(HaveOccurred())
	return ns
}

// rolledOut tells whether the workload's own status reports a complete rollout.
func rolledOut(ctx context.Context, workload client.Object) func() bool {
	return func() bool {
		if err := c.Get(ctx, client.ObjectKeyFromObject(workload), workload); err != nil {
			return false
		}
		switch w := workload.(type) {
		case *appsv1.Deployment:
			return fixtures.RolledOut(w)
		case *appsv1.StatefulSet:
			s, n := w.Status, *w.Spec.Replicas
			return s.ObservedGeneration == w.Generation && s.ReadyReplicas == n && s.UpdatedReplicas == n && s.CurrentRevision == s.UpdateRevision
		}
		return false
	}
}

func pods(ctx context.Context, ns string) []corev1.Pod {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(ns)); err != nil {
		return nil
	}
	return list.Items
}

// container finds the status of a container by name in the only pod of the namespace; zero while there is none.
func container(ctx context.Context, ns, name string) corev1.ContainerStatus {
	all := pods(ctx, ns)
	if len(all) != 1 {
		return corev1.ContainerStatus{}
	}
	for _, s := range all[0].Status.ContainerStatuses {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

func waiting(ctx context.Context, ns, name string) func() string {
	return func() string {
		if w := container(ctx, ns, name).State.Waiting; w != nil {
			return w.Reason
		}
		return ""
	}
}

func logs(ctx context.Context, pod corev1.Pod, options corev1.PodLogOptions) (string, error) {
	data, err := typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).DoRaw(ctx)
	return string(data), err
}

func inNamespace(ns string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Namespace == ns }
}

func one() *int32 { return ptr.To[int32](1) }

func configMap(ns, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: data}
}

func gone(ctx context.Context, o client.Object) func() bool {
	return func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(o), o)) }
}
