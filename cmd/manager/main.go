// Command manager runs the operator: the controllers in one replica, the admission webhook in all of them.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/controllers"
	"github.com/routing-operator/routing-operator/internal/buildinfo"
	"github.com/routing-operator/routing-operator/internal/certs"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/internal/validate"
	"github.com/routing-operator/routing-operator/webhooks"
)

// leaseName is that of the lease by which one replica leads; the access rights in config/rbac name it.
const leaseName = "routing-operator"

func main() {
	o, err := parseOptions(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case o.version:
		fmt.Println(buildinfo.Version())
		return
	}
	log := o.logger()
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	if err := run(ctrl.SetupSignalHandler(), o, log); err != nil {
		log.Error(err, "Manager stopped")
		os.Exit(1)
	}
}

// run returns when the context is done or something without which the manager is of no use has failed.
func run(ctx context.Context, o *options, log logr.Logger) error {
	log.Info("Starting", "version", buildinfo.Version())
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	keeper, err := newKeeper(o, config, log)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, managerOptions(o, keeper))
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if keeper != nil {
		if err := mgr.Add(keeper); err != nil {
			return fmt.Errorf("add the keeper of the webhook's certificate: %w", err)
		}
	}
	if err := index.Setup(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	validation := validate.Options{AllowedPathPrefixes: o.configPathPrefixes}
	err = controllers.Setup(ctx, mgr, controllers.Options{
		Releases:   o.generations,
		Validation: validation,
		StaleReads: len(o.namespaces) > 1,
	})
	if err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	if o.servesWebhook() {
		err := webhooks.SetupWithManager(ctx, mgr, webhooks.Options{Validate: validation, Generations: o.generations})
		if err != nil {
			return fmt.Errorf("set up the admission webhook: %w", err)
		}
	}
	if err := addChecks(o, mgr); err != nil {
		return fmt.Errorf("set up the probes: %w", err)
	}
	return mgr.Start(ctx)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// newKeeper is nil where the webhook's certificate is somebody else's business.
func newKeeper(o *options, config *rest.Config, log logr.Logger) (*certs.Keeper, error) {
	if !o.keepsCertificate() {
		return nil, nil
	}
	uncached, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("set up a client for the webhook's certificate: %w", err)
	}
	return certs.New(certs.Options{
		Client:        uncached,
		Secret:        types.NamespacedName{Namespace: o.ownNamespace, Name: o.webhookSecret},
		Hosts:         o.webhookHosts,
		Configuration: o.webhookConfiguration,
		Clock:         clock.RealClock{},
		Log:           log.WithName("certificates"),
	}), nil
}

func managerOptions(o *options, keeper *certs.Keeper) ctrl.Options {
	server := webhook.Options{Host: o.webhookBindHost, Port: o.webhookPort, CertDir: o.webhookCertDir}
	if keeper != nil {
		server.TLSOpts = append(server.TLSOpts, func(c *tls.Config) { c.GetCertificate = keeper.GetCertificate })
	}
	metrics := metricsserver.Options{BindAddress: o.metricsAddress, SecureServing: o.secureMetrics}
	if o.secureMetrics {
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	namespaces := map[string]cache.Config{}
	for _, namespace := range o.namespaces {
		namespaces[namespace] = cache.Config{}
	}
	options := ctrl.Options{
		Scheme:                 newScheme(),
		Cache:                  cache.Options{DefaultNamespaces: namespaces},
		Metrics:                metrics,
		HealthProbeBindAddress: o.probeAddress,
		WebhookServer:          webhook.NewServer(server),

		LeaderElection:          o.leaderElection,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.ownNamespace,
		// The process ends when run returns, so nothing acts on a lease that was given up.
		LeaderElectionReleaseOnCancel: true,
	}
	controllers.Configure(&options)
	return options
}

// addChecks makes a replica ready, leader or not, when its caches are filled and its webhook answers.
func addChecks(o *options, mgr ctrl.Manager) error {
	err := mgr.AddReadyzCheck("caches", func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet; if this lasts the log says what cannot be read")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if o.servesWebhook() {
		if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
			return err
		}
	}
	return mgr.AddHealthzCheck("ping", healthz.Ping)
}
