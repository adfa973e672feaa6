package adoption

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/internal/render"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

const (
	planeName    = "llm"
	releaseName  = "llm"
	replicas     = 3
	fieldManager = "routing-operator"
)

//go:embed testdata/lb-config.json
var inline []byte

// What Helm is told when the file becomes the operator's.
var switched = []string{"--set", "llmRequestRouter.loadBalancer.config=", "--set", "llmRequestRouter.loadBalancer.configPath=" + fixtures.OperatorConfigPath}

// site is a namespace with a Helm release, recorded from its first pod on.
type site struct {
	ctx                 context.Context
	namespace           string
	version, routerKind string
	record              *standin.Recorder
}

// newSite installs the chart by a version of Helm.
func newSite(ctx context.Context, version, routerKind string, values ...string) *site {
	GinkgoHelper()
	namespace, err := env.Namespace(ctx, "adoption")
	Expect(err).NotTo(HaveOccurred())
	s := &site{ctx: ctx, namespace: namespace, version: version, routerKind: routerKind, record: kubelet.Record(namespace)}
	DeferCleanup(s.record.Stop)
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			AddReportEntry("site", output(env.Kubectl(ctx, "get", "-n", namespace, "-o", "yaml",
				"routingplanes,routingpolicies,deployments,statefulsets,pods,configmaps,events.events.k8s.io")))
		}
	})
	s.helm(version, slices.Concat(values, []string{"install", releaseName, chart(), "--set", "llmRequestRouter.kind=" + routerKind})...)
	s.serving(fixtures.TagV3)
	return s
}

func chart() string { return filepath.Join(env.Root, "test", "fixtures", "chart") }

func (s *site) helm(version string, args ...string) {
	GinkgoHelper()
	command, err := env.Helm(s.ctx, version, append(args, "-n", s.namespace)...)
	Expect(err).NotTo(HaveOccurred())
	output(command)
}

// upgrade the release with the values that it has and those that are given, by the Helm that installed it where no
// other is named.
func (s *site) upgrade(version string, values ...string) {
	GinkgoHelper()
	s.helm(cmp.Or(version, s.version), slices.Concat(values, []string{"upgrade", releaseName, chart(), "--reuse-values"})...)
}

func (s *site) kubectl(args ...string) string {
	GinkgoHelper()
	return output(env.Kubectl(s.ctx, append(args, "-n", s.namespace)...))
}

// imported makes plane and policies of what the router runs, as docs/adopting.md says, and applies them.
func (s *site) imported(from string, input []byte, arguments ...string) {
	GinkgoHelper()
	importing := exec.CommandContext(s.ctx, plugin, append([]string{"import", from, "--plane", planeName, "-n", s.namespace, "--split",
		"--stargate", s.routerKind + "/" + fixtures.Router}, arguments...)...)
	importing.Stdin = strings.NewReader(string(input))
	apply := env.Kubectl(s.ctx, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(output(importing))
	output(apply)
}

// resume lets the operator go on, and quickly.
func (s *site) resume() {
	GinkgoHelper()
	s.kubectl("patch", "rpl", planeName, "--type=merge", "-p",
		`{"spec":{"rollout":{"paused":false,"quietPeriod":"100ms","gatewayWarmup":"0s","waveInterval":"0s"}}}`)
}

// says waits until the plane says so: kubectl's condition or reason of a condition.
func (s *site) says(condition, reason string) {
	GinkgoHelper()
	s.kubectl("wait", "rpl/"+planeName, "--timeout=60s", fmt.Sprintf(`--for=jsonpath={.status.conditions[?(@.type==%q)].reason}=%s`, condition, reason))
}

func (s *site) ready() {
	GinkgoHelper()
	s.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "rpl/"+planeName)
	if len(s.policies()) > 0 {
		s.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "rp", "--all")
	}
}

func (s *site) policies() []v1alpha1.RoutingPolicy {
	GinkgoHelper()
	var list v1alpha1.RoutingPolicyList
	Expect(admin.List(s.ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
	return list.Items
}

// serving waits until nothing but the wanted number of pods is left, all of them ready, the routers with the image.
func (s *site) serving(tag string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		counts := map[standin.Kind]int{}
		for _, pod := range kubelet.Pods(s.namespace) {
			counts[pod.Kind]++
			g.Expect(pod).To(HaveField("Ready", true))
			if pod.Kind == standin.Router {
				g.Expect(pod.Image).To(HaveSuffix(":" + tag))
			}
		}
		g.Expect(counts).To(Equal(map[standin.Kind]int{standin.Router: replicas, standin.Gateway: replicas}))
		g.Expect(s.rolledOut()).To(BeTrue())
	}).Should(Succeed())
}

