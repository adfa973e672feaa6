package adoption

import (
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/internal/rollout"
	"github.com/routing-operator/routing-operator/test/fixtures"
)

const flagged, unflagged = "meta/llama-3.1-70b-instruct", "mistralai/mixtral-8x22b"

var (
	withFile = []string{"--set-file", "llmRequestRouter.loadBalancer.config=" + filepath.Join("testdata", "lb-config.json")}
	memoryOn = []string{"--set-string", "llmApiGateway.settings.STARGATE_LAST_CLUSTER_ENABLED=true"}
	// A volume of the chart's own beside the one with the file.
	anotherVolume = []string{"--set-json", `llmRequestRouter.extraVolumes=[{"name":"scratch","emptyDir":{}}]`,
		"--set-json", `llmRequestRouter.extraVolumeMounts=[{"name":"scratch","mountPath":"/tmp"}]`}
	serverSide = []string{"--server-side=true"}
)

// switching is how the argument is moved.
type switching struct {
	// helm that does it, with flags of its own. Default: the one that installed the chart.
	helm  string
	flags []string
	// mended: the router's volumes go with the chart's, and the operator puts its own back.
	mended bool
}

var _ = DescribeTable("A site with a file in Helm values and a memory that the chart has switched on", func(ctx SpecContext, version, kind string, values []string, by switching) {
	meaning := read(inline)
	s := newSite(ctx, version, kind, slices.Concat(values, withFile, memoryOn)...)
	Expect(s.templates()).To(Equal([2]int{1, 1}))

	By("importing the file that runs, and looking before anything changes")
	running := s.kubectl("get", "configmap", fixtures.InlineConfigMap, "-o", `jsonpath={.data.lb-config\.json}`)
	s.imported("--lb-config=-", []byte(running), "--gateway-env", "STARGATE_LAST_CLUSTER_ENABLED=true")
	s.says(v1alpha1.ConditionReconciling, rollout.ReasonPaused)
	Expect(s.templates()).To(Equal([2]int{1, 1}))

	By("letting the operator mount its file beside the chart's")
	s.resume()
	s.says(v1alpha1.ConditionReconciling, rollout.ReasonFileNotRead)
	s.serving(fixtures.TagV3)
	Expect(s.templates()).To(Equal([2]int{2, 1}), "one restart, by the operator")
	revision := s.mounted()
	Expect(lbconfig.Same(s.rendered(revision), meaning)).To(BeTrue(), "the flag included")
	Expect(s.routers()).To(HaveEach(HaveField("File", []byte(running))), "nothing reads the operator's file")

	By("keeping the chart's ConfigMap for pods of the old template, and moving the argument")
	s.kubectl("annotate", "configmap", fixtures.InlineConfigMap, "helm.sh/resource-policy=keep")
	quick := s.slowly()
	before := s.changes()
	s.upgrade(by.helm, slices.Concat(switched, by.flags)...)
	if by.mended { // before that, a pod that restarts is one of Helm's template
		Eventually(s.mounted).Should(Equal(revision))
	}
	s.restartOld(running)
	quick()
	s.ready()
	s.serving(fixtures.TagV3)
	restarts := s.templates()
	if by.mended {
		Expect(s.changes()-before).To(BeEquivalentTo(2), "Helm's and the operator's")
		Expect(restarts).To(Or(Equal([2]int{3, 1}), Equal([2]int{4, 1})), "3 if Helm's template was mended before its controller saw it")
	} else {
		Expect(restarts).To(Equal([2]int{3, 1}), "one restart, by Helm")
	}
	Expect(s.mounted()).To(Equal(revision))
	Expect(s.routers()).To(HaveEach(HaveField("File", Not(Equal([]byte(running))))), "the operator's file is read")
	s.kubectl("delete", "configmap", fixtures.InlineConfigMap)
	exited := s.judge(meaning, false, true)
	if by.mended {
		Expect(exited.Len()).To(BeNumerically("<=", 1), func() string {
			return "the first pod of Helm's template, which has no file, if the operator was not faster, and no other; exited:\n" + s.exits()
		})
	} else {
		Expect(exited).To(BeEmpty())
	}

	By("upgrading the chart to another image")
	s.upgrade("", "--set", "llmRequestRouter.image.tag=0.22.1")
	s.serving("0.22.1")
	s.ready()
	Expect(s.templates()).To(Equal([2]int{restarts[0] + 1, 1}))
	Expect(s.mounted()).To(Equal(revision))

	By("rolling back to before the switch, and asking for a further flag there")
	s.helm(version, "rollback", releaseName, "1")
	s.says(v1alpha1.ConditionReconciling, rollout.ReasonFileNotRead)
	s.serving(fixtures.TagV3)
	rolledBack := s.templates()
	Expect(s.routers()).To(HaveEach(HaveField("File", []byte(running))))
	s.wantFlag(unflagged)
	s.says(v1alpha1.ConditionReconciling, rollout.ReasonFileNotRead)
	Consistently(s.templates, time.Second).Should(Equal(rolledBack), "no flag moves")
	Expect(s.mounted()).To(Equal(revision))
	Expect(s.judge(meaning, false, true)).To(Equal(exited))

	By("switching once more, after which the flag comes")
	s.upgrade(by.helm, slices.Concat(switched, by.flags, []string{"--set", "llmRequestRouter.image.tag=0.22.1"})...)
	s.ready()
	s.serving("0.22.1")
	Expect(s.routers()).To(HaveEach(HaveField("Flags", ConsistOf(lbconfig.Place{Model: flagged}, lbconfig.Place{Model: unflagged}))))
},
	Entry("Helm 3, a Deployment with another volume", "helm3", v1alpha1.KindDeployment, anotherVolume, switching{}),
	Entry("Helm 3, a StatefulSet with another volume", "helm3", v1alpha1.KindStatefulSet, anotherVolume, switching{}),
	Entry("Helm 3, a Deployment, switched by Helm 4", "helm3", v1alpha1.KindDeployment, nil, switching{helm: "helm4", flags: serverSide}),
	Entry("Helm 3, a Deployment", "helm3", v1alpha1.KindDeployment, nil, switching{mended: true}),
	Entry("Helm 3, a StatefulSet", "helm3", v1alpha1.KindStatefulSet, nil, switching{mended: true}),
	Entry("Helm 4, a Deployment", "helm4", v1alpha1.KindDeployment, nil, switching{}),
	Entry("Helm 4, a StatefulSet", "helm4", v1alpha1.KindStatefulSet, nil, switching{}),
)

