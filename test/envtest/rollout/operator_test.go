package rollout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

// writes of a manager since the mark, leader leases apart.
func writes(since testenv.Mark, agent string) []testenv.Write {
	GinkgoHelper()
	all, err := env.Writes(since, agent)
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, testenv.Write.ToLease)
}

func mark() testenv.Mark {
	GinkgoHelper()
	m, err := env.Mark()
	Expect(err).NotTo(HaveOccurred())
	return m
}

// cutOff fails every write after the first n, as for a process that died there.
type cutOff struct {
	next http.RoundTripper
	left atomic.Int64
}

func (c *cutOff) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		c.next = next
		return c
	})
}

func (c *cutOff) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && c.left.Add(-1) < 0 {
		return nil, errors.New("cut off by the test")
	}
	return c.next.RoundTrip(request)
}

var _ = Describe("The operator", Serial, func() {
	It("goes on after a restart wherever it was stopped, without a rollout too many", func(ctx SpecContext) {
		operator.stop()
		DeferCleanup(func(ctx SpecContext) { operator = startManager(ctx, userAgent) })
		s := newSite(ctx, layout{})
		s.plane()
		policy := s.policy("llama", flagged("a"), flagged("b"))
		for n := int64(1); ; n += 2 {
			cut := &cutOff{}
			cut.left.Store(n)
			m := startManager(ctx, fmt.Sprintf("routing-operator-cut-%d", n), cut.wrap)
			done := func() bool {
				if cut.left.Load() < 0 {
					return true
				}
				if err := admin.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
					return false
				}
				plane := s.stored()
				return admin.Get(ctx, client.ObjectKeyFromObject(plane), plane) == nil && isReady(plane.Status.Conditions) && isReady(policy.Status.Conditions)
			}
			Eventually(done).Should(BeTrue())
			m.stop()
			if cut.left.Load() >= 0 {
				break
			}
		}
		Expect(s.flagsOn()).To(Equal([]string{"a", "b"}))
		Expect(s.counts()[1]).To(Equal(2), "one rollout of the gateway")
		Expect(s.counts()[0]).To(BeNumerically("<=", 4), "the router without a file, with the base (which may have been rolled out before the policy was accepted), with flags")
	})

	It("does not roll out twice while two of it are at work", func(ctx SpecContext) {
		other := startManager(ctx, "routing-operator-second")
		defer other.stop()
		s := newSite(ctx, layout{})
		s.plane()
		s.settled()
		before := s.counts()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{2, 1}))
	})

	It("takes the next step within a second of Kubernetes' word that a rollout is complete", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{Replicas: ptr.To[int32](1)}, gateways: []fixtures.GatewayWorkload{{Replicas: ptr.To[int32](1)}}})
		start := mark()
		s.plane(func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Waves = []intstr.IntOrString{intstr.FromInt32(1)} })
		var models []v1alpha1.Model
		for i := range 20 {
			models = append(models, flagged(fmt.Sprintf("model-%02d", i)))
		}
		policy := s.policy("llama", models...)
		s.settled(policy)
		var waits []time.Duration
		var complete time.Time // the last word of the Deployment controller
		for _, w := range writes(start, "") {
			switch {
			case w.Namespace != s.namespace || w.Resource != "deployments" || w.Code != http.StatusOK:
			case w.Subresource == "status":
				complete = w.At
			case strings.HasPrefix(w.UserAgent, userAgent) && !complete.IsZero():
				waits = append(waits, w.At.Sub(complete))
			}
		}
		slices.Sort(waits)
		Expect(len(waits)).To(BeNumerically(">=", 20))
		AddReportEntry("from complete to the next step", fmt.Sprintf("%d steps, median %s, longest %s", len(waits), waits[len(waits)/2], waits[len(waits)-1]))
	})

	It("makes one rollout of a burst of a thousand policies", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.QuietPeriod = &metav1.Duration{Duration: 5 * time.Second}
		})
		s.settled()
		before := s.counts()
		started := time.Now()
		policies := make([]*v1alpha1.RoutingPolicy, 1000)
		parallel(8, len(policies), func(i int) {
			policies[i] = s.policy(fmt.Sprintf("policy-%04d", i), plain(fmt.Sprintf("model-%04d", i)))
		})
		AddReportEntry("creation of 1,000 policies", time.Since(started).String())
		Eventually(func() int32 {
			plane := s.stored()
			if err := admin.Get(ctx, client.ObjectKeyFromObject(plane), plane); err != nil {
				return 0
			}
			return plane.Status.Models
		}).WithTimeout(3 * time.Minute).Should(Equal(int32(1000)))
		for _, policy := range policies {
			s.conditioned(policy, v1alpha1.ConditionReady, "True", "Programmed")
		}
		s.settled()
		AddReportEntry("until all were in effect", time.Since(started).String())
		Expect(s.since(before)).To(Equal([]int{1, 0}))
	})

	It("writes nothing in a steady state, with 100 planes and 500 policies", func(ctx SpecContext) {
		namespace, err := env.Namespace(ctx, "steady")
		Expect(err).NotTo(HaveOccurred())
		const planes, policies = 100, 500
		parallel(8, planes, func(i int) { steadyPlane(ctx, namespace, i) })
		parallel(8, policies, func(i int) {
			policy := &v1alpha1.RoutingPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("policy-%03d", i)},
				Spec: v1alpha1.RoutingPolicySpec{
					PlaneRef: v1alpha1.PlaneReference{Name: fmt.Sprintf("plane-%02d", i%planes)}, Models: []v1alpha1.Model{flagged(fmt.Sprintf("model-%03d", i))},
				},
			}
			Expect(admin.Create(ctx, policy)).To(Succeed())
		})
		Eventually(func() int {
			ready := 0
			var list v1alpha1.RoutingPlaneList
			Expect(admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
			for i := range list.Items {
				if p := &list.Items[i]; isReady(p.Status.Conditions) && p.Status.Flags.On == policies/planes {
					ready++
				}
			}
			return ready
		}).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Equal(planes))
		Eventually(func() int {
			ready := 0
			var list v1alpha1.RoutingPolicyList
			Expect(admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
			for i := range list.Items {
				if isReady(list.Items[i].Status.Conditions) {
					ready++
				}
			}
			return ready
		}).WithTimeout(time.Minute).WithPolling(time.Second).Should(Equal(policies))

		By("starting a second operator, to which everything is new")
		quiet := mark()
		before := passes()
		second := startManager(ctx, "routing-operator-resync")
		defer second.stop()
		Consistently(func() []testenv.Write {
			return append(writes(quiet, userAgent), writes(quiet, "routing-operator-resync")...)
		}, time.Minute, time.Second).Should(BeEmpty())
		Expect(passes() - before).To(BeNumerically(">=", planes+policies))
	})
})

