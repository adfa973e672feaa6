package standin_test

import (
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

const (
	plain    = `{"default":"random","models":{"a":"pulsar","b":"random"}}`
	flagged  = `{"models":{"a":{"algorithm":"wait-and-widen","last_cluster_affinity":true}}}`
	mistaken = `{"models":{"a":{"algorithm":"pulsar","sample_count":2}}}`
)

var _ = Describe("Workloads under the real controllers", func() {
	It("rolls a Deployment of three without ever having fewer than three ready", func(ctx SpecContext) {
		ns := namespace(ctx)
		record := kubelet.Record(ns)
		started := time.Now()
		deployment := create(ctx, fixtures.Stargate{Inline: plain}.Objects(ns)).(*appsv1.Deployment)
		Eventually(rolledOut(ctx, deployment)).Should(BeTrue())
		AddReportEntry("creation of a Deployment of 3", time.Since(started).String())

		before := len(record.States())
		started = time.Now()
		patch := client.MergeFrom(deployment.DeepCopy())
		deployment.Spec.Template.Annotations = map[string]string{"roll": "1"}
		Expect(c.Patch(ctx, deployment, patch)).To(Succeed())
		Eventually(rolledOut(ctx, deployment)).Should(BeTrue())
		AddReportEntry("rollout of a Deployment of 3", time.Since(started).String())
		record.Stop()

		for _, state := range record.States()[before:] {
			ready := 0
			for _, p := range state {
				if p.Ready {
					ready++
				}
			}
			Expect(ready).To(BeNumerically(">=", 3), "%v", state)
		}
		Eventually(kubelet.Pods).WithArguments(ns).Should(HaveLen(3))
		for _, p := range kubelet.Pods(ns) {
			Expect(p.Owner).To(Equal("Deployment/" + fixtures.Router))
			Expect(p.Kind).To(Equal(standin.Router))
			Expect(p.Generation).To(Equal(release.V3))
			Expect(string(p.File)).To(Equal(plain))
		}
	})

	It("starts the pods of an ordered StatefulSet one after the other, and those of a parallel one together", func(ctx SpecContext) {
		for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
			ns := namespace(ctx)
			record := kubelet.Record(ns)
			together := 3
			if policy == appsv1.OrderedReadyPodManagement {
				together = 1
			}
			release := kubelet.When(inNamespace(ns), func(b *standin.Behaviour) { b.Unready = true })
			set := create(ctx, fixtures.Stargate{PodManagement: policy, Inline: plain}.Objects(ns))
			Eventually(kubelet.Pods).WithArguments(ns).Should(HaveLen(together))
			release()
			Eventually(rolledOut(ctx, set)).Should(BeTrue())
			record.Stop()
			mostUnready := 0
			for _, state := range record.States() {
				unready := 0
				for _, p := range state {
					if !p.Ready {
						unready++
					}
				}
				mostUnready = max(mostUnready, unready)
			}
			Expect(mostUnready).To(Equal(together))
			Expect(kubelet.Pods(ns)[0].Owner).To(Equal("StatefulSet/" + fixtures.Router))
		}
	})

	It("writes nothing while nothing changes", func(ctx SpecContext) {
		ns := namespace(ctx)
		deployment := create(ctx, fixtures.Stargate{Inline: plain, Sidecar: true}.Objects(ns))
		Eventually(rolledOut(ctx, deployment)).Should(BeTrue())
		writes := func(since testenv.Mark) []testenv.Write {
			all, err := env.Writes(since, "standin")
			Expect(err).NotTo(HaveOccurred())
			return slices.DeleteFunc(all, func(w testenv.Write) bool { return w.Namespace != ns })
		}
		Expect(writes(0)).NotTo(BeEmpty())
		mark, err := env.Mark()
		Expect(err).NotTo(HaveOccurred())
		Consistently(writes).WithArguments(mark).Within(2 * time.Second).Should(BeEmpty())
	})

	It("collects what a deleted Deployment owned, and a namespace goes with all of it", func(ctx SpecContext) {
		ns := namespace(ctx)
		deployment := create(ctx, fixtures.Stargate{Inline: plain, Replicas: one()}.Objects(ns))
		create(ctx, fixtures.GatewayWorkload{Replicas: one()}.Objects(ns))
		Eventually(kubelet.Pods).WithArguments(ns).Should(HaveLen(2))
		Expect(c.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(gone(ctx, deployment)).Should(BeTrue())
		Eventually(kubelet.Pods).WithArguments(ns).Should(HaveLen(1))

		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		Expect(c.Delete(ctx, namespace)).To(Succeed())
		Eventually(gone(ctx, namespace)).Should(BeTrue())
		Expect(kubelet.Pods(ns)).To(BeEmpty())
	})
})

var _ = Describe("A Stargate pod", func() {
	router := func(ctx SpecContext, s fixtures.Stargate) string {
		ns := namespace(ctx)
		s.Replicas = one()
		create(ctx, s.Objects(ns))
		return ns
	}
	running := func(ns string) func() bool {
		return func() bool {
			all := kubelet.Pods(ns)
			return len(all) == 1 && all[0].Running && all[0].Ready
		}
	}

	It("logs what it loaded, where kubectl finds it, beside a sidecar", func(ctx SpecContext) {
		ns := router(ctx, fixtures.Stargate{Inline: plain, Sidecar: true})
		Eventually(running(ns)).Should(BeTrue())
		Eventually(pods).WithArguments(ctx, ns).Should(ConsistOf(HaveField("Status.PodIP", HavePrefix("127.")))) // written after it runs
		pod := pods(ctx, ns)[0]
		Expect(pod.Spec.Containers[0].Name).To(Equal("vault-agent"))
		out, err := env.Kubectl(ctx, "logs", "-n", ns, pod.Name, "-c", fixtures.RouterContainer).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(ContainSubstring("INFO load balancer config loaded default_lb=random model_overrides=2"))
	})

	It("crash-loops on a file that Stargate refuses, with the reason in the logs and not in the status", func(ctx SpecContext) {
		ns := router(ctx, fixtures.Stargate{Inline: mistaken})
		Eventually(waiting(ctx, ns, fixtures.RouterContainer)).Should(Equal("CrashLoopBackOff"))
		Eventually(func() int32 { return container(ctx, ns, fixtures.RouterContainer).RestartCount }).Should(BeNumerically(">=", 2))
		status := container(ctx, ns, fixtures.RouterContainer)
		Expect(status.LastTerminationState.Terminated).NotTo(BeNil())
		Expect(status.LastTerminationState.Terminated.ExitCode).To(BeEquivalentTo(1))
		Expect(status.LastTerminationState.Terminated.Message).To(BeEmpty())
		for _, previous := range []bool{false, true} {
			log, err := logs(ctx, pods(ctx, ns)[0], corev1.PodLogOptions{Container: fixtures.RouterContainer, Previous: previous, TailLines: ptr.To[int64](1)})
			Expect(err).NotTo(HaveOccurred())
			Expect(log).To(ContainSubstring("pulsar config does not support field(s): sample_count"))
		}
		Expect(kubelet.Pods(ns)[0].Running).To(BeFalse())
		Expect(pods(ctx, ns)[0].Status.Phase).To(Equal(corev1.PodRunning))
	})

	It("says why in its status where the template asks for that", func(ctx SpecContext) {
		ns := router(ctx, fixtures.Stargate{Inline: mistaken, Change: func(t *corev1.PodTemplateSpec) {
			t.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}})
		Eventually(func() string {
			if last := container(ctx, ns, fixtures.RouterContainer).LastTerminationState.Terminated; last != nil {
				return last.Message
			}
			return ""
		}).Should(ContainSubstring("pulsar config does not support field(s): sample_count"))
	})

	It("is judged by the generation of its image", func(ctx SpecContext) {
		old := router(ctx, fixtures.Stargate{Inline: flagged, Tag: fixtures.TagV1})
		young := router(ctx, fixtures.Stargate{Inline: flagged, Tag: fixtures.TagV3})
		Eventually(waiting(ctx, old, fixtures.RouterContainer)).Should(Equal("CrashLoopBackOff"))
		Eventually(running(young)).Should(BeTrue())
		Expect(kubelet.Pods(young)[0].Flags).To(HaveLen(1))
	})

	It("waits for a ConfigMap that is not there yet", func(ctx SpecContext) {
		ns := namespace(ctx)
		objects := fixtures.Stargate{Inline: plain, Replicas: one()}.Objects(ns)
		last := len(objects) - 1
		create(ctx, objects[:last])
		Eventually(func() string {
			events := &corev1.EventList{}
			Expect(c.List(ctx, events, client.InNamespace(ns))).To(Succeed())
			for _, e := range events.Items {
				if e.Reason == "FailedMount" {
					return e.Message
				}
			}
			return ""
		}).Should(ContainSubstring(`configmap "llm-request-router-lb" not found`))
		Expect(waiting(ctx, ns, fixtures.RouterContainer)()).To(Equal("ContainerCreating"))
		create(ctx, objects[last:])
		Eventually(running(ns)).Should(BeTrue())
	})

	It("runs the file it started with until it starts again, then the new one", func(ctx SpecContext) {
		ns := router(ctx, fixtures.Stargate{Inline: plain})
		Eventually(running(ns)).Should(BeTrue())
		changed := configMap(ns, fixtures.InlineConfigMap, map[string]string{"lb-config.json": flagged})
		Expect(c.Update(ctx, changed)).To(Succeed())
		Expect(string(kubelet.Pods(ns)[0].File)).To(Equal(plain))
		calm := kubelet.When(inNamespace(ns), func(b *standin.Behaviour) { b.Crash = "out of memory" })
		Eventually(func() bool { return kubelet.Pods(ns)[0].Running }).Should(BeFalse())
		calm()
		Eventually(running(ns)).Should(BeTrue())
		Expect(string(kubelet.Pods(ns)[0].File)).To(Equal(flagged))
	})

	It("reads a projected volume with renamed keys", func(ctx SpecContext) {
		ns := namespace(ctx)
		Expect(c.Create(ctx, configMap(ns, "files", map[string]string{"some.json": flagged}))).To(Succeed())
		create(ctx, fixtures.Stargate{Replicas: one(), Change: func(t *corev1.PodTemplateSpec) {
			t.Spec.Volumes = []corev1.Volume{{Name: "f", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "files"},
					Items:                []corev1.KeyToPath{{Key: "some.json", Path: "lb-config.json"}},
				}}},
			}}}}
			t.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "f", MountPath: "/etc/routing-operator"}}
		}}.Objects(ns))
		Eventually(running(ns)).Should(BeTrue())
		Expect(string(kubelet.Pods(ns)[0].File)).To(Equal(flagged))
	})

	It("exits when its argument names a file that nothing mounts, and ignores every file without the argument", func(ctx SpecContext) {
		missing := router(ctx, fixtures.Stargate{})
		none := router(ctx, fixtures.Stargate{WithoutPath: true})
		Eventually(waiting(ctx, missing, fixtures.RouterContainer)).Should(Equal("CrashLoopBackOff"))
		Eventually(running(none)).Should(BeTrue())
		Expect(kubelet.Pods(none)[0].File).To(BeNil())
		log, err := logs(ctx, pods(ctx, none)[0], corev1.PodLogOptions{Container: fixtures.RouterContainer})
		Expect(err).NotTo(HaveOccurred())
		Expect(log).To(ContainSubstring("default_lb=power-of-n model_overrides=0"))
	})

	It("ends for good where its restart policy says so", func(ctx SpecContext) {
		ns := namespace(ctx)
		deployment := fixtures.Stargate{}.Objects(ns)[0].(*appsv1.Deployment)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "once"}, Spec: deployment.Spec.Template.Spec}
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		Expect(c.Create(ctx, pod)).To(Succeed())
		Eventually(func() corev1.PodPhase {
			Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			return pod.Status.Phase
		}).Should(Equal(corev1.PodFailed))
		Expect(c.Delete(ctx, pod)).To(Succeed())
		Eventually(gone(ctx, pod)).Should(BeTrue())
	})

	It("is not ready while a readiness gate is not met", func(ctx SpecContext) {
		ns := router(ctx, fixtures.Stargate{Inline: plain, Change: func(t *corev1.PodTemplateSpec) {
			t.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		}})
		Eventually(func() bool { return container(ctx, ns, fixtures.RouterContainer).Ready }).Should(BeTrue())
		Expect(running(ns)()).To(BeFalse())
		pod := pods(ctx, ns)[0]
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
		Expect(c.Status().Update(ctx, &pod)).To(Succeed())
		Eventually(running(ns)).Should(BeTrue())
	})
})

