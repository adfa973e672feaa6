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
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
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
	p, err := platform.Start(ctx, platform.Options{Webhook: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Stop)
	env, admin, kubelet = p.Env, p.Admin, p.Kubelet
	_, err = p.Installed.Start(ctx)
	Expect(err).NotTo(HaveOccurred())

	folder, err := operator.BuildPlugin(ctx, env)
	Expect(err).NotTo(HaveOccurred())
	plugin = filepath.Join(folder, "kubectl-routing")
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
