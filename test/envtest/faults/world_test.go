package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

func unchanged(next http.RoundTripper) http.RoundTripper { return next }

// operate starts an operator for the site, until the spec ends or the returned function is called.
func (s *site) operate() (stop func()) {
	GinkgoHelper()
	m, err := startManager(unchanged, s.namespace)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(m.cancel)
	return func() { Expect(m.stop()).To(Succeed()) }
}

// judgedSite is a site that is judged when the spec ends.
func judgedSite(ctx context.Context, router fixtures.Stargate) *site {
	GinkgoHelper()
	s, err := newSite(ctx, router, 2)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		_, err := s.close(ctx)
		Expect(err).NotTo(HaveOccurred())
	})
	return s
}

// goes through scenarios.
func (s *site) goes(ctx context.Context, scenarios ...scenario) {
	GinkgoHelper()
	for i := range scenarios {
		Expect(scenarios[i].act(ctx, s)).To(Succeed(), scenarios[i].name)
		Expect(s.settle(ctx, scenarios[i].done)).To(Succeed(), scenarios[i].name)
	}
}

// given are the rollouts so far.
func (s *site) given(ctx context.Context) []string {
	GinkgoHelper()
	Expect(recorded.catchUp(ctx, s.namespace)).To(Succeed())
	return judged(recorded.changes(s.namespace)).given
}

// flagsOn are the models whose flag is on in every router pod that is to stay.
func (s *site) flagsOn() []string {
	on, pods := map[string]int{}, 0
	for _, pod := range kubelet.Pods(s.namespace) {
		if pod.Kind == standin.Router && !pod.Terminating {
			pods++
			for _, flag := range pod.Flags {
				on[flag.Model]++
			}
		}
	}
	models := []string{}
	for model, n := range on {
		if n == pods {
			models = append(models, model)
		}
	}
	return sorted(models)
}

// remembering are the gateway pods that do, and all of them.
func (s *site) remembering() (on, all int) {
	for _, pod := range kubelet.Pods(s.namespace) {
		if pod.Kind == standin.Gateway {
			all++
			if pod.Memory {
				on++
			}
		}
	}
	return on, all
}

// given tells whether the pod was given the revision.
func given(pod *corev1.Pod, revision string) bool {
	if fileOf(&pod.Spec) == revision {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Containers[0].Env, func(e corev1.EnvVar) bool {
		return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name == revision
	})
}

// stuckIn has the site stand in the middle of one of the rollouts by which flags are enabled.
func (s *site) stuckIn(ctx context.Context, rollout int) {
	GinkgoHelper()
	workload, revision, _ := strings.Cut(forward.given[1][rollout], " ")
	s.hold(func(pod *corev1.Pod) bool { return given(pod, revision) })
	Expect(enable.act(ctx, s)).To(Succeed())
	Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(admin.List(ctx, pods, client.InNamespace(s.namespace))).To(Succeed())
		g.Expect(pods.Items).To(ContainElement(Satisfy(func(p corev1.Pod) bool { return given(&p, revision) && p.Status.Phase == corev1.PodRunning })), workload)
	}).Should(Succeed())
}

func (s *site) scale(ctx context.Context, workload string, replicas int32) {
	GinkgoHelper()
	Expect(admin.SubResource("scale").Update(ctx, s.deployment(workload), client.WithSubResourceBody(
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: workload}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}))).To(Succeed())
}

// evict every pod of the workload, as when nodes are drained.
func (s *site) evict(ctx context.Context, container string) {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(admin.List(ctx, pods, client.InNamespace(s.namespace))).To(Succeed())
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.Containers[0].Name == container && pod.DeletionTimestamp == nil {
			Expect(client.IgnoreNotFound(admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}))).To(Succeed())
		}
	}
}

func (s *site) image(ctx context.Context, workload, tag string) {
	GinkgoHelper()
	Expect(edit(ctx, s.deployment(workload), func(d *appsv1.Deployment) {
		image := &d.Spec.Template.Spec.Containers[0].Image
		name, _, _ := strings.Cut(*image, ":")
		*image = name + ":" + tag
	})).To(Succeed())
}

func isGone(ctx context.Context, o client.Object) func() bool {
	return func() bool { return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(o), o)) }
}

// rollouts by which flags are enabled, as baseline.given has them after the first.
var rollouts = map[string]int{"its base file": 1, "the memory": 2, "the first flag": 3, "the last flag": 4}

