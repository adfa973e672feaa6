package rollout

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

func (s *site) model(policy *v1alpha1.RoutingPolicy, name string) func() v1alpha1.ModelState {
	return func() v1alpha1.ModelState {
		if err := admin.Get(s.ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return ""
		}
		for _, m := range policy.Status.Models {
			if m.Name == name {
				return m.State
			}
		}
		return ""
	}
}

var _ = Describe("Policies", func() {
	It("can be applied before their plane and their workloads, in any order", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		policy := s.policy("llama", flagged("a"))
		s.conditioned(policy, v1alpha1.ConditionAccepted, "False", "PlaneNotFound")
		s.conditioned(policy, v1alpha1.ConditionStalled, "False", "")
		s.conditioned(policy, v1alpha1.ConditionReconciling, "True", "")
		s.plane()
		s.settled(policy)
	})

	It("keep a model with the policy that has it, and move it when that one lets it go", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		first := s.policy("zebra", plain("a"))
		s.settled(first)
		other := plain("a")
		other.MaxQueued = ptr.To[int64](77)
		second := s.policy("ant", other, plain("b"))
		s.conditioned(second, v1alpha1.ConditionAccepted, "False", "ModelConflict")
		Eventually(s.model(second, "a")).Should(Equal(v1alpha1.ModelConflict))
		Eventually(s.model(second, "b")).Should(Equal(v1alpha1.ModelProgrammed))
		s.conditioned(first, v1alpha1.ConditionReady, "True", "")

		By("tuning the incumbent, which stays the incumbent")
		change(s, first, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = ptr.To[int64](5) })
		s.settled(first)
		Expect(s.files()).To(HaveEach(ContainSubstring(`"max_queued":5`)))

		By("taking the model out of the first policy")
		change(s, first, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].Name = "c" })
		s.settled(first, second)
		Expect(s.files()).To(HaveEach(ContainSubstring(`"max_queued":77`)))
	})

	It("come from namespaces that the plane selects, and no longer count when it selects them no more", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.AllowedPolicies.Namespaces = v1alpha1.AllowedNamespaces{
				From: v1alpha1.NamespacesFromSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"models-for": s.namespace}},
			}
		})
		s.settled()
		guest, err := env.Namespace(ctx, "guest")
		Expect(err).NotTo(HaveOccurred())
		policy := &v1alpha1.RoutingPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: guest, Name: "llama"},
			Spec: v1alpha1.RoutingPolicySpec{
				PlaneRef: v1alpha1.PlaneReference{Name: planeName, Namespace: s.namespace}, Models: []v1alpha1.Model{plain("a")},
			},
		}
		Expect(admin.Create(ctx, policy)).To(Succeed())
		s.conditioned(policy, v1alpha1.ConditionAccepted, "False", "NamespaceNotAllowed")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guest}}
		change(s, namespace, func(n *corev1.Namespace) { n.Labels["models-for"] = s.namespace })
		s.settled(policy)
		Expect(s.files()).To(HaveEach(ContainSubstring(`"a"`)))
		change(s, namespace, func(n *corev1.Namespace) { delete(n.Labels, "models-for") })
		s.conditioned(policy, v1alpha1.ConditionAccepted, "False", "NamespaceNotAllowed")
		Eventually(s.files).Should(HaveEach(Not(ContainSubstring(`"a"`))))
	})

	It("keep their last accepted spec when they turn out invalid, and take no other policy down", Serial, func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		broken := s.policy("broken", plain("a"))
		sound := s.policy("sound", plain("b"))
		s.settled(broken, sound)
		restore := withoutRules(ctx)
		change(s, broken, func(p *v1alpha1.RoutingPolicy) {
			p.Spec.Models[0].SampleCount = ptr.To[int64](3) // not for this algorithm
			p.Spec.Models[0].MaxQueued = ptr.To[int64](88)
		})
		restore()
		s.conditioned(broken, v1alpha1.ConditionStalled, "True", "Invalid")
		s.conditioned(broken, v1alpha1.ConditionAccepted, "False", "Invalid")
		Eventually(s.model(broken, "a")).Should(Equal(v1alpha1.ModelHeld))
		Expect(broken.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionAccepted),
			HaveField("Message", And(ContainSubstring("sampleCount"), ContainSubstring("last accepted version stays"))))))

		By("changing another policy of the plane")
		change(s, sound, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = ptr.To[int64](6) })
		s.settled(sound)
		Expect(s.files()).To(HaveEach(And(ContainSubstring(`"max_queued":4`), ContainSubstring(`"max_queued":6`), Not(ContainSubstring("88")))))

		By("mending it with an older spec that was accepted before")
		change(s, broken, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0] = plain("a") })
		s.settled(broken, sound)
	})

	It("say which fields the running release leaves out", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{Tag: fixtures.TagV1}})
		s.plane()
		model := flagged("a")
		model.FallbackMaxQueued = ptr.To[int64](2)
		policy := s.policy("llama", model)
		s.conditioned(policy, v1alpha1.ConditionReady, "True", "Limited")
		Expect(policy.Status.Models[0].State).To(Equal(v1alpha1.ModelLimited))
		Expect(policy.Status.Models[0].Message).To(And(ContainSubstring("fallbackMaxQueued"), ContainSubstring("lastClusterAffinity")))
		Expect(policy.Status.Models[0].EffectiveLastClusterAffinity).To(BeFalse())
		on, _ := s.memories()
		Expect(on).To(BeZero())

		By("upgrading Stargate, as Helm would")
		upgrade(s, fixtures.TagV3)
		s.conditioned(policy, v1alpha1.ConditionReady, "True", "Programmed")
		Eventually(s.flagsOn).Should(Equal([]string{"a"}))
		s.conditioned(s.stored(), v1alpha1.ConditionReady, "True", rollout.ReasonSettled)
	})
})

// withoutRules has the API server take policies that break the rules, as one did that was stored before a rule
// existed, until the returned function is called.
func withoutRules(ctx context.Context) (restore func()) {
	GinkgoHelper()
	scheme := platform.Scheme()
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(env.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	key := client.ObjectKey{Name: "routingpolicies.routing.nvcf.io"}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	Expect(c.Get(ctx, key, crd)).To(Succeed())
	kept := crd.DeepCopy()
	dropRules(crd.Object)
	Expect(c.Update(ctx, crd)).To(Succeed())
	probe := &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"},
		Spec:       v1alpha1.RoutingPolicySpec{PlaneRef: v1alpha1.PlaneReference{Name: "none"}, Models: []v1alpha1.Model{plain("a")}},
	}
	probe.Spec.Models[0].SampleCount = ptr.To[int64](3)
	Eventually(func() error { return c.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).Should(Succeed())
	return func() {
		Expect(c.Get(ctx, key, crd)).To(Succeed())
		kept.SetResourceVersion(crd.GetResourceVersion())
		Expect(c.Update(ctx, kept)).To(Succeed())
		Eventually(func() error { return c.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).ShouldNot(Succeed())
	}
}

func dropRules(node any) {
	switch n := node.(type) {
	case map[string]any:
		delete(n, "x-kubernetes-validations")
		for _, child := range n {
			dropRules(child)
		}
	case []any:
		for _, child := range n {
			dropRules(child)
		}
	}
}
