package rollout

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/patch"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

var _ = Describe("Restarts are counted on the real controllers", func() {
	for kind, router := range map[string]fixtures.Stargate{
		"a Deployment":            {},
		"a parallel StatefulSet":  {PodManagement: appsv1.ParallelPodManagement},
		"an ordered StatefulSet":  {PodManagement: appsv1.OrderedReadyPodManagement},
		"a router with a sidecar": {Sidecar: true},
	} {
		It("enables flags by two rollouts of Stargate and one of the gateway, and takes them back by one of each: "+kind, func(ctx SpecContext) {
			s := newSite(ctx, layout{router: router})
			s.plane()
			s.settled()
			before := s.counts()

			By("enabling two flags in one wave")
			policy := s.policy("llama", flagged("a"), flagged("b"))
			s.settled(policy)
			Expect(s.flagsOn()).To(Equal([]string{"a", "b"}))
			Expect(s.since(before)).To(Equal([]int{2, 1}))

			By("changing a tuning field")
			before = s.counts()
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = ptr.To[int64](5) })
			s.settled(policy)
			Expect(s.flagsOn()).To(Equal([]string{"a", "b"}))
			Expect(s.since(before)).To(Equal([]int{1, 0}))

			By("disabling one of two flags")
			before = s.counts()
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].LastClusterAffinity = nil })
			s.settled(policy)
			Expect(s.flagsOn()).To(Equal([]string{"b"}))
			Expect(s.since(before)).To(Equal([]int{1, 0}))

			By("disabling the last")
			before = s.counts()
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[1].LastClusterAffinity = nil })
			s.settled(policy)
			Expect(s.flagsOn()).To(BeEmpty())
			Eventually(func() int { on, _ := s.memories(); return on }).Should(BeZero())
			Expect(s.since(before)).To(Equal([]int{1, 1}))
		})
	}

	It("rolls out once per wave", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.Waves = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("50%"), intstr.FromString("100%")}
		})
		s.settled()
		before := s.counts()
		policy := s.policy("llama", flagged("a"), flagged("b"), flagged("c"), flagged("d"), flagged("e"))
		s.settled(policy)
		Expect(s.flagsOn()).To(HaveLen(5))
		Expect(s.since(before)).To(Equal([]int{1 + 3, 1}), "the base, and waves of 1, 2 and 2")
	})

	It("adds and removes models and policies by one rollout of Stargate each and none of the gateway", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		s.settled()
		first := s.policy("first", plain("a"))
		s.settled(first)

		before := s.counts()
		second := s.policy("second", plain("b"))
		s.settled(first, second)
		Expect(s.since(before)).To(Equal([]int{1, 0}), "a policy without flags")

		before = s.counts()
		change(s, second, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models = append(p.Spec.Models, plain("c")) })
		s.settled(first, second)
		Expect(s.since(before)).To(Equal([]int{1, 0}), "a further model")

		before = s.counts()
		Expect(admin.Delete(ctx, first)).To(Succeed())
		Eventually(s.files).Should(HaveEach(Not(ContainSubstring(`"a"`))))
		s.settled(second)
		Expect(s.since(before)).To(Equal([]int{1, 0}), "a policy less")
		Expect(s.files()).To(HaveEach(And(ContainSubstring(`"b"`), ContainSubstring(`"c"`))))
	})

	It("takes a deleted policy's flags back before the memory", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		before := s.counts()
		Expect(admin.Delete(ctx, policy)).To(Succeed())
		Eventually(func() int { on, _ := s.memories(); return on }).Should(BeZero())
		s.settled()
		Expect(s.since(before)).To(Equal([]int{1, 1}))
	})

	It("restarts nothing for an edit that renders the same file", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		scaled := plain("a")
		scaled.NextBucketUnlockFactor = ptr.To[v1alpha1.Decimal]("0.50")
		policy := s.policy("llama", scaled, plain("b"))
		s.settled(policy)
		before := s.counts()
		change(s, policy, func(p *v1alpha1.RoutingPolicy) {
			p.Spec.Models[0].NextBucketUnlockFactor = ptr.To[v1alpha1.Decimal]("5e-1")
			p.Spec.Models[0], p.Spec.Models[1] = p.Spec.Models[1], p.Spec.Models[0]
		})
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{0, 0}))
	})

	It("lands on the last of several quick edits", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		for _, queued := range []int64{7, 8, 7, 9, 7} {
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = new(queued) })
		}
		s.settled(policy)
		Expect(s.files()).To(HaveEach(ContainSubstring(`"max_queued":7`)))
	})

	It("keeps a file of an earlier build that means the same", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		data := map[string]string{render.LBConfigKey: "{ \"models\" : {\"a\": { \"max_queued\": 4, \"algorithm\": \"pulsar-wait-and-widen\" }},\n\"default\": \"power-of-n\" }\n"}
		name := s.planted(ctx, data)
		Eventually(s.files).Should(HaveEach(ContainSubstring(`{ "max_queued": 4`)))
		before := s.counts()
		policy := s.policy("llama", plain("a"))
		s.conditioned(policy, v1alpha1.ConditionAccepted, "False", "PlaneNotFound") // and looked at
		s.plane()
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{0, 0}))
		plane := s.stored()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		Expect(plane.Status.Stargate.Revision).To(Equal(name))
	})
})

// planted makes a revision and gives it to the router as an earlier operator would have.
func (s *site) planted(ctx context.Context, data map[string]string) string {
	GinkgoHelper()
	name := render.RevisionName(planeName, render.ArtefactStargate, data)
	Expect(admin.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name,
			Labels: map[string]string{
				"app.kubernetes.io/managed-by": "routing-operator", "routing.nvcf.io/plane": planeName, "routing.nvcf.io/artefact": render.ArtefactStargate,
			},
			Annotations: map[string]string{"routing.nvcf.io/plane": planeName},
		},
		Data: data, Immutable: new(true),
	})).To(Succeed())
	Eventually(func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(s.router), s.router); err != nil {
			return err
		}
		config, err := patch.Apply(
			patch.Target{Kind: kindOf(s.router), Namespace: s.namespace, Name: s.router.GetName(), ResourceVersion: s.router.GetResourceVersion()},
			patch.Fields{Plane: planeName, Artefact: render.ArtefactStargate, Revision: name, Container: fixtures.RouterContainer, ConfigPath: fixtures.OperatorConfigPath})
		if err != nil {
			return fmt.Errorf("building the apply configuration: %w", err)
		}
		return admin.Apply(ctx, config, client.FieldOwner("routing-operator"))
	}).Should(Succeed())
	return name
}