// passes counts reconciles of all managers in the process.
func passes() int {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	total := 0.0
	for _, family := range families {
		if family.GetName() == "controller_runtime_reconcile_total" {
			for _, metric := range family.GetMetric() {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return int(total)
}

// parallel calls f with 0 to n-1, some at a time.
func parallel(workers, n int, f func(int)) {
	GinkgoHelper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			defer GinkgoRecover()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	group.Wait()
}

func isReady(conditions []metav1.Condition) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue
	})
}

func steadyPlane(ctx context.Context, namespace string, i int) {
	GinkgoHelper()
	router := fixtures.Stargate{Name: fmt.Sprintf("router-%02d", i), Replicas: ptr.To[int32](1)}.Objects(namespace)
	gateway := fixtures.GatewayWorkload{Name: fmt.Sprintf("gateway-%02d", i), Replicas: ptr.To[int32](1)}.Objects(namespace)
	for _, o := range append(router, gateway...) {
		Expect(admin.Create(ctx, o)).To(Succeed())
	}
	Expect(admin.Create(ctx, &v1alpha1.RoutingPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("plane-%02d", i)},
		Spec: v1alpha1.RoutingPlaneSpec{
			Stargate: v1alpha1.StargateSpec{WorkloadRef: reference(router[0]), Container: fixtures.RouterContainer},
			Gateways: []v1alpha1.GatewaySpec{{WorkloadRef: reference(gateway[0]), Container: fixtures.GatewayContainer}},
			Rollout: v1alpha1.RolloutSpec{
				QuietPeriod: &metav1.Duration{Duration: time.Second}, GatewayWarmup: &metav1.Duration{}, WaveInterval: &metav1.Duration{},
				Waves: []intstr.IntOrString{intstr.FromString("100%")},
			},
		},
	})).To(Succeed())
}
