// Package cli holds kubectl routing against what it stands for: its verdicts against those of a real API server with the
// operator's webhook, its plans against what the operator then does.
package cli

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/routing-operator/routing-operator/internal/cli"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/standin"
)

const patience = time.Minute

var (
	env     *testenv.Environment
	admin   client.Client
	kubelet *standin.Standin
)

func TestCLI(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "kubectl routing")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(GinkgoLogr)
	p, err := platform.Start(ctx, platform.Options{Webhook: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Stop)
	env, admin, kubelet = p.Env, p.Admin, p.Kubelet
	_, err = p.Installed.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
})

// answer of a command line.
type answer struct {
	code     int
	out, err string
}

// routing runs kubectl routing in this process, with input, against the API server.
func routing(ctx context.Context, in string, args ...string) answer {
	var out, errs bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: &errs}
	code := cli.Run(ctx, args, streams, clock.RealClock{})
	return answer{code, out.String(), errs.String()}
}

// cluster are the flags that name the API server and, for a plan, the releases of the fixtures.
func cluster(namespace string) []string {
	return []string{"--kubeconfig", env.KubeConfig, "-n", namespace}
}

func run(command *exec.Cmd) string {
	GinkgoHelper()
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", command, out)
	return string(out)
}
