// Package rollout tests whole rollouts: the manager's controllers, with the rights that config/rbac gives them, against
// a real API server and controller manager. What pods run is asked of what stands in for their kubelet, never of the
// operator.
package rollout

import (
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/controllers"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/standin"
)

const (
	patience  = 60 * time.Second
	userAgent = "routing-operator-under-test"
)

var (
	env      *testenv.Environment
	admin    client.WithWatch
	kubelet  *standin.Standin
	releases release.Table
	operator *manager
	// rights of the operator.
	rights *rest.Config
)

func TestRollout(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Rollouts")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log := logr.Discard()
	if _, reporter := GinkgoConfiguration(); reporter.VeryVerbose {
		log = zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true))
	}
	logf.SetLogger(log)

	p, err := platform.Start(ctx, platform.Options{Controllers: []string{"resourcequota-controller"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Stop)
	env, admin, kubelet, releases, rights = p.Env, p.Admin, p.Kubelet, p.Releases, p.Installed.Rights
	operator = startManager(ctx, userAgent)
	DeferCleanup(func() { operator.stop() })
})

func run(command *exec.Cmd) {
	GinkgoHelper()
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// manager is an operator that runs in the process of the test.
type manager struct {
	stop func()
}

// startManager starts one that can be told from others, at the API server, by its user agent.
func startManager(ctx context.Context, agent string) *manager {
	GinkgoHelper()
	config := rest.CopyConfig(rights)
	config.UserAgent = agent
	options := ctrl.Options{
		Scheme:  platform.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{},
	}
	controllers.Configure(&options)
	mgr, err := ctrl.NewManager(config, options)
	Expect(err).NotTo(HaveOccurred())
	Expect(index.Setup(ctx, mgr.GetFieldIndexer())).To(Succeed())
	Expect(controllers.Setup(ctx, mgr, controllers.Options{Releases: releases, MetricsTransport: kubelet.MetricsTransport(), SkipNameValidation: true})).To(Succeed())
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	return &manager{stop: func() {
		cancel()
		Eventually(ended, patience).Should(Receive(BeNil()))
	}}
}

func isReady(conditions []metav1.Condition) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue
	})
}
