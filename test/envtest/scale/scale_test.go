package scale

import (
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
)

var _ = Describe("An operator with many planes and policies", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		const planesEach = 10
		begun := time.Now()
		var namespaces []string
		for range (scale.planes + planesEach - 1) / planesEach {
			namespace, err := env.Namespace(ctx, "scale")
			Expect(err).NotTo(HaveOccurred())
			namespaces = append(namespaces, namespace)
		}
		place := func(plane int) (namespace, name string) {
			return namespaces[plane/planesEach], fmt.Sprintf("plane-%d", plane)
		}
		for i := range scale.policies { // before their planes, which are then rolled out once less
			namespace, plane := place(i % scale.planes)
			name, flag := fmt.Sprintf("policy-%d", i), i%10 == 0
			Expect(admin.Create(ctx, policy(namespace, plane, name, model(name+"/a", flag), model(name+"/b", false), model(name+"/c", false)))).To(Succeed())
		}
		for i := range scale.planes {
			namespace, plane := place(i)
			makePlane(ctx, namespace, plane)
		}
		Eventually(unsettled(ctx)).Should(Equal(allSettled))
		quiet()
		report("settled", "%d planes and %d policies with 3 models each, after %s", scale.planes, scale.policies, time.Since(begun).Round(time.Second))
	})

	It("writes nothing when it starts anew and looks at everything", func(ctx SpecContext) {
		before := mark()
		var err error
		peak, err = manager.PeakMemory()
		Expect(err).NotTo(HaveOccurred())
		Expect(manager.Stop()).To(Succeed())
		begun := time.Now()
		manager, err = installed.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			passes, idle, err := manager.Passes(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(passes["plane"]).To(BeNumerically(">=", scale.planes))
			g.Expect(passes["policy"]).To(BeNumerically(">=", scale.policies))
			g.Expect(idle).To(BeTrue())
		}).Should(Succeed())
		passes, _, err := manager.Passes(ctx)
		Expect(err).NotTo(HaveOccurred())
		report("resync", "%d passes over planes and %d over policies, done %s after the start", passes["plane"], passes["policy"], time.Since(begun).Round(100*time.Millisecond))
		Expect(written(before)).To(BeEmpty())
	})

	It("writes nothing while nothing changes", func(ctx SpecContext) {
		before := mark()
		passesBefore, _, err := manager.Passes(ctx)
		Expect(err).NotTo(HaveOccurred())
		Consistently(written).WithArguments(before).WithTimeout(scale.idle).WithPolling(time.Second).Should(BeEmpty())
		passes, _, err := manager.Passes(ctx)
		Expect(err).NotTo(HaveOccurred())
		report("idle", "%s with %d passes over planes and %d over policies", scale.idle, passes["plane"]-passesBefore["plane"], passes["policy"]-passesBefore["policy"])
	})

	It("makes one rollout of a burst of policies", func(ctx SpecContext) {
		namespace, err := env.Namespace(ctx, "burst")
		Expect(err).NotTo(HaveOccurred())
		plane := makePlane(ctx, namespace, "burst", func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.QuietPeriod = &metav1.Duration{Duration: 10 * time.Second} // a burst ends after six of these
		})
		Eventually(unsettled(ctx)).Should(Equal(allSettled))
		before, err := strconv.Atoi(templates(ctx, plane))
		Expect(err).NotTo(HaveOccurred())

		begun := time.Now()
		var appliers errgroup.Group
		appliers.SetLimit(8)
		for i := range scale.burst {
			name := fmt.Sprintf("policy-%d", i)
			appliers.Go(func() error { return admin.Create(ctx, policy(namespace, plane.Name, name, model(name, false))) })
		}
		Expect(appliers.Wait()).To(Succeed())
		applied := time.Since(begun)
		Eventually(unsettled(ctx)).Should(Equal(allSettled))
		report("burst", "%d policies applied within %s, all ready after %s", scale.burst, applied.Round(100*time.Millisecond), time.Since(begun).Round(100*time.Millisecond))
		Expect(templates(ctx, plane)).To(Equal(strconv.Itoa(before + 1)))
	})

	It("stays within 150 MiB", func() {
		now, err := manager.PeakMemory()
		Expect(err).NotTo(HaveOccurred())
		report("peak memory", "%d MiB, then %d MiB of the manager that was started anew", peak>>20, now>>20)
		Expect(max(peak, now)).To(BeNumerically("<", 150<<20))
	})
})
