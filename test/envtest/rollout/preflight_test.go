package rollout

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/preflight"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

// sightings are the preflight pods of a namespace that there ever were, as they were last seen.
type sightings struct {
	mutex sync.Mutex
	pods  map[types.UID]*corev1.Pod
}

func (s *site) sight() *sightings {
	GinkgoHelper()
	seen := &sightings{pods: map[types.UID]*corev1.Pod{}}
	w, err := admin.Watch(s.ctx, &corev1.PodList{}, client.InNamespace(s.namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && isPreflight(pod) {
				seen.mutex.Lock()
				seen.pods[pod.UID] = pod
				seen.mutex.Unlock()
			}
		}
	}()
	return seen
}

func isPreflight(pod *corev1.Pod) bool {
	_, is := pod.Labels[preflight.LabelTemplate]
	return is
}

// all preflight pods so far, oldest first.
func (s *sightings) all() []*corev1.Pod {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var pods []*corev1.Pod
	for _, pod := range s.pods {
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods
}

// harmless: no Service that selects Stargate's own pods selected one of them, none was ready, and none belonged to a
// workload.
func (s *site) harmless(ctx context.Context, seen *sightings) {
	GinkgoHelper()
	var services corev1.ServiceList
	Expect(admin.List(ctx, &services, client.InNamespace(s.namespace))).To(Succeed())
	var pods corev1.PodList
	Expect(admin.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{"app.kubernetes.io/name": fixtures.RouterContainer})).To(Succeed())
	Expect(pods.Items).NotTo(BeEmpty())
	ofStargate := 0
	for i := range services.Items {
		selector := labels.SelectorFromSet(services.Items[i].Spec.Selector)
		if selector.Matches(labels.Set(pods.Items[0].Labels)) {
			ofStargate++
		}
		for _, pod := range seen.all() {
			Expect(selector.Matches(labels.Set(pod.Labels))).To(BeFalse(), "Service %s selects %s", services.Items[i].Name, pod.Name)
		}
	}
	Expect(ofStargate).To(BeNumerically(">", 1), "one for requests, one for peers")
	for _, pod := range seen.all() {
		Expect(pod.Labels).To(HaveLen(1))
		Expect(pod.OwnerReferences).To(HaveLen(1))
		Expect(pod.OwnerReferences[0].Kind).To(Equal("RoutingPlane"))
		Expect(pod.Status.Conditions).NotTo(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
	}
}

// routers are the router's own pods that do not drain, with their names; none has exited.
func (s *site) routers(ctx context.Context) map[types.UID]string {
	GinkgoHelper()
	var list corev1.PodList
	Expect(admin.List(ctx, &list, client.InNamespace(s.namespace), client.MatchingLabels{"app.kubernetes.io/name": fixtures.RouterContainer})).To(Succeed())
	pods := map[types.UID]string{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			continue
		}
		pods[list.Items[i].UID] = list.Items[i].Name
		for _, status := range list.Items[i].Status.ContainerStatuses {
			Expect(status.RestartCount).To(BeZero(), list.Items[i].Name)
		}
	}
	return pods
}

// preflights are those that there are.
func (s *site) preflights() ([]corev1.Pod, error) {
	var list corev1.PodList
	err := admin.List(s.ctx, &list, client.InNamespace(s.namespace), client.HasLabels{preflight.LabelTemplate})
	return list.Items, err
}

// of preflight pods of the site, for a rule of the stand-in.
func (s *site) itsPreflights(pod *corev1.Pod) bool {
	return pod.Namespace == s.namespace && isPreflight(pod)
}

func withPreflight(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Preflight = true }

// impatient planes are made so when what they wait for has been seen: it lasts until then.
func impatient(p *v1alpha1.RoutingPlane) {
	p.Spec.Rollout.ProgressDeadline = &metav1.Duration{Duration: 5 * time.Second}
}

func tune(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = ptr.To[int64](6) }

// said is what the plane's transitions and the events of its namespace say.
func (s *site) said(ctx context.Context) string {
	var text []string
	var events corev1.EventList
	if err := admin.List(ctx, &events, client.InNamespace(s.namespace)); err != nil {
		return err.Error()
	}
	for i := range events.Items {
		text = append(text, events.Items[i].Message)
	}
	return strings.Join(text, "\n")
}