// rolledOut is what Kubernetes says of the router.
func (s *site) rolledOut() bool {
	switch w := s.router().(type) {
	case *appsv1.Deployment:
		return w.Status.ObservedGeneration == w.Generation && w.Status.UpdatedReplicas == replicas && w.Status.Replicas == replicas && w.Status.AvailableReplicas == replicas
	case *appsv1.StatefulSet:
		return w.Status.ObservedGeneration == w.Generation && w.Status.ReadyReplicas == replicas && w.Status.CurrentRevision == w.Status.UpdateRevision
	}
	return false
}

func (s *site) router() client.Object {
	GinkgoHelper()
	var workload client.Object = &appsv1.Deployment{}
	if s.routerKind == v1alpha1.KindStatefulSet {
		workload = &appsv1.StatefulSet{}
	}
	Expect(admin.Get(s.ctx, s.key(fixtures.Router), workload)).To(Succeed())
	return workload
}

// template of the router's pods.
func (s *site) template() *corev1.PodSpec {
	GinkgoHelper()
	switch w := s.router().(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &w.Spec.Template.Spec
	}
	return nil
}

// templates counts the pod templates that the router and the gateway have had.
func (s *site) templates() [2]int {
	GinkgoHelper()
	gateway := &appsv1.Deployment{}
	Expect(admin.Get(s.ctx, s.key(fixtures.Gateway), gateway)).To(Succeed())
	counts := [2]int{0, numbered(gateway)}
	router := s.router()
	if _, ok := router.(*appsv1.Deployment); ok {
		counts[0] = numbered(router)
		return counts
	}
	var revisions appsv1.ControllerRevisionList
	Expect(admin.List(s.ctx, &revisions, client.InNamespace(s.namespace))).To(Succeed())
	for i := range revisions.Items {
		if metav1.IsControlledBy(&revisions.Items[i], router) {
			counts[0] = max(counts[0], int(revisions.Items[i].Revision))
		}
	}
	return counts
}

func numbered(deployment client.Object) int {
	GinkgoHelper()
	n, err := strconv.Atoi(deployment.GetAnnotations()["deployment.kubernetes.io/revision"])
	Expect(err).NotTo(HaveOccurred())
	return n
}

// changes counts what was written of the router's spec, whether or not its controller has seen all of it.
func (s *site) changes() int64 {
	GinkgoHelper()
	return s.router().GetGeneration()
}

// mounted is the revision that the operator has put into the router's template; empty where it has not, or others own
// what it set.
func (s *site) mounted() string {
	GinkgoHelper()
	pod := s.template()
	revision := ""
	for _, v := range pod.Volumes {
		if v.Name == "routing-lb-config" && v.ConfigMap != nil {
			revision = v.ConfigMap.Name
		}
	}
	if revision == "" {
		return ""
	}
	Expect(pod.Containers[0].VolumeMounts).To(ContainElement(HaveField("MountPath", filepath.Dir(fixtures.OperatorConfigPath))))
	for _, entry := range s.router().GetManagedFields() {
		if strings.Contains(entry.FieldsV1.GetRawString(), "routing-lb-config") {
			Expect(entry).To(And(HaveField("Manager", fieldManager), HaveField("Operation", metav1.ManagedFieldsOperationApply)))
		}
	}
	return revision
}

// rendered is the file of a revision.
func (s *site) rendered(revision string) *lbconfig.File {
	GinkgoHelper()
	cm := &corev1.ConfigMap{}
	Expect(admin.Get(s.ctx, s.key(revision), cm)).To(Succeed())
	return read([]byte(cm.Data[render.LBConfigKey]))
}

func read(data []byte) *lbconfig.File {
	GinkgoHelper()
	file, err := lbconfig.Read(data, release.V3)
	Expect(err).NotTo(HaveOccurred())
	return file
}

// routers are the router's pods as they are.
func (s *site) routers() []standin.Snapshot {
	var routers []standin.Snapshot
	for _, pod := range kubelet.Pods(s.namespace) {
		if pod.Kind == standin.Router {
			routers = append(routers, pod)
		}
	}
	return routers
}

