// Package adoption goes through docs/adopting.md step by step with the real Helm, 3 and 4, against a real API server
// and controller manager, with the manager as a process. What pods run is asked of what stands in for their kubelet.
package adoption

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

var (
	env     *testenv.Environment
	admin   client.Client
	kubelet *standin.Standin
	// plugin is the path of kubectl-routing.
	plugin string
)

func TestAdoption(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Adopting a running Helm install")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(GinkgoLogr)
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	root := filepath.Join("..", "..", "..")
	var err error
	env, err = testenv.Start(ctx, testenv.Options{ControllerManager: true, Webhooks: []string{filepath.Join(root, operator.WebhookManifest)}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	admin, err = client.New(env.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	releases, err := release.ParseTable(fixtures.Releases())
	Expect(err).NotTo(HaveOccurred())
	kubelet, err = standin.Start(ctx, env.Config, standin.Options{Releases: &releases})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(kubelet.Stop)

	plugin = filepath.Join(GinkgoT().TempDir(), "kubectl-routing")
	build := exec.CommandContext(ctx, "go", "build", "-o", plugin, "./cmd/kubectl-routing")
	build.Dir = env.Root
	output(build)
	installed, err := operator.Install(ctx, env)
	Expect(err).NotTo(HaveOccurred())
	_, err = installed.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
})

// output runs a command that has to succeed.
func output(command *exec.Cmd) string {
	GinkgoHelper()
	out, err := command.Output()
	if failed, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it unwrapped
		Expect(err).NotTo(HaveOccurred(), "%s\n%s%s", command, out, failed.Stderr)
	}
	Expect(err).NotTo(HaveOccurred(), "%s", command)
	return string(out)
}
