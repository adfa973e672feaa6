package rollout

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/standin"
)

// mix is what a router pod counts for each of its models within a tick; all but ok only where the model's flag is on.
type mix struct {
	ok, errors                       float64
	fresh, stale, primary, elsewhere float64
}

const tick = 20 * time.Millisecond

var (
	healthy    = &mix{ok: 20, fresh: 2, stale: 1, primary: 6, elsewhere: 1}
	unhinted   = &mix{ok: 20, fresh: 10}
	erroneous  = &mix{ok: 18, errors: 2, fresh: 2, primary: 8}
	almostIdle = &mix{}
)

// traffic makes every router pod count requests for the models, as the present mix says.
func (s *site) traffic(models ...string) *atomic.Pointer[mix] {
	present := &atomic.Pointer[mix]{}
	present.Store(healthy)
	stop := make(chan struct{})
	ended := make(chan struct{})
	DeferCleanup(func() {
		close(stop)
		<-ended
	})
	ticker := time.NewTicker(tick)
	go func() {
		defer close(ended)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			for _, pod := range kubelet.Pods(s.namespace) {
				if pod.Kind == standin.Router {
					s.count(&pod, models, present.Load())
				}
			}
		}
	}()
	return present
}

func (s *site) count(pod *standin.Snapshot, models []string, m *mix) {
	add := func(n float64, name, labels string, args ...any) {
		kubelet.Count(pod.Namespace, pod.Name, fmt.Sprintf("stargate_"+name+`{routing_key="rk",`+labels+"}", args...), n)
	}
	flagged := map[string]bool{}
	for _, flag := range pod.Flags {
		flagged[flag.Model] = true
	}
	for _, model := range models {
		add(m.ok, "requests_total", `model=%q,inference_server_id="is-1",status="200"`, model)
		if !flagged[model] {
			add(0, "requests_total", `model=%q,inference_server_id="is-1",status="503"`, model)
			continue
		}
		add(m.errors, "requests_total", `model=%q,inference_server_id="is-1",status="503"`, model)
		for _, c := range []struct {
			state, selection string
			n                float64
		}{
			{"new", "primary", m.fresh}, {"new", "fallback", 0}, {"stale", "primary", 0}, {"stale", "fallback", m.stale},
			{"returning", "primary", m.primary}, {"returning", "fallback", m.elsewhere},
		} {
			add(c.n, "routing_session_selections_total", `model=%q,algorithm="pulsar-wait-and-widen",session_state=%q,selection=%q`, model, c.state, c.selection)
		}
	}
}

// analysed is a plane whose waves are judged, each of one model. It waits for samples: where this process stands still for
// the interval there are few.
func analysed(change ...func(*v1alpha1.RolloutAnalysis)) func(*v1alpha1.RoutingPlane) {
	return func(p *v1alpha1.RoutingPlane) {
		p.Spec.Rollout.Waves = []intstr.IntOrString{intstr.FromInt32(1)}
		p.Spec.Rollout.Analysis = &v1alpha1.RolloutAnalysis{Interval: &metav1.Duration{Duration: 2 * time.Second}, MinSamples: new(int64(50)), TooFewSamples: v1alpha1.TooFewSamplesHold}
		for _, f := range change {
			f(p.Spec.Rollout.Analysis)
		}
	}
}

// held planes judge until they are told what is enough.
func held(a *v1alpha1.RolloutAnalysis) { a.MinSamples = new(int64(1_000_000)) }

func enough(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Analysis.MinSamples = new(int64(50)) }

// judging waits until the first wave is on and being judged.
func (s *site) judging() {
	GinkgoHelper()
	Eventually(s.flagsOn).ShouldNot(BeEmpty())
	s.conditioned(s.stored(), v1alpha1.ConditionReconciling, "True", rollout.ReasonAnalysis)
}

