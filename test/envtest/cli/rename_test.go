package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/internal/lbconfig"
	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

// recipe are the commands of a page of the documentation, as one script. They are about namespace nvcf there.
func recipe(page, namespace string) string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(env.Root, "docs", page))
	Expect(err).NotTo(HaveOccurred())
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		script.WriteString(block[1])
	}
	Expect(script.String()).To(ContainSubstring("ns=nvcf"))
	return strings.Replace(script.String(), "ns=nvcf", "ns="+namespace, 1)
}

var _ = Describe("A plane", func() {
	It("is renamed by the recipe with one rollout of the router and one of the gateway, and no pod is without its flag or memory", func(ctx SpecContext) {
		s := newSite(ctx, fixtures.Stargate{})
		s.apply(planeText("") + policyText("a", "m"+flag) + policyText("b", "k"))
		s.ready()
		before, record := s.rollouts(), kubelet.Record(s.namespace)
		defer record.Stop()

		folder := GinkgoT().TempDir()
		plugin, err := operator.BuildPlugin(ctx, env)
		Expect(err).NotTo(HaveOccurred())
		named := strings.Replace(planeText(", paused: true"), "{name: llm}", "{name: chat}", 1)
		Expect(os.WriteFile(filepath.Join(folder, "plane.yaml"), []byte(named), 0o600)).To(Succeed())
		shell := exec.CommandContext(ctx, "/bin/sh", "-euc", recipe("renaming.md", s.namespace))
		shell.Dir = folder
		shell.Env = append(os.Environ(), "KUBECONFIG="+env.KubeConfig, "KUBERC=off", "HOME="+folder,
			"PATH="+strings.Join([]string{env.Assets, plugin, os.Getenv("PATH")}, string(os.PathListSeparator)))
		out := run(shell)
		Expect(out).To(ContainSubstring("/chat, Ready, stage Settled"))
		Expect(s.kubectl("get", "rpl", "-o", "name")).To(Equal("routingplane.routing.nvcf.io/chat\n"))

		Expect(s.rollouts()).To(Equal([2]int{before[0] + 1, before[1] + 1}))
		for _, pods := range record.States() {
			for _, pod := range pods {
				switch {
				case !pod.Running:
				case pod.Kind == standin.Router:
					Expect(pod.Flags).To(ConsistOf(lbconfig.Place{Model: "m"}), "%s\n%s", pod.Name, pod.File)
				case pod.Kind == standin.Gateway:
					Expect(pod.Memory).To(BeTrue(), pod.Name)
				}
			}
		}

		By("nothing being left of the old plane, and the new one having all of it to switch off")
		var left corev1.ConfigMapList
		Expect(admin.List(ctx, &left, client.InNamespace(s.namespace), client.MatchingLabels{"routing.nvcf.io/plane": "llm"})).To(Succeed())
		Expect(left.Items).To(BeEmpty())
		for _, name := range []string{fixtures.Router, fixtures.Gateway} {
			Expect(s.deployment(name).Annotations).To(HaveKeyWithValue("routing.nvcf.io/plane", "chat"))
		}
		s.kubectl("delete", "rp", "a")
		Eventually(func() []corev1.EnvVar { return s.deployment(fixtures.Gateway).Spec.Template.Spec.Containers[0].Env }).ShouldNot(
			ContainElement(HaveField("Name", HavePrefix("STARGATE_LAST_CLUSTER_"))))
	})
})
