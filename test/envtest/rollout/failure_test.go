package rollout

import (
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

var _ = Describe("A file that Stargate refuses", func() {
	It("costs one surge pod, is named in the container's own words, and the last good one keeps running", func(ctx SpecContext) {
		const image = "registry.example.com/nvcf/llm-request-router:main" // of which nobody knows the release
		s := newSite(ctx, layout{router: fixtures.Stargate{Image: image}})
		s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.Stargate.Releases = []v1alpha1.ReleaseOverride{{Image: image, Version: "V3"}} // which it is not
		})
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		good := s.files()
		s.unwatched() // a pod exits, and it is meant to
		change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].FallbackMaxQueued = ptr.To[int64](3) })
		s.conditioned(s.stored(), v1alpha1.ConditionStalled, "True", rollout.ReasonRevisionFailed)
		plane := s.stored()
		s.conditioned(plane, v1alpha1.ConditionReady, "False", rollout.ReasonRevisionFailed)
		Expect(plane.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionStalled), HaveField("Message", ContainSubstring("fallback_max_queued")))))
		s.conditioned(policy, v1alpha1.ConditionProgrammed, "False", "EarlierVersionKept")
		Eventually(s.files).Should(Equal(good))

		By("mending the policy")
		change(s, policy, func(p *v1alpha1.RoutingPolicy) {
			p.Spec.Models[0].FallbackMaxQueued = nil
			p.Spec.Models[0].MaxQueued = ptr.To[int64](6)
		})
		s.conditioned(policy, v1alpha1.ConditionReady, "True", "Programmed")
		s.conditioned(s.stored(), v1alpha1.ConditionReady, "True", rollout.ReasonSettled)
	})

	It("is put down to one policy of several, and the changes of the others get through", func(ctx SpecContext) {
		const image = "registry.example.com/nvcf/llm-request-router:main"
		s := newSite(ctx, layout{router: fixtures.Stargate{Image: image}})
		s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.Stargate.Releases = []v1alpha1.ReleaseOverride{{Image: image, Version: "V3"}}
		})
		policies := []*v1alpha1.RoutingPolicy{s.policy("one", plain("a")), s.policy("two", plain("b")), s.policy("three", plain("c"))}
		s.settled(policies...)
		s.unwatched()
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Paused = true })
		for _, policy := range policies {
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = new(int64(9)) })
		}
		change(s, policies[1], func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].FallbackMaxQueued = new(int64(3)) })
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Paused = false })

		s.conditioned(policies[0], v1alpha1.ConditionReady, "True", "Programmed")
		s.conditioned(policies[2], v1alpha1.ConditionReady, "True", "Programmed")
		plane := s.stored()
		s.conditioned(plane, v1alpha1.ConditionStalled, "True", rollout.ReasonRevisionFailed)
		Expect(plane.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionStalled), HaveField("Message", And(
			ContainSubstring("what policy "+s.namespace+"/two changes is held"), ContainSubstring("fallback_max_queued"))))))
		s.conditioned(policies[1], v1alpha1.ConditionProgrammed, "False", "EarlierVersionKept")
		Eventually(func(g Gomega) {
			held := &v1alpha1.RoutingPolicy{}
			g.Expect(admin.Get(ctx, s.key("two"), held)).To(Succeed())
			g.Expect(held.Status.Models).To(ConsistOf(And(HaveField("State", v1alpha1.ModelHeld),
				HaveField("Message", And(ContainSubstring("did not start with the change"), Not(ContainSubstring("fallback_max_queued")))))))
		}).Should(Succeed())

		By("changing another policy, which the held one does not hold up")
		change(s, policies[0], func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = new(int64(11)) })
		before := s.counts()
		s.conditioned(policies[0], v1alpha1.ConditionReady, "True", "Programmed")
		Expect(s.since(before)[0]).To(BeNumerically("<=", 1), "the guilty is not tried with it")

		By("mending the policy")
		change(s, policies[1], func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].FallbackMaxQueued = nil })
		s.settled(policies...)
	})

	for _, management := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		It("leaves no pod of a StatefulSet behind, neither after going back nor after a change that comes first: "+string(management), func(ctx SpecContext) {
			const image = "registry.example.com/nvcf/llm-request-router:main"
			s := newSite(ctx, layout{router: fixtures.Stargate{Image: image, PodManagement: management, Replicas: new(int32(3))}})
			s.plane(func(p *v1alpha1.RoutingPlane) {
				p.Spec.Stargate.Releases = []v1alpha1.ReleaseOverride{{Image: image, Version: "V3"}}
			})
			policy := s.policy("llama", plain("a"))
			s.settled(policy)
			good := s.files()
			serving := func(pods []standin.Snapshot) (ready int) {
				for _, pod := range pods {
					if pod.Kind == standin.Router && pod.Ready && !pod.Terminating {
						ready++
					}
				}
				return ready
			}
			exits := func(pods []standin.Snapshot) bool {
				return slices.ContainsFunc(pods, func(pod standin.Snapshot) bool {
					return pod.Kind == standin.Router && pod.Restarts > 0 && !pod.Ready
				})
			}
			present := func() []standin.Snapshot { return kubelet.Pods(s.namespace) }
			s.unwatched()
			record := kubelet.Record(s.namespace)
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].FallbackMaxQueued = new(int64(3)) })
			s.conditioned(s.stored(), v1alpha1.ConditionStalled, "True", rollout.ReasonRevisionFailed)
			Eventually(s.files).Should(Equal(good))
			Eventually(present).Should(WithTransform(serving, Equal(3)))
			record.Stop()
			Expect(record.States()).To(ContainElement(Satisfy(exits)))
			Expect(record.States()).To(HaveEach(WithTransform(serving, BeNumerically(">=", 2))), "one replica fails, and no other is touched")

			By("a change that is bad, mended as soon as its first pod exits")
			late := kubelet.When(func(pod *corev1.Pod) bool { return pod.Namespace == s.namespace },
				func(b *standin.Behaviour) { b.Backoff, b.MaxBackoff = 5*time.Second, 5*time.Second }) // until it would be given up
			defer late()
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].FallbackMaxQueued = new(int64(4)) })
			Eventually(present).Should(Satisfy(exits))
			change(s, policy, func(p *v1alpha1.RoutingPolicy) {
				p.Spec.Models[0].FallbackMaxQueued, p.Spec.Models[0].MaxQueued = nil, new(int64(6))
			})
			s.settled(policy)
			Eventually(present).Should(WithTransform(serving, Equal(3)))
		})
	}
})