// message of the plane's condition.
func (s *site) message(kind string) string {
	plane := s.stored()
	if err := admin.Get(s.ctx, client.ObjectKeyFromObject(plane), plane); err != nil {
		return err.Error()
	}
	for _, c := range plane.Status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

func (s *site) warnings() []string {
	plane := s.stored()
	if err := admin.Get(s.ctx, client.ObjectKeyFromObject(plane), plane); err != nil {
		return []string{err.Error()}
	}
	return plane.Status.Warnings
}

var _ = Describe("The metric gate", func() {
	It("lets waves with good figures pass, one after the other", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.traffic("a", "b")
		s.plane(analysed(held))
		s.settled()
		before := s.counts()
		policy := s.policy("llama", flagged("a"), flagged("b"))
		s.judging()
		change(s, s.stored(), enough)
		s.settled(policy)
		Expect(s.flagsOn()).To(Equal([]string{"a", "b"}))
		Expect(s.since(before)).To(Equal([]int{3, 1}))
		plane := s.stored()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		var gates []v1alpha1.RevisionRecord
		for _, record := range plane.Status.Records {
			if record.Gate != nil {
				gates = append(gates, record)
			}
		}
		Expect(gates).To(HaveLen(2))
		Expect(gates).To(HaveEach(HaveField("Gate", And(HaveField("PassedAt", Not(BeNil())), HaveField("RequestsBefore", BeNumerically(">", 0))))))
		slices.SortFunc(gates, func(a, b v1alpha1.RevisionRecord) int { return a.Gate.PassedAt.Compare(b.Gate.PassedAt.Time) })
		second := &corev1.ConfigMap{}
		Expect(admin.Get(ctx, s.key(gates[1].Revision), second)).To(Succeed())
		Expect(second.CreationTimestamp.Time).NotTo(BeTemporally("<", gates[0].Gate.PassedAt.Time), "the wave after a gate that is still open")
	})

	It("withdraws a wave whose hints do not arrive as one rollout, gives the figures, and tries again when asked", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		traffic := s.traffic("a")
		traffic.Store(unhinted)
		s.plane(analysed())
		s.settled()
		before := s.counts()
		policy := s.policy("llama", flagged("a"))
		plane := s.stored()
		s.conditioned(plane, v1alpha1.ConditionStalled, "True", rollout.ReasonAnalysisFailed)
		Expect(s.message(v1alpha1.ConditionStalled)).To(MatchRegexp(`wave 1 \(a\): 100\.0 % of \d+ classified sessions were new or stale, more than 95\.0 %`))
		Expect(s.flagsOn()).To(BeEmpty())
		Expect(s.since(before)).To(Equal([]int{3, 1}), "the base with the model, the wave, and back")
		s.conditioned(policy, v1alpha1.ConditionProgrammed, "False", "")
		Consistently(func() []int { return s.since(before) }, 3*time.Second).Should(Equal([]int{3, 1}))

		By("retrying with hints")
		traffic.Store(healthy)
		change(s, plane, func(p *v1alpha1.RoutingPlane) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, rollout.RetryAnnotation, "hints arrive now")
		})
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{4, 1}))
	})

	It("withdraws a wave after which server errors rise", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.traffic("a").Store(erroneous)
		s.plane(analysed(held))
		s.settled()
		s.policy("llama", flagged("a"))
		Eventually(func() string { return s.message(v1alpha1.ConditionFlagsReady) }).Should(MatchRegexp(`\d{3} sessions were classified, of the`))
		// One is enough, however few requests were counted before the wave: nothing waits for more of those.
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Analysis.MinSamples = new(int64(1)) })
		s.conditioned(s.stored(), v1alpha1.ConditionStalled, "True", rollout.ReasonAnalysisFailed)
		Expect(s.message(v1alpha1.ConditionStalled)).To(MatchRegexp(`% of \d+ requests ended in a 5xx, and 0\.0 % of \d+ before the wave: an increase of more than 1\.0 %`))
		Expect(s.flagsOn()).To(BeEmpty())
	})

	It("goes on with too few samples, or holds the next wave until there are enough, as set", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		traffic := s.traffic("a", "b")
		traffic.Store(almostIdle)
		s.plane(analysed())
		policy := s.policy("llama", flagged("a"), flagged("b"))
		Eventually(func() string { return s.message(v1alpha1.ConditionFlagsReady) }).Should(ContainSubstring("0 sessions were classified, of the 50 that it takes"))
		Consistently(s.flagsOn, 2*time.Second).Should(Equal([]string{"a"}))

		By("letting a change through meanwhile")
		change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[1].MaxQueued = new(int64(77)) })
		Eventually(s.files).Should(HaveEach(ContainSubstring(`"max_queued":77`)))
		Expect(s.flagsOn()).To(Equal([]string{"a"}))

		By("having some traffic at last")
		traffic.Store(healthy)
		Eventually(s.flagsOn).Should(Equal([]string{"a", "b"}))
		traffic.Store(almostIdle)
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.Analysis.TooFewSamples = v1alpha1.TooFewSamplesContinue
		})
		s.settled(policy)
	})

	It("counts on through a counter that begins anew", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.traffic("a")
		s.plane(analysed(held))
		policy := s.policy("llama", flagged("a"))
		s.judging()
		s.unwatched() // a pod exits, and it is meant to
		victim := s.staying()[0].Name
		mend := kubelet.When(func(pod *corev1.Pod) bool { return pod.Namespace == s.namespace && pod.Name == victim },
			func(b *standin.Behaviour) { b.Crash = "out of memory" })
		Eventually(func() int { pod, _ := kubelet.Pod(s.namespace, victim); return pod.Restarts }).Should(BeNumerically(">", 0))
		mend()
		change(s, s.stored(), enough)
		s.settled(policy)
		Expect(s.flagsOn()).To(Equal([]string{"a"}))
	})

	It("says which metrics cannot be read and why, and takes that for too few samples", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.traffic("a")
		DeferCleanup(kubelet.When(func(pod *corev1.Pod) bool { return pod.Namespace == s.namespace },
			func(b *standin.Behaviour) { b.NoMetrics = true }))
		s.plane(analysed())
		policy := s.policy("llama", flagged("a"))
		s.judging()
		Eventually(s.warnings).Should(ContainElement(And(ContainSubstring("cannot read the metrics of pod "), ContainSubstring(": connection refused"), ContainSubstring("NetworkPolicies"))))
		Eventually(func() string { return s.message(v1alpha1.ConditionFlagsReady) }).Should(ContainSubstring("too few samples"))

		By("going on with them")
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.Analysis.TooFewSamples = v1alpha1.TooFewSamplesContinue
		})
		s.settled(policy)
		Expect(s.warnings()).NotTo(ContainElement(ContainSubstring("cannot read the metrics")))
		Expect(s.flagsOn()).To(Equal([]string{"a"}))
	})

	It("judges from anew after a restart of the operator, and not again what has passed", Serial, func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		traffic := s.traffic("a")
		s.plane(analysed(held))
		policy := s.policy("llama", flagged("a"))
		s.judging()
		operator.stop()
		operator = startManager(ctx, userAgent)
		change(s, s.stored(), enough)
		s.settled(policy)
		before := s.counts()

		operator.stop()
		traffic.Store(unhinted)
		operator = startManager(ctx, userAgent)
		Consistently(func() bool {
			plane := s.stored()
			return admin.Get(ctx, client.ObjectKeyFromObject(plane), plane) == nil && isReady(plane.Status.Conditions)
		}, 5*time.Second).Should(BeTrue())
		Expect(s.since(before)).To(Equal([]int{0, 0}))
	})
})