var _ = Describe("A gateway pod", func() {
	It("has the memory that envFrom gives it, unless env says otherwise", func(ctx SpecContext) {
		on, off := namespace(ctx), namespace(ctx)
		settings := map[string]string{"STARGATE_LAST_CLUSTER_ENABLED": "T", "STARGATE_LAST_CLUSTER_TTL": ""}
		create(ctx, fixtures.GatewayWorkload{Settings: settings}.Objects(on))
		create(ctx, fixtures.GatewayWorkload{Settings: settings, Env: []corev1.EnvVar{{Name: "STARGATE_LAST_CLUSTER_ENABLED", Value: "0"}}}.Objects(off))
		for ns, want := range map[string]bool{on: true, off: false} {
			Eventually(func(g Gomega) {
				all := kubelet.Pods(ns)
				g.Expect(all).To(HaveLen(3))
				for _, p := range all {
					g.Expect(p.Ready).To(BeTrue())
					g.Expect(p.Memory).To(Equal(want))
					g.Expect(p.Env).To(HaveKeyWithValue("METRICS_PORT", "9464"))
				}
			}).Should(Succeed())
		}
	})

	DescribeTable("crashes on a malformed variable, also with the memory off", func(ctx SpecContext, name, value, want string) {
		ns := namespace(ctx)
		create(ctx, fixtures.GatewayWorkload{Replicas: one(), Env: []corev1.EnvVar{{Name: name, Value: value}}}.Objects(ns))
		Eventually(waiting(ctx, ns, fixtures.GatewayContainer)).Should(Equal("CrashLoopBackOff"))
		log, err := logs(ctx, pods(ctx, ns)[0], corev1.PodLogOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(log).To(ContainSubstring(want))
	},
		Entry("a lifetime without a unit", "STARGATE_LAST_CLUSTER_TTL", "10", `invalid STARGATE_LAST_CLUSTER_TTL "10"`),
		Entry("no lifetime at all", "STARGATE_LAST_CLUSTER_TTL", "0s", "greater than zero"),
		Entry("a negative timeout", "STARGATE_LAST_CLUSTER_LOOKUP_TIMEOUT", "-1ms", "greater than zero"),
		Entry("a fraction of an entry", "STARGATE_LAST_CLUSTER_LOCAL_MAX_ENTRIES", "1.5", "invalid syntax"),
		Entry("no boolean", "STARGATE_LAST_CLUSTER_ENABLED", "yes", "invalid syntax"),
	)

	It("cannot start while a key that it refers to is missing", func(ctx SpecContext) {
		ns := namespace(ctx)
		ref := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "revision"}, Key: "ttl"}}
		create(ctx, fixtures.GatewayWorkload{Replicas: one(), Env: []corev1.EnvVar{{Name: "STARGATE_LAST_CLUSTER_TTL", ValueFrom: ref}}}.Objects(ns))
		Eventually(waiting(ctx, ns, fixtures.GatewayContainer)).Should(Equal("CreateContainerConfigError"))
		Expect(c.Create(ctx, configMap(ns, "revision", map[string]string{"ttl": "5m"}))).To(Succeed())
		Eventually(func() string {
			if all := kubelet.Pods(ns); len(all) == 1 {
				return all[0].Env["STARGATE_LAST_CLUSTER_TTL"]
			}
			return ""
		}).Should(Equal("5m"))
	})
})

