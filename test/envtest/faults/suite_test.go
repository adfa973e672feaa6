// Package faults breaks the operator on purpose: it is killed before and after every one of its writes, its requests fail
// at random, its watches lag, two of it are at work at once, and the world changes while it is busy or down. What is
// judged is the whole history of the API server's objects, never the operator's word.
package faults

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/standin"
)

// patience is how long a scenario may take, with all the restarts in it, on a machine that does a lot beside.
const patience = 3 * time.Minute

var (
	env       *testenv.Environment
	admin     client.WithWatch
	kubelet   *standin.Standin
	releases  release.Table
	installed *operator.Operator
	recorded  *recorder
	logged    errorLog
	// forward and onward are thereAndBack and toTheEnd when nothing is in the operator's way.
	forward, onward *course
	// seed of everything that is drawn at random: FAULTS_SEED, or the one that Ginkgo prints.
	seed uint64
)

func TestFaults(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Faults")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log := logged.logger()
	if _, reporter := GinkgoConfiguration(); reporter.VeryVerbose {
		log = GinkgoLogr
	}
	logf.SetLogger(log)
	klog.SetLogger(logr.Discard())
	seed = uint64(GinkgoRandomSeed())
	if text, ok := os.LookupEnv("FAULTS_SEED"); ok {
		given, err := strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred(), "FAULTS_SEED")
		seed = given
	}

	// Pods take no time of their own: what a machine can do is for the operator and the API server.
	pods := standin.Behaviour{Backoff: 50 * time.Millisecond, MaxBackoff: time.Second, Retry: 50 * time.Millisecond}
	p, err := platform.Start(ctx, platform.Options{Pods: &pods})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Stop)
	env, admin, kubelet, releases, installed = p.Env, p.Admin, p.Kubelet, p.Releases, p.Installed
	recorded, err = startRecorder(context.WithoutCancel(ctx))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(recorded.stop)
	var walks errgroup.Group
	walks.Go(func() (err error) {
		forward, err = undisturbed(ctx, thereAndBack)
		return err
	})
	walks.Go(func() (err error) {
		onward, err = undisturbed(ctx, toTheEnd)
		return err
	})
	Expect(walks.Wait()).To(Succeed())
})

func courses() []*course { return []*course{forward, onward} }

// errorLog keeps the errors that operators log, and drops the rest.
type errorLog struct {
	mutex sync.Mutex
	lines []string
}

func (l *errorLog) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		if !strings.Contains(line, `"level"=`) {
			l.mutex.Lock()
			defer l.mutex.Unlock()
			l.lines = append(l.lines, line)
		}
	}, funcr.Options{})
}

// about returns the errors with the text.
func (l *errorLog) about(text string) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var found []string
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