var _ = Describe("While the operator rolls out", func() {
	for what, n := range rollouts {
		It("an autoscaler may change the replicas and nodes may be drained: "+what, func(ctx SpecContext) {
			s := judgedSite(ctx, fixtures.Stargate{})
			s.operate()
			s.goes(ctx, install)
			s.stuckIn(ctx, n)
			s.scale(ctx, fixtures.Router, 4)
			s.scale(ctx, fixtures.Gateway, 3)
			s.evict(ctx, fixtures.RouterContainer)
			s.evict(ctx, fixtures.GatewayContainer)
			Expect(s.given(ctx)).To(HaveLen(n+1), "it waits")
			s.scale(ctx, fixtures.Router, 1)
			s.repair()
			Expect(s.settle(ctx, settled)).To(Succeed())
			Expect(s.given(ctx)).To(Equal(forward.given[1]))
			Eventually(s.flagsOn).Should(Equal([]string{"a", "b"}))
		})

		It("the plane may be deleted: "+what, func(ctx SpecContext) {
			s := judgedSite(ctx, fixtures.Stargate{})
			s.operate()
			s.goes(ctx, install)
			s.stuckIn(ctx, n)
			plane := s.plane(v1alpha1.KindDeployment)
			Expect(admin.Delete(ctx, plane)).To(Succeed())
			s.repair()
			Eventually(isGone(ctx, plane)).Should(BeTrue())
			Eventually(s.flagsOn).Should(BeEmpty())
			gateway := s.deployment(fixtures.Gateway)
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(gateway), gateway)).To(Succeed())
			Expect(gateway.Spec.Template.Spec.Containers[0].Env).NotTo(ContainElement(HaveField("Name", HavePrefix("STARGATE_LAST_CLUSTER"))))
		})
	}

	It("the namespace may be deleted", func(ctx SpecContext) {
		s, err := newSite(ctx, fixtures.Stargate{}, 2) // and not judged: everything goes, in any order
		Expect(err).NotTo(HaveOccurred())
		s.operate()
		s.goes(ctx, install)
		s.stuckIn(ctx, rollouts["the first flag"])
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
		Expect(admin.Delete(ctx, namespace)).To(Succeed())
		Eventually(isGone(ctx, namespace)).Should(BeTrue())
		s.repair()
	})
})