var _ = Describe("Pods that a rule is about", func() {
	It("stay pending, cannot pull, stay unready or hang, as told, and recover when it is lifted", func(ctx SpecContext) {
		ns := namespace(ctx)
		lift := kubelet.When(inNamespace(ns), func(b *standin.Behaviour) { b.Unschedulable = true })
		deployment := create(ctx, fixtures.Stargate{Inline: plain, Replicas: one()}.Objects(ns))
		Eventually(func() string {
			for _, p := range pods(ctx, ns) {
				for _, condition := range p.Status.Conditions {
					if condition.Type == corev1.PodScheduled {
						return condition.Reason
					}
				}
			}
			return ""
		}).Should(Equal(corev1.PodReasonUnschedulable))

		next := kubelet.When(inNamespace(ns), func(b *standin.Behaviour) { b.Unschedulable, b.PullFails = false, true })
		lift()
		Eventually(waiting(ctx, ns, fixtures.RouterContainer)).Should(Equal("ImagePullBackOff"))
		lift, next = next, kubelet.When(inNamespace(ns), func(b *standin.Behaviour) { b.PullFails, b.Unready = false, true })
		lift()
		Eventually(func() bool { return container(ctx, ns, fixtures.RouterContainer).State.Running != nil }).Should(BeTrue())
		Expect(container(ctx, ns, fixtures.RouterContainer).Ready).To(BeFalse())
		next()
		Eventually(rolledOut(ctx, deployment)).Should(BeTrue())

		stuck := kubelet.When(inNamespace(ns), func(b *standin.Behaviour) { b.Stuck = true })
		pod := pods(ctx, ns)[0]
		Expect(c.Delete(ctx, &pod, client.GracePeriodSeconds(1))).To(Succeed())
		Eventually(func() int { return len(pods(ctx, ns)) }).Should(Equal(2))
		Consistently(func() bool {
			return pods(ctx, ns)[0].DeletionTimestamp != nil || pods(ctx, ns)[1].DeletionTimestamp != nil
		}, 2*time.Second).Should(BeTrue())
		stuck()
		Eventually(gone(ctx, &pod)).Should(BeTrue())
	})

	It("leave a node that is drained, and wait where none takes them", func(ctx SpecContext) {
		ns := namespace(ctx)
		deployment := create(ctx, fixtures.Stargate{Inline: plain}.Objects(ns))
		Eventually(rolledOut(ctx, deployment)).Should(BeTrue())
		before := sets.New[types.UID]()
		for _, p := range pods(ctx, ns) {
			before.Insert(p.UID)
		}
		victim := pods(ctx, ns)[0]
		out, err := env.Kubectl(ctx, "cordon", victim.Spec.NodeName).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		DeferCleanup(func(ctx SpecContext) {
			out, err := env.Kubectl(ctx, "uncordon", victim.Spec.NodeName).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
		})
		Expect(c.SubResource("eviction").Create(ctx, &victim, &policyv1.Eviction{})).To(Succeed())
		Eventually(gone(ctx, victim.DeepCopy())).Should(BeTrue())
		Eventually(rolledOut(ctx, deployment)).Should(BeTrue())
		made := slices.DeleteFunc(pods(ctx, ns), func(p corev1.Pod) bool { return before.Has(p.UID) })
		Expect(made).NotTo(BeEmpty())
		Expect(made).NotTo(ContainElement(HaveField("Spec.NodeName", victim.Spec.NodeName)))
	})
})