// judge looks at every state that the pods have been in so far: each router that ever ran had a file of the one
// meaning, or none where that is allowed; each gateway had the memory as it is wanted; and from the moment on at which
// all routers were ready there was none at which no router was. It returns the pods that exited.
func (s *site) judge(meaning *lbconfig.File, noFile, memory bool) (exited sets.Set[string]) {
	GinkgoHelper()
	served := false
	started := sets.New[types.UID]()
	exited = sets.New[string]()
	for _, pods := range s.record.States() {
		ready := 0
		for _, pod := range pods {
			if pod.Restarts > 0 {
				exited.Insert(pod.Name)
			}
			if !pod.Running {
				continue
			}
			switch pod.Kind {
			case standin.Gateway:
				Expect(pod.Memory).To(Equal(memory), "the memory of %s", pod.Name)
			case standin.Router:
				started.Insert(pod.UID)
				if pod.Ready && !pod.Terminating {
					ready++
				}
				if pod.File == nil {
					Expect(noFile).To(BeTrue(), "%s runs without a file", pod.Name)
					continue
				}
				Expect(lbconfig.Same(read(pod.File), meaning)).To(BeTrue(), "%s runs another meaning: %s", pod.Name, pod.File)
			}
		}
		served = served || ready == replicas
		if served {
			Expect(ready).To(BeNumerically(">", 0), func() string { return "ready routers among\n" + words(pods) })
		}
	}
	AddReportEntry("routers started and judged", started.Len(), ReportEntryVisibilityFailureOrVerbose)
	return exited
}

// slowly keeps the site's further pods from becoming ready, so that a test can step in between.
func (s *site) slowly() (quick func()) {
	before := sets.New[types.UID]()
	for _, pod := range kubelet.Pods(s.namespace) {
		before.Insert(pod.UID)
	}
	return kubelet.When(
		func(pod *corev1.Pod) bool { return pod.Namespace == s.namespace && !before.Has(pod.UID) },
		func(b *standin.Behaviour) { b.Unready = true })
}

// words are what a state was, in a line for each pod.
func words(pods []standin.Snapshot) string {
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "%s %s running=%t ready=%t terminating=%t restarts=%d\n", p.At.Format("15:04:05.000"), p.Name, p.Running, p.Ready, p.Terminating, p.Restarts)
	}
	return b.String()
}

// exits are the states in which a further pod had exited.
func (s *site) exits() string {
	var b strings.Builder
	seen := map[string]int{}
	for _, pods := range s.record.States() {
		for _, pod := range pods {
			if pod.Restarts > seen[string(pod.UID)] {
				seen[string(pod.UID)] = pod.Restarts
				fmt.Fprintf(&b, "%s %s among\n%s", pod.Name, pod.File, words(pods))
			}
		}
	}
	return b.String()
}

// restartOld deletes a router's pod that runs the chart's file while the first pod of the change is not ready, and waits
// until another one has started with it: the lowest ordinal, which is updated last.
func (s *site) restartOld(file string) {
	GinkgoHelper()
	Eventually(s.routers).Should(ContainElement(Satisfy(func(pod standin.Snapshot) bool {
		return pod.Running && pod.File != nil && string(pod.File) != file
	})), "the first pod of the change")
	routers := s.routers()
	before := sets.New[types.UID]()
	for i := range routers {
		before.Insert(routers[i].UID)
	}
	old := slices.IndexFunc(routers, func(pod standin.Snapshot) bool {
		return string(pod.File) == file && pod.Running && !pod.Terminating
	})
	Expect(old).NotTo(Equal(-1), "the change is rolled out already")
	s.kubectl("delete", "pod", routers[old].Name, "--wait=false")
	Eventually(s.record.States).Should(ContainElement(ContainElement(Satisfy(func(pod standin.Snapshot) bool {
		return pod.Kind == standin.Router && pod.Running && string(pod.File) == file && !before.Has(pod.UID)
	}))), "a pod of the old template finds the chart's file")
}

// wantFlag asks for the last-cluster flag of a model.
func (s *site) wantFlag(model string) {
	GinkgoHelper()
	for _, policy := range s.policies() {
		if policy.Spec.Models[0].Name == model {
			s.kubectl("patch", "rp", policy.Name, "--type=json", "-p", `[{"op":"add","path":"/spec/models/0/lastClusterAffinity","value":true}]`)
			s.kubectl("wait", "rp/"+policy.Name, "--timeout=60s", `--for=jsonpath={.status.observedGeneration}=2`)
			return
		}
	}
	Fail("no policy has model " + model)
}

func (s *site) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}
