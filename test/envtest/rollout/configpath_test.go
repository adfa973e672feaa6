package rollout

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
)

var _ = Describe("A plane that is created anew with another configPath", func() {
	It("leaves the file where Stargate reads it, and so does its end, which waits no longer than the deadline", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		first := s.plane(func(p *v1alpha1.RoutingPlane) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
		s.settled(s.policy("llama", flagged("a")))
		before := s.counts()
		Expect(admin.Delete(ctx, first)).To(Succeed())
		Eventually(isGone(first)).Should(BeTrue())

		second := s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.Stargate.ConfigPath = "/etc/routing-operator/v2/lb-config.json"
			p.Spec.Rollout.ProgressDeadline = &metav1.Duration{Duration: 3 * time.Second}
		})
		s.conditioned(second, v1alpha1.ConditionStalled, "True", rollout.ReasonWorkloadProblem)
		Expect(admin.Delete(ctx, second)).To(Succeed())
		Eventually(isGone(second)).Should(BeTrue())
		Expect(s.since(before)).To(Equal([]int{0, 0}))
		Expect(s.flagsOn()).To(Equal([]string{"a"}))
		for _, workload := range append(s.gateways, s.router) {
			Expect(admin.Get(ctx, s.key(workload.GetName()), workload)).To(Succeed())
			Expect(workload.GetAnnotations()).NotTo(HaveKey("routing.nvcf.io/plane"))
		}
	})
})
