// Package scale counts, at the API server, what an operator with many planes and policies writes: nothing in a steady
// state, and one rollout for a burst. It records the manager's memory, and how soon a step follows the one before.
// docs/measurements.md has the figures of the full size.
package scale

import (
	"fmt"
	"os"
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

// size of a run.
type size struct {
	planes, policies int
	// burst is how many policies are applied at once to one plane.
	burst int
	// waves of one model each that a plane goes through.
	waves int
	// idle is how long nothing may be written.
	idle time.Duration
}

// sizes by the value of the environment variable SCALE.
var sizes = map[string]size{
	"":     {planes: 20, policies: 100, burst: 300, waves: 20, idle: 10 * time.Second},
	"full": {planes: 100, policies: 500, burst: 1000, waves: 110, idle: time.Minute},
}

var (
	scale     size
	env       *testenv.Environment
	admin     client.WithWatch
	installed *operator.Operator
	manager   *operator.Manager
	// peak is the most memory that a manager before the present one has had.
	peak int64
)

func TestScale(t *testing.T) {
	var ok bool
	if scale, ok = sizes[os.Getenv("SCALE")]; !ok {
		t.Fatalf("SCALE is %q; it can be full, or unset for a smaller run", os.Getenv("SCALE"))
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(10 * time.Minute) // on a machine that does something else beside
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "Scale")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(GinkgoLogr)
	// Pods take no time of their own.
	pods := standin.Behaviour{Backoff: 200 * time.Millisecond, MaxBackoff: 2 * time.Second, Retry: 100 * time.Millisecond}
	p, err := platform.Start(ctx, platform.Options{Webhook: true, Pods: &pods})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Stop)
	env, admin, installed = p.Env, p.Admin, p.Installed
	manager, err = installed.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
})

// written are the operator's writes since the mark, those apart by which its leader is elected: the lease and the events
// about it.
func written(since testenv.Mark) []testenv.Write {
	GinkgoHelper()
	all, err := env.Writes(since, operator.UserAgent)
	Expect(err).NotTo(HaveOccurred())
	var others []testenv.Write
	for _, w := range all {
		if !w.ToLease() && (w.Resource != "events" || w.Namespace != operator.Namespace) {
			others = append(others, w)
		}
	}
	return others
}

func mark() testenv.Mark {
	GinkgoHelper()
	m, err := env.Mark()
	Expect(err).NotTo(HaveOccurred())
	return m
}

// report a figure, whatever the verbosity.
func report(name, format string, args ...any) {
	AddReportEntry(name, fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}