var _ = Describe("The operator", func() {
	for _, workload := range []string{fixtures.Router, fixtures.Gateway} {
		It("waits for a rollout of somebody else's: "+workload, func(ctx SpecContext) {
			s := judgedSite(ctx, fixtures.Stargate{})
			s.operate()
			s.goes(ctx, install, enable)
			s.hold(func(pod *corev1.Pod) bool { return strings.HasSuffix(pod.Spec.Containers[0].Image, ":0.22.9") })
			s.image(ctx, workload, "0.22.9")
			Expect(s.await(ctx, rolls)).To(Succeed())
			Expect(s.repolicy(ctx, models(true, 8))).To(Succeed())
			Expect(s.settle(ctx, func(objects []client.Object) string {
				for _, o := range objects {
					if plane, ok := o.(*v1alpha1.RoutingPlane); ok && conditions(plane)["Reconciling=True"] != rollout.ReasonRollingOut {
						return fmt.Sprint(conditions(plane))
					}
				}
				return ""
			})).To(Succeed())
			Consistently(s.given, time.Second, 100*time.Millisecond).WithArguments(ctx).Should(Equal(forward.given[1]))
			s.repair()
			Expect(s.settle(ctx, settled)).To(Succeed())
			Expect(s.given(ctx)).To(HaveLen(len(forward.given[1]) + 1))
		})
	}

	It("goes on with a router that was deleted and made anew as another kind", func(ctx SpecContext) {
		s := judgedSite(ctx, fixtures.Stargate{PodManagement: appsv1.ParallelPodManagement})
		s.operate()
		plane := s.plane(v1alpha1.KindStatefulSet)
		Expect(admin.Create(ctx, plane)).To(Succeed())
		Expect(s.settle(ctx, settled)).To(Succeed())
		s.goes(ctx, enable)
		Eventually(s.flagsOn).Should(Equal([]string{"a", "b"}))
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fixtures.Router}}
		Expect(admin.Delete(ctx, set)).To(Succeed())
		Expect(admin.Create(ctx, fixtures.Stargate{Replicas: new(int32(2))}.Objects(s.namespace)[0])).To(Succeed())
		Expect(edit(ctx, plane, func(p *v1alpha1.RoutingPlane) { p.Spec.Stargate.WorkloadRef.Kind = v1alpha1.KindDeployment })).To(Succeed())
		Expect(s.settle(ctx, settled)).To(Succeed())
		Eventually(s.flagsOn).Should(Equal([]string{"a", "b"}))
	})

	It("moves a policy's models and flags to another plane, and says nothing of namespaces that are not its own", func(ctx SpecContext) {
		from, to := judgedSite(ctx, fixtures.Stargate{}), judgedSite(ctx, fixtures.Stargate{})
		m, err := startManager(unchanged, from.namespace, to.namespace)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.cancel)
		host := to.plane(v1alpha1.KindDeployment)
		host.Spec.AllowedPolicies.Namespaces.From = v1alpha1.NamespacesFromAll
		Expect(admin.Create(ctx, host)).To(Succeed())
		Expect(to.settle(ctx, settled)).To(Succeed())
		from.goes(ctx, install, enable)
		Expect(edit(ctx, from.policy(), func(p *v1alpha1.RoutingPolicy) { p.Spec.PlaneRef.Namespace = to.namespace })).To(Succeed())
		Expect(from.settle(ctx, settled)).To(Succeed())
		Eventually(to.flagsOn).Should(Equal([]string{"a", "b"}))
		Expect(to.settle(ctx, settled)).To(Succeed())
		Eventually(func() int { on, _ := from.remembering(); return on }).Should(BeZero())
		Eventually(from.flagsOn).Should(BeEmpty())
		Expect(from.settle(ctx, settled)).To(Succeed())
		Expect(logged.about("unknown namespace")).To(BeEmpty())
	})

	It("changes nothing when planes and policies come back from a backup without their status", func(ctx SpecContext) {
		s := judgedSite(ctx, fixtures.Stargate{})
		stop := s.operate()
		s.goes(ctx, install, enable)
		stop()
		plane, policy := s.plane(v1alpha1.KindDeployment), s.policy(models(true, 4)...)
		Expect(edit(ctx, s.plane(v1alpha1.KindDeployment), func(p *v1alpha1.RoutingPlane) { p.Finalizers = nil })).To(Succeed())
		for _, object := range []client.Object{plane, policy} {
			old := object.DeepCopyObject().(client.Object)
			Expect(admin.Delete(ctx, old)).To(Succeed())
			Eventually(isGone(ctx, old)).Should(BeTrue())
			Expect(admin.Create(ctx, object)).To(Succeed())
		}
		Eventually(func(g Gomega) { // what belonged to the policy that is gone
			versions := &appsv1.ControllerRevisionList{}
			g.Expect(admin.List(ctx, versions, client.InNamespace(s.namespace))).To(Succeed())
			g.Expect(versions.Items).To(BeEmpty())
		}).Should(Succeed())
		s.operate()
		Expect(s.settle(ctx, settled)).To(Succeed())
		Expect(s.given(ctx)).To(Equal(forward.given[1]))
		Eventually(s.flagsOn).Should(Equal([]string{"a", "b"}))
	})

	It("comes to terms with all that changed while it was down", func(ctx SpecContext) {
		s := judgedSite(ctx, fixtures.Stargate{})
		stop := s.operate()
		s.goes(ctx, install, enable)
		stop()
		s.scale(ctx, fixtures.Router, 3)
		s.image(ctx, fixtures.Router, "0.22.9")
		s.image(ctx, fixtures.Gateway, "0.22.9")
		s.evict(ctx, fixtures.GatewayContainer)
		Expect(s.repolicy(ctx, models(true, 9)[:1])).To(Succeed())
		other := s.policy(models(true, 3)[1:]...)
		other.Name = "mistral"
		other.Spec.Models[0].Name = "c"
		Expect(admin.Create(ctx, other)).To(Succeed())
		Expect(edit(ctx, s.plane(v1alpha1.KindDeployment), func(p *v1alpha1.RoutingPlane) {
			p.Spec.LastCluster.TTL = &metav1.Duration{Duration: 7 * time.Minute}
		})).To(Succeed())
		s.operate()
		Expect(s.settle(ctx, settled)).To(Succeed())
		Eventually(s.flagsOn).Should(Equal([]string{"a", "c"}))
		Eventually(func(g Gomega) {
			for _, pod := range kubelet.Pods(s.namespace) {
				switch {
				case pod.Terminating:
				case pod.Kind == standin.Router:
					g.Expect(string(pod.File)).To(And(ContainSubstring(`"max_queued":9`), Not(ContainSubstring(`"b"`))))
				case pod.Kind == standin.Gateway:
					g.Expect(pod.Env).To(HaveKeyWithValue("STARGATE_LAST_CLUSTER_TTL", "7m0s"))
				}
			}
		}).Should(Succeed())
	})
})
