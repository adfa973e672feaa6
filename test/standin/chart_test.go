package standin_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/test/fixtures"
)

var helms = []TableEntry{Entry("helm 3", "helm3"), Entry("helm 4", "helm4")}

// helm runs a command on the chart and returns what it prints.
func helm(ctx SpecContext, version string, args ...string) []byte {
	GinkgoHelper()
	cmd, err := env.Helm(ctx, version, args...)
	Expect(err).NotTo(HaveOccurred())
	cmd.Stderr = GinkgoWriter
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return out
}

func chart() string { return filepath.Join(env.Root, "test", "fixtures", "chart") }

var _ = Describe("The chart", func() {
	rendersAs := func(ctx SpecContext, version string, want []client.Object, args ...string) {
		GinkgoHelper()
		got, err := fixtures.Decode(helm(ctx, version, append([]string{"template", "llm", chart()}, args...)...))
		Expect(err).NotTo(HaveOccurred())
		for _, objects := range [][]client.Object{got, want} {
			for _, o := range objects {
				if d, ok := o.(*appsv1.Deployment); ok {
					delete(d.Spec.Template.Annotations, "checksum/config") // of the chart's own text
				}
			}
			slices.SortFunc(objects, func(a, b client.Object) int {
				return cmp.Or(cmp.Compare(fmt.Sprintf("%T", a), fmt.Sprintf("%T", b)), cmp.Compare(a.GetName(), b.GetName()))
			})
		}
		Expect(got).To(BeComparableTo(want))
	}

	DescribeTable("renders what the fixtures hold", func(ctx SpecContext, version string) {
		rendersAs(ctx, version,
			slices.Concat(fixtures.Stargate{}.Objects(""), fixtures.BackendRouterObjects(""), fixtures.GatewayWorkload{}.Objects("")),
			"--set", "llmRequestRouter.loadBalancer.configPath="+fixtures.OperatorConfigPath, "--set", "llmRequestRouter.backendRouter.enabled=true")
		rendersAs(ctx, version,
			slices.Concat(
				fixtures.Stargate{PodManagement: appsv1.ParallelPodManagement, Inline: plain, Replicas: one(), Tag: fixtures.TagV1}.Objects(""),
				fixtures.GatewayWorkload{Settings: map[string]string{"STARGATE_LAST_CLUSTER_ENABLED": "true"}}.Objects("")),
			"--set", "llmRequestRouter.kind=StatefulSet,llmRequestRouter.replicas=1,llmRequestRouter.image.tag="+fixtures.TagV1,
			"--set-string", "llmApiGateway.settings.STARGATE_LAST_CLUSTER_ENABLED=true",
			"--set-literal", "llmRequestRouter.loadBalancer.config="+plain)
	}, helms)

	DescribeTable("installs, and an upgrade of the image rolls the router only", func(ctx SpecContext, version string) {
		ns := namespace(ctx)
		settled := func(tag string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				all := kubelet.Pods(ns)
				g.Expect(all).To(HaveLen(6))
				for _, p := range all {
					g.Expect(p.Ready).To(BeTrue())
					if p.Owner == "Deployment/"+fixtures.Router {
						g.Expect(p.Image).To(HaveSuffix(":" + tag))
						g.Expect(string(p.File)).To(Equal(plain))
					}
				}
			}).Should(Succeed())
		}
		gateways := func() []string {
			var names []string
			for _, p := range kubelet.Pods(ns) {
				if p.Owner == "Deployment/"+fixtures.Gateway {
					names = append(names, p.Name)
				}
			}
			return names
		}

		helm(ctx, version, "install", "llm", chart(), "-n", ns, "--wait", "--timeout", "1m", "--set-literal", "llmRequestRouter.loadBalancer.config="+plain)
		settled(fixtures.TagV3)
		before := gateways()
		helm(ctx, version, "upgrade", "llm", chart(), "-n", ns, "--reuse-values", "--wait", "--timeout", "1m", "--set", "llmRequestRouter.image.tag=0.22.1")
		settled("0.22.1")
		Expect(gateways()).To(Equal(before))
		helm(ctx, version, "uninstall", "llm", "-n", ns)
		Eventually(kubelet.Pods).WithArguments(ns).Should(BeEmpty())
	}, helms)
})