var _ = DescribeTable("A site that runs without any file", func(ctx SpecContext, version string) {
	s := newSite(ctx, version, v1alpha1.KindDeployment)
	Expect(s.routers()).To(HaveEach(HaveField("File", BeNil())))
	s.imported("--without-file", nil)
	s.resume()
	s.says(v1alpha1.ConditionReconciling, rollout.ReasonFileNotRead)
	s.serving(fixtures.TagV3)
	Expect(s.templates()).To(Equal([2]int{2, 1}))
	revision := s.mounted()
	Expect(s.routers()).To(HaveEach(HaveField("File", BeNil())))

	By("giving the router the argument")
	s.upgrade("", switched...)
	s.ready()
	s.serving(fixtures.TagV3)
	Expect(s.templates()).To(Equal([2]int{3, 1}))
	Expect(s.routers()).To(HaveEach(HaveField("File", Not(BeNil()))))

	everything := read([]byte(`{"default":"power-of-n","request_algorithms":{"power-of-n":"power-of-n","pulsar":"pulsar","pulsar-wait-and-widen":"pulsar-wait-and-widen",
		"random":"random","round-robin":"round-robin","wait-and-widen":"wait-and-widen"}}`))
	Expect(lbconfig.Same(s.rendered(revision), everything)).To(BeTrue(), "every request may choose any algorithm, as before")
	Expect(s.judge(everything, true, false)).To(BeEmpty())
}, Entry("Helm 3", "helm3"), Entry("Helm 4", "helm4"))

var _ = DescribeTable("A gateway whose chart sets the variable itself keeps it until the chart lets it go", func(ctx SpecContext, version string) {
	s := newSite(ctx, version, v1alpha1.KindDeployment, slices.Concat(withFile, anotherVolume,
		[]string{"--set-json", `llmApiGateway.env=[{"name":"STARGATE_LAST_CLUSTER_ENABLED","value":"false"}]`})...)
	s.imported("--lb-config=-", inline)
	s.resume()
	s.says(v1alpha1.ConditionReconciling, rollout.ReasonFileNotRead)
	s.upgrade("", switched...)
	s.says(v1alpha1.ConditionStalled, rollout.ReasonFieldOwned)
	Expect(s.kubectl("get", "rpl", planeName, "-o", `jsonpath={.status.conditions[?(@.type=="Stalled")].message}`)).To(And(
		ContainSubstring("STARGATE_LAST_CLUSTER_ENABLED"), ContainSubstring(`field manager "helm"`)))
	s.serving(fixtures.TagV3)
	Consistently(s.templates, time.Second).Should(Equal([2]int{3, 1}), "nothing is taken by force")
	Expect(s.routers()).To(HaveEach(HaveField("Flags", BeEmpty())), "a flag without a memory would lose every affinity wait")

	By("taking the variable out of the chart's values")
	s.upgrade("", "--set-json", "llmApiGateway.env=[]")
	s.ready()
	s.serving(fixtures.TagV3)
	Expect(s.templates()).To(Equal([2]int{4, 3}), "the chart lets go, the operator switches on, and the flag follows")
	Expect(s.routers()).To(HaveEach(HaveField("Flags", ConsistOf(lbconfig.Place{Model: flagged}))))
}, Entry("Helm 3", "helm3"), Entry("Helm 4", "helm4"))