var _ = Describe("A preflight", func() {
	const image = "registry.example.com/nvcf/llm-request-router:main" // of which nobody knows the release
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "state"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	for kind, router := range map[string]fixtures.Stargate{
		"a Deployment":           {},
		"a parallel StatefulSet": {PodManagement: appsv1.ParallelPodManagement},
		"an ordered StatefulSet": {PodManagement: appsv1.OrderedReadyPodManagement},
	} {
		It("of a file that Stargate refuses costs "+kind+" no pod", func(ctx SpecContext) {
			router.Image = image
			s := newSite(ctx, layout{router: router})
			s.plane(withPreflight, func(p *v1alpha1.RoutingPlane) {
				p.Spec.Stargate.Releases = []v1alpha1.ReleaseOverride{{Image: image, Version: "V3"}} // which it is not
			})
			policy := s.policy("llama", plain("a"))
			s.settled(policy)
			Eventually(s.preflights).Should(BeEmpty())
			seen, pods, before := s.sight(), s.routers(ctx), s.counts()

			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].FallbackMaxQueued = ptr.To[int64](3) })
			s.conditioned(s.stored(), v1alpha1.ConditionStalled, "True", rollout.ReasonRevisionFailed)
			plane := s.stored()
			s.conditioned(plane, v1alpha1.ConditionReady, "False", rollout.ReasonRevisionFailed)
			Expect(meta.FindStatusCondition(plane.Status.Conditions, v1alpha1.ConditionStalled).Message).To(And(
				ContainSubstring("fallback_max_queued"), ContainSubstring("preflight pod")))
			s.conditioned(policy, v1alpha1.ConditionProgrammed, "False", "EarlierVersionKept")
			Eventually(s.preflights).Should(BeEmpty())
			Expect(s.routers(ctx)).To(Equal(pods), "no pod was replaced")
			Expect(s.since(before)).To(Equal([]int{0, 0}))
			Expect(seen.all()).To(HaveLen(2), "the file, and for comparison the last good one")
			s.harmless(ctx, seen)

			By("mending the policy")
			change(s, policy, func(p *v1alpha1.RoutingPolicy) {
				p.Spec.Models[0].FallbackMaxQueued = nil
				tune(p)
			})
			s.settled(policy)
			Expect(s.since(before)).To(Equal([]int{1, 0}))
			Eventually(s.preflights).Should(BeEmpty())
			Expect(seen.all()).To(HaveLen(3))
			Expect(s.told(rollout.ReasonRevisionFailed)).To(HaveExactElements(And(
				ContainSubstring("what policy "+s.namespace+"/llama changes is held"), ContainSubstring("fallback_max_queued"))))
		})
	}

	It("of a file that Stargate loads comes before the base and before each wave, and nobody finds its pod", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(withPreflight)
		s.settled()
		Eventually(s.preflights).Should(BeEmpty())
		seen, before := s.sight(), s.counts()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		Expect(s.flagsOn()).To(Equal([]string{"a"}))
		Expect(s.since(before)).To(Equal([]int{2, 1}))
		Eventually(s.preflights).Should(BeEmpty())
		Expect(seen.all()).To(HaveLen(2))
		s.harmless(ctx, seen)
		for _, pod := range seen.all() {
			Expect(pod.Spec.Containers).To(HaveLen(1))
			Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("RestartCount", BeZero())))
		}
	})

	It("takes none of the claims of a StatefulSet", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{PodManagement: appsv1.ParallelPodManagement}, claims: []corev1.PersistentVolumeClaim{claim}})
		s.plane(withPreflight)
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		Eventually(s.preflights).Should(BeEmpty())
		seen := s.sight()
		change(s, policy, tune)
		s.settled(policy)
		Eventually(s.preflights).Should(BeEmpty())
		Expect(seen.all()).To(HaveLen(1))
		Expect(seen.all()[0].Spec.Volumes).To(ContainElement(And(HaveField("Name", "state"), HaveField("EmptyDir", Not(BeNil())))))
		Expect(seen.all()[0].Spec.Volumes).To(HaveEach(HaveField("PersistentVolumeClaim", BeNil())))
		var claims corev1.PersistentVolumeClaimList
		Expect(admin.List(ctx, &claims, client.InNamespace(s.namespace))).To(Succeed())
		Expect(claims.Items).To(HaveLen(2), "one for each of the StatefulSet's pods")
	})

	It("is gone without, and the plane says so, where the template has a claim", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{Change: func(t *corev1.PodTemplateSpec) {
			t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "router-data"}}})
		}}})
		s.plane(withPreflight)
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		Eventually(s.preflights).Should(BeEmpty())
		seen, before := s.sight(), s.counts()
		change(s, policy, tune)
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
		Expect(seen.all()).To(BeEmpty())
		plane := s.stored()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		Expect(plane.Status.Warnings).To(ContainElement(And(ContainSubstring("spec.rollout.preflight has no effect"), ContainSubstring("router-data"))))
	})

	It("is waited for until the progress deadline where no node takes its pod", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(withPreflight)
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		before := s.counts()
		DeferCleanup(kubelet.When(s.itsPreflights, func(b *standin.Behaviour) { b.Unschedulable = true }))
		change(s, policy, tune)
		s.conditioned(s.stored(), v1alpha1.ConditionReconciling, "True", rollout.ReasonPreflight)
		Expect(s.since(before)).To(Equal([]int{0, 0}))
		change(s, s.stored(), impatient)
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
		Eventually(s.preflights).Should(BeEmpty())
		Eventually(s.said).WithContext(ctx).Should(And(ContainSubstring("without a preflight"), ContainSubstring("Unschedulable")))
	})

	It("is waited for until the progress deadline where a quota has no room for its pod", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{PodManagement: appsv1.ParallelPodManagement}})
		s.plane(withPreflight)
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		Eventually(s.preflights).Should(BeEmpty())
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "full"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("4")}}}
		Expect(admin.Create(ctx, quota)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
			g.Expect(quota.Status.Used.Pods().Value()).To(Equal(int64(4)))
		}).Should(Succeed())
		before := s.counts()
		change(s, policy, tune)
		plane := s.stored()
		s.conditioned(plane, v1alpha1.ConditionReconciling, "True", rollout.ReasonPreflight)
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
			g.Expect(plane.Status.Waiting).NotTo(BeNil())
			g.Expect(plane.Status.Waiting.For).To(ContainSubstring("exceeded quota"))
		}).Should(Succeed())
		Expect(s.since(before)).To(Equal([]int{0, 0}))
		change(s, plane, impatient)
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
		Eventually(s.said).WithContext(ctx).Should(And(ContainSubstring("without a preflight"), ContainSubstring("exceeded quota")))
	})

	It("ends with the setting", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(withPreflight)
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		before := s.counts()
		DeferCleanup(kubelet.When(s.itsPreflights, func(b *standin.Behaviour) { b.Unschedulable = true }))
		change(s, policy, tune)
		Eventually(s.preflights).Should(HaveLen(1))
		Expect(s.since(before)).To(Equal([]int{0, 0}))
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Preflight = false })
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
		Eventually(s.preflights).Should(BeEmpty())
	})

	It("ends with the plane", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		plane := s.plane(withPreflight)
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		DeferCleanup(kubelet.When(s.itsPreflights, func(b *standin.Behaviour) { b.Unschedulable = true }))
		change(s, policy, tune)
		Eventually(s.preflights).Should(HaveLen(1))
		Expect(admin.Delete(ctx, plane)).To(Succeed())
		Eventually(s.preflights).Should(BeEmpty())
	})
})

var _ = Describe("A preflight that is under way", Serial, func() {
	It("goes on where it was when the operator is restarted", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(withPreflight)
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		Eventually(s.preflights).Should(BeEmpty())
		seen, before := s.sight(), s.counts()
		release := sync.OnceFunc(kubelet.When(s.itsPreflights, func(b *standin.Behaviour) { b.Unschedulable = true }))
		DeferCleanup(release)
		change(s, policy, tune)
		Eventually(seen.all).Should(HaveLen(1))
		loading := seen.all()[0].Name

		operator.stop()
		started := false
		DeferCleanup(func(ctx SpecContext) {
			if !started {
				operator = startManager(ctx, userAgent)
			}
		})
		release()
		Eventually(func() bool { // it loads while nobody looks
			pod, ok := kubelet.Pod(s.namespace, loading)
			return ok && pod.Running
		}).Should(BeTrue())
		Expect(s.since(before)).To(Equal([]int{0, 0}))

		operator, started = startManager(ctx, userAgent), true
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
		Eventually(s.preflights).Should(BeEmpty())
		Expect(seen.all()).To(HaveLen(1))
	})
})
