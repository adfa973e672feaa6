package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

func isGone(o client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(admin.Get(context.Background(), client.ObjectKeyFromObject(o), o))
	}
}

// named are the revisions that ReplicaSets name.
func (s *site) named() sets.Set[string] {
	GinkgoHelper()
	var list appsv1.ReplicaSetList
	Expect(admin.List(s.ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
	names := sets.New[string]()
	for i := range list.Items {
		pod := &list.Items[i].Spec.Template.Spec
		for _, v := range pod.Volumes {
			if v.Name == "routing-lb-config" {
				names.Insert(v.ConfigMap.Name)
			}
		}
		for _, e := range pod.Containers[0].Env {
			if strings.HasPrefix(e.Name, "STARGATE_LAST_CLUSTER") && e.ValueFrom != nil {
				names.Insert(e.ValueFrom.ConfigMapKeyRef.Name)
			}
		}
	}
	return names
}

var _ = Describe("The life of a plane", func() {
	It("waits for the memory to warm up, and says until when", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.GatewayWarmup = &metav1.Duration{Duration: time.Hour} // until it has been seen
		})
		policy := s.policy("llama", flagged("a"))
		s.conditioned(s.stored(), v1alpha1.ConditionReconciling, "True", rollout.ReasonWarmup)
		plane := s.stored()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		Expect(plane.Status.Stage).To(Equal(v1alpha1.StageWarmup))
		Expect(plane.Status.Waiting.Until).NotTo(BeNil())
		Eventually(s.model(policy, "a")).Should(Equal(v1alpha1.ModelFlagHeld))
		Expect(policy.Status.Models).To(HaveLen(1))
		remembered := plane.Status.Waiting.Until.Add(-time.Hour)
		until := time.Now().Add(2 * time.Second).Truncate(time.Second)
		change(s, plane, func(p *v1alpha1.RoutingPlane) {
			p.Spec.Rollout.GatewayWarmup = &metav1.Duration{Duration: until.Sub(remembered)}
		})
		s.settled(policy)
		Expect(time.Now()).To(BeTemporally(">=", until))
		Expect(policy.Status.Summary).To(Equal("1/1 models, 1/1 flags"))
	})

	It("serves several gateways, one after the other, and turns nothing on without any", func(ctx SpecContext) {
		s := newSite(ctx, layout{gateways: []fixtures.GatewayWorkload{{}, {Name: "second-gateway"}, {Name: "third-gateway", Replicas: ptr.To[int32](0)}}})
		s.plane()
		s.settled()
		before := s.counts()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{2, 1, 1, 1}))

		By("taking the gateways out of the plane: flags go first, and then the memory of every gateway is let go")
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Gateways = nil })
		Eventually(func() int { on, _ := s.memories(); return on }).Should(BeZero())
		Expect(s.flagsOn()).To(BeEmpty())
	})

	It("takes back flags and memory and lets go of the gateway when it is deleted, and leaves the file that is still read", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		remember := func(replicaSets int32) {
			for _, workload := range append(s.gateways, s.router) {
				change(s, workload.(*appsv1.Deployment), func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = &replicaSets })
			}
		}
		remember(0)
		plane := s.plane()
		s.settled()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		change(s, plane, func(p *v1alpha1.RoutingPlane) { p.Spec.LastCluster.TTL = &metav1.Duration{Duration: 5 * time.Minute} })
		s.settled(policy)
		Eventually(s.named).Should(HaveLen(2))
		Expect(s.revisions()).To(HaveLen(5), "two of the router and one of the gateway that nothing names")
		remember(10) // from now on none goes, so that it does not matter when
		before := s.counts()
		Expect(admin.Delete(ctx, plane)).To(Succeed())
		Eventually(isGone(plane)).Should(BeTrue())
		Expect(s.since(before)).To(Equal([]int{1, 1}))
		Expect(s.flagsOn()).To(BeEmpty())
		Expect(s.files()).To(HaveEach(ContainSubstring(`"a"`)))
		gateway := &appsv1.Deployment{}
		Expect(admin.Get(ctx, s.key(fixtures.Gateway), gateway)).To(Succeed())
		Expect(gateway.Annotations).NotTo(HaveKey("routing.nvcf.io/plane"))
		for _, env := range gateway.Spec.Template.Spec.Containers[0].Env {
			Expect(env.Name).NotTo(HavePrefix("STARGATE_LAST_CLUSTER"))
		}
		for _, entry := range gateway.ManagedFields {
			Expect(entry.Manager).NotTo(Equal("routing-operator"))
		}
		left := sets.New[string]()
		for _, revision := range s.revisions() {
			left.Insert(revision.Name)
		}
		Expect(left).To(And(HaveLen(3), Equal(s.named())), "the one that Stargate still reads, and those of the two ReplicaSets before")
		router := &appsv1.Deployment{}
		Expect(admin.Get(ctx, s.key(fixtures.Router), router)).To(Succeed())
		Expect(router.Annotations).NotTo(HaveKey("routing.nvcf.io/plane"), "it is nobody's")
		s.conditioned(policy, v1alpha1.ConditionAccepted, "False", "PlaneNotFound")
	})

	It("changes no pod when it is deleted with Retain", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		plane := s.plane(func(p *v1alpha1.RoutingPlane) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		before := s.counts()
		Expect(admin.Delete(ctx, plane)).To(Succeed())
		Eventually(isGone(plane)).Should(BeTrue())
		Consistently(func() []int { return s.since(before) }, time.Second).Should(Equal([]int{0, 0}))
		Expect(s.flagsOn()).To(Equal([]string{"a"}))

		By("adopting what it left")
		s.plane()
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{0, 0}))
	})

	It("writes nothing while it is paused, and says what it would do", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		s.settled()
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Paused = true })
		s.conditioned(s.stored(), v1alpha1.ConditionReady, "True", "")
		before := s.counts()
		policy := s.policy("llama", plain("a"))
		s.conditioned(s.stored(), v1alpha1.ConditionReconciling, "True", rollout.ReasonPaused)
		s.conditioned(policy, v1alpha1.ConditionProgrammed, "False", "")
		Consistently(func() []int { return s.since(before) }, time.Second).Should(Equal([]int{0, 0}))
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Paused = false })
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
	})

	It("holds a pinned revision whatever the policies say", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		plane := s.stored()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		good := plane.Status.Stargate.Revision
		change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = ptr.To[int64](99) })
		s.settled(policy)
		before := s.counts()
		change(s, plane, func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Pin = good })
		s.conditioned(s.stored(), v1alpha1.ConditionReady, "True", rollout.ReasonPinned)
		Expect(s.since(before)).To(Equal([]int{1, 0}))
		Eventually(s.files).Should(HaveEach(ContainSubstring(`"max_queued":4`)))
		s.conditioned(policy, v1alpha1.ConditionProgrammed, "False", "EarlierVersionKept")
		change(s, plane, func(p *v1alpha1.RoutingPlane) { p.Spec.Rollout.Pin = "" })
		s.settled(policy)
		Expect(s.files()).To(HaveEach(ContainSubstring(`"max_queued":99`)))
	})

	It("waits for a workload that is paused and goes on when it is not", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		s.settled()
		router := s.router.(*appsv1.Deployment)
		change(s, router, func(d *appsv1.Deployment) { d.Spec.Paused = true })
		policy := s.policy("llama", plain("a"))
		s.conditioned(s.stored(), v1alpha1.ConditionReconciling, "True", rollout.ReasonWorkloadHeld)
		change(s, router, func(d *appsv1.Deployment) { d.Spec.Paused = false })
		s.settled(policy)
	})

	It("puts back its finalizer and its status where somebody took them, and restarts nothing", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		plane := s.plane()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		before := s.counts()
		run(env.Kubectl(ctx, "patch", "-n", s.namespace, "rpl/"+planeName, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`))
		Eventually(func() []string {
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
			return plane.Finalizers
		}).Should(HaveLen(1))
		run(env.Kubectl(ctx, "patch", "-n", s.namespace, "rpl/"+planeName, "--subresource=status", "--type=json", "-p", `[{"op":"remove","path":"/status"}]`))
		Eventually(func() v1alpha1.Stage {
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
			return plane.Status.Stage
		}).Should(Equal(v1alpha1.StageSettled))
		s.settled(policy)
		Expect(s.since(before)).To(Equal([]int{0, 0}))
	})

	It("leaves the gateway's own variables and their order as they are", func(ctx SpecContext) {
		own := []corev1.EnvVar{{Name: "ZONE", Value: "eu-1"}, {Name: "NAME", Value: "gateway-$(ZONE)"}, {Name: "A", Value: "$(NAME)"}}
		s := newSite(ctx, layout{gateways: []fixtures.GatewayWorkload{{Env: own}}})
		variables := func() []string {
			d := &appsv1.Deployment{}
			Expect(admin.Get(ctx, s.key(fixtures.Gateway), d)).To(Succeed())
			var names []string
			for _, e := range d.Spec.Template.Spec.Containers[0].Env {
				if !strings.HasPrefix(e.Name, "STARGATE_LAST_CLUSTER") {
					names = append(names, e.Name+"="+e.Value)
				}
			}
			return names
		}
		before := variables()
		s.plane()
		s.settled(s.policy("llama", flagged("a")))
		Expect(variables()).To(Equal(before), "a variable may refer to those before it only")
	})

	It("takes a workload that is scaled to zero for complete", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{Replicas: ptr.To[int32](0)}, gateways: []fixtures.GatewayWorkload{{Replicas: ptr.To[int32](0)}}})
		s.plane()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		for _, workload := range append(s.gateways, s.router) {
			deployment := workload.(*appsv1.Deployment)
			change(s, deployment, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
		}
		Eventually(s.flagsOn).Should(Equal([]string{"a"}))
	})

	for _, management := range []appsv1.PodManagementPolicyType{"", appsv1.OrderedReadyPodManagement} {
		kind := v1alpha1.KindDeployment
		if management != "" {
			kind = v1alpha1.KindStatefulSet
		}
		It("stays settled while its workloads are scaled and lose pods: "+kind, func(ctx SpecContext) {
			s := newSite(ctx, layout{router: fixtures.Stargate{PodManagement: management}})
			plane := s.plane()
			policy := s.policy("llama", flagged("a"))
			s.settled(policy)
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
			transitions, before := plane.Status.Transitions, s.counts()
			for _, workload := range append(s.gateways, s.router) {
				for _, replicas := range []int{4, 1, 2} {
					run(env.Kubectl(ctx, "scale", "-n", s.namespace, strings.ToLower(kindOf(workload)), workload.GetName(), fmt.Sprintf("--replicas=%d", replicas)))
					Eventually(func(g Gomega) {
						g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
						status := append(plane.Status.Gateways, *plane.Status.Stargate)
						g.Expect(status).To(ContainElement(And(HaveField("Name", workload.GetName()), HaveField("Replicas", BeEquivalentTo(replicas)),
							HaveField("Pods", ConsistOf(HaveField("Ready", BeEquivalentTo(replicas)))))))
						g.Expect(isReady(plane.Status.Conditions)).To(BeTrue())
					}).Should(Succeed())
				}
			}
			pods := &corev1.PodList{}
			Expect(admin.List(ctx, pods, client.InNamespace(s.namespace))).To(Succeed())
			staying := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
			lost := staying[len(staying)-1].DeepCopy()
			Expect(client.IgnoreNotFound(admin.Delete(ctx, lost))).To(Succeed())
			Eventually(func() bool {
				found := &corev1.Pod{}
				err := admin.Get(ctx, client.ObjectKeyFromObject(lost), found)
				return apierrors.IsNotFound(err) || found.UID != lost.UID
			}).Should(BeTrue())
			s.settled(policy)
			Expect(s.since(before)).To(Equal([]int{0, 0}))

			By("changing the policy, which is a rollout")
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = new(int64(9)) })
			s.settled(policy)
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
			Expect(plane.Status.Transitions[:2]).To(HaveExactElements(HaveField("Stage", v1alpha1.StageSettled), HaveField("Stage", v1alpha1.StageBase)))
			Expect(plane.Status.Transitions[2:]).To(Equal(transitions))
		})
	}

	It("does not hold up a namespace that is deleted", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		plane := s.plane()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		s.unwatched()
		Expect(admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
		Eventually(isGone(plane)).Should(BeTrue())
		Eventually(isGone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).Should(BeTrue())
	})

	It("lets a workload go that the plane no longer names, and takes the new one", func(ctx SpecContext) {
		s := newSite(ctx, layout{gateways: []fixtures.GatewayWorkload{{}, {Name: "second-gateway"}}})
		s.unwatched() // the second gateway forgets, and the plane does not know of it
		s.plane(func(p *v1alpha1.RoutingPlane) { p.Spec.Gateways = p.Spec.Gateways[:1] })
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		change(s, s.stored(), func(p *v1alpha1.RoutingPlane) { p.Spec.Gateways[0].WorkloadRef.Name = "second-gateway" })
		s.settled(policy)
		Eventually(func(g Gomega) {
			first, second := &appsv1.Deployment{}, &appsv1.Deployment{}
			g.Expect(admin.Get(ctx, s.key(fixtures.Gateway), first)).To(Succeed())
			g.Expect(admin.Get(ctx, s.key("second-gateway"), second)).To(Succeed())
			g.Expect(first.Annotations).NotTo(HaveKey("routing.nvcf.io/plane"))
			g.Expect(second.Annotations).To(HaveKeyWithValue("routing.nvcf.io/plane", planeName))
		}).Should(Succeed())
	})

	It("keeps a bounded history of revisions", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{Replicas: ptr.To[int32](1)}})
		s.plane(func(p *v1alpha1.RoutingPlane) { p.Spec.RevisionHistoryLimit = ptr.To[int32](1) })
		router := s.router.(*appsv1.Deployment)
		change(s, router, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](0) })
		policy := s.policy("llama", plain("a"))
		s.settled(policy)
		for i := range int64(5) {
			change(s, policy, func(p *v1alpha1.RoutingPolicy) { p.Spec.Models[0].MaxQueued = new(10 + i) })
			s.settled(policy)
		}
		Eventually(func() int { return len(s.revisions()) }).Should(BeNumerically("<=", 2))
		var history appsv1.ControllerRevisionList
		Expect(admin.List(ctx, &history, client.InNamespace(s.namespace))).To(Succeed())
		Expect(len(history.Items)).To(BeNumerically("<=", 5))
	})
})

const inline = `{"default":"random","request_algorithms":{"pulsar":"pulsar"},"models":{"a":{"algorithm":"pulsar-wait-and-widen","max_queued":4}}}`

var _ = Describe("Adoption", func() {
	It("mounts a file beside the chart's, says that it is not read, and finds every pod with one meaning through the switch", func(ctx SpecContext) {
		s := newSite(ctx, layout{router: fixtures.Stargate{Inline: inline}})
		Eventually(s.files).Should(HaveLen(2))
		wanted, err := lbconfig.Read([]byte(inline), release.V3)
		Expect(err).NotTo(HaveOccurred())
		stop := kubelet.Observe(s.namespace, func(pods []standin.Snapshot) {
			for _, pod := range pods {
				if pod.Kind != standin.Router || !pod.Running {
					continue
				}
				file, err := lbconfig.Read(pod.File, release.V3)
				if err != nil || !lbconfig.Same(file, wanted) {
					s.mutex.Lock()
					s.broken = append(s.broken, fmt.Sprintf("%s runs another meaning: %s", pod.Name, pod.File))
					s.mutex.Unlock()
				}
			}
		})
		DeferCleanup(stop)

		policy := s.policy("llama", plain("a"))
		s.conditioned(policy, v1alpha1.ConditionAccepted, "False", "PlaneNotFound") // and looked at
		s.plane(func(p *v1alpha1.RoutingPlane) {
			p.Spec.Stargate.DefaultAlgorithm = v1alpha1.Random
			p.Spec.Stargate.RequestAlgorithms = []v1alpha1.RequestAlgorithm{{AlgorithmSettings: v1alpha1.AlgorithmSettings{Algorithm: v1alpha1.Pulsar}}}
		})
		s.conditioned(s.stored(), v1alpha1.ConditionReconciling, "True", rollout.ReasonFileNotRead)
		s.conditioned(policy, v1alpha1.ConditionProgrammed, "False", "")

		By("moving the argument as Helm would, by one change of the template")
		router := s.router.(*appsv1.Deployment)
		change(s, router, func(d *appsv1.Deployment) {
			pod := &d.Spec.Template.Spec
			container := &pod.Containers[0]
			for i, argument := range container.Args {
				if strings.HasPrefix(argument, "--lb-config-path") {
					container.Args[i] = "--lb-config-path=" + fixtures.OperatorConfigPath
				}
			}
			for i := range container.VolumeMounts {
				if container.VolumeMounts[i].Name == "lb-config" {
					container.VolumeMounts = append(container.VolumeMounts[:i], container.VolumeMounts[i+1:]...)
					break
				}
			}
		})
		s.settled(policy)
		Expect(s.rollouts(router)).To(Equal(3), "the chart's, with the operator's mount, with the argument moved")

		By("rolling Helm back to before the switch, which the plane has to notice")
		change(s, router, func(d *appsv1.Deployment) {
			container := &d.Spec.Template.Spec.Containers[0]
			for i, argument := range container.Args {
				if strings.HasPrefix(argument, "--lb-config-path") {
					container.Args[i] = "--lb-config-path=" + fixtures.InlineConfigPath
				}
			}
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "lb-config", MountPath: "/etc/llm-request-router", ReadOnly: true})
		})
		s.conditioned(s.stored(), v1alpha1.ConditionReconciling, "True", rollout.ReasonFileNotRead)
	})

	It("leaves a variable that the chart sets alone and names its owner", func(ctx SpecContext) {
		s := newSite(ctx, layout{gateways: []fixtures.GatewayWorkload{{Env: []corev1.EnvVar{{Name: "STARGATE_LAST_CLUSTER_ENABLED", Value: "false"}}}}})
		s.plane()
		policy := s.policy("llama", flagged("a"))
		s.conditioned(s.stored(), v1alpha1.ConditionStalled, "True", rollout.ReasonFieldOwned)
		plane := s.stored()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(plane), plane)).To(Succeed())
		Expect(plane.Status.Conditions).To(ContainElement(And(
			HaveField("Type", v1alpha1.ConditionStalled), HaveField("Message", ContainSubstring("STARGATE_LAST_CLUSTER_ENABLED")))))
		Expect(s.flagsOn()).To(BeEmpty())
		s.conditioned(policy, v1alpha1.ConditionProgrammed, "False", "FlagsHeld")

		By("taking it out of the chart")
		gateway := s.gateways[0].(*appsv1.Deployment)
		change(s, gateway, func(d *appsv1.Deployment) {
			container := &d.Spec.Template.Spec.Containers[0]
			container.Env = container.Env[:len(container.Env)-1]
		})
		s.settled(policy)
		Expect(s.flagsOn()).To(Equal([]string{"a"}))
	})

	It("says so when a variable of the operator's is there twice, and does not mind others that are", func(ctx SpecContext) {
		other := []corev1.EnvVar{{Name: "OTHER", Value: "a"}, {Name: "OTHER", Value: "b"}, {Name: "LAST", Value: "$(OTHER)"}}
		own := []corev1.EnvVar{{Name: "STARGATE_LAST_CLUSTER_TTL", Value: "1m"}, {Name: "STARGATE_LAST_CLUSTER_TTL", Value: "2m"}}
		s := newSite(ctx, layout{gateways: []fixtures.GatewayWorkload{{Env: slices.Concat(own, other)}}})
		s.plane()
		policy := s.policy("llama", flagged("a"))
		s.conditioned(s.stored(), v1alpha1.ConditionStalled, "True", rollout.ReasonWorkloadProblem)
		change(s, s.gateways[0].(*appsv1.Deployment), func(d *appsv1.Deployment) {
			container := &d.Spec.Template.Spec.Containers[0]
			container.Env = slices.DeleteFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "STARGATE_LAST_CLUSTER_TTL" })
		})
		s.settled(policy)
		gateway := &appsv1.Deployment{}
		Expect(admin.Get(ctx, s.key(fixtures.Gateway), gateway)).To(Succeed())
		env := gateway.Spec.Template.Spec.Containers[0].Env
		Expect(env[:len(env)-4]).To(ContainElements(other[0], other[1], other[2]), "theirs first, in their order")
	})

	It("counts a memory that the chart switched on", func(ctx SpecContext) {
		s := newSite(ctx, layout{gateways: []fixtures.GatewayWorkload{{Settings: map[string]string{
			"STARGATE_LAST_CLUSTER_ENABLED": "true", "STARGATE_LAST_CLUSTER_TTL": "10m", "STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT": "20ms", "STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES": "100000",
		}}}})
		s.plane()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		Expect(s.rollouts(s.gateways[0])).To(Equal(1), "nothing to change on the gateway")
		Expect(s.flagsOn()).To(Equal([]string{"a"}))
	})

	It("does not count one that was switched on in the chart's ConfigMap beneath running pods, and gives them theirs", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		gateway := s.gateways[0].(*appsv1.Deployment)
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(gateway), gateway)).To(Succeed())
			g.Expect(gateway.Status.ReadyReplicas).To(Equal(*gateway.Spec.Replicas))
			g.Expect(time.Since(gateway.CreationTimestamp.Time)).To(BeNumerically(">", 3*time.Second), "by times of whole seconds, the pods are older than what comes")
		}).Should(Succeed())
		chart := &corev1.ConfigMap{}
		Expect(admin.Get(ctx, s.key(gateway.Spec.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name), chart)).To(Succeed())
		change(s, chart, func(cm *corev1.ConfigMap) { cm.Data["STARGATE_LAST_CLUSTER_ENABLED"] = "true" })
		s.plane()
		policy := s.policy("llama", flagged("a"))
		s.settled(policy)
		Expect(s.rollouts(gateway)).To(Equal(2), "the operator's own revision, once")
		Expect(s.flagsOn()).To(Equal([]string{"a"}))
	})
})
