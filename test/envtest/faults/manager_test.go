package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/routing-operator/routing-operator/controllers"
	"github.com/routing-operator/routing-operator/internal/index"
	"github.com/routing-operator/routing-operator/test/envtest/platform"
)

// manager is an operator of some namespaces that runs in the process of the test.
type manager struct {
	cancel func()
	ended  chan struct{}
	err    error // valid once ended is closed
}

// startManager starts one whose requests to the API server go through what wraps its transport.
func startManager(wrap func(http.RoundTripper) http.RoundTripper, namespaces ...string) (*manager, error) {
	config := rest.CopyConfig(installed.Rights)
	config.UserAgent = "operator-of-" + namespaces[0]
	config.Wrap(wrap)
	watched := map[string]cache.Config{}
	for _, namespace := range namespaces {
		watched[namespace] = cache.Config{}
	}
	options := ctrl.Options{
		Scheme:                  platform.Scheme(),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		Cache:                   cache.Options{DefaultNamespaces: watched},
		GracefulShutdownTimeout: new(30 * time.Second), // however busy the machine is
	}
	controllers.Configure(&options)
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("setting up an operator: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &manager{cancel: cancel, ended: make(chan struct{})}
	err = errors.Join(
		index.Setup(ctx, mgr.GetFieldIndexer()),
		controllers.Setup(ctx, mgr, controllers.Options{Releases: releases, SkipNameValidation: true, StaleReads: len(namespaces) > 1}),
	)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("setting up the controllers: %w", err)
	}
	go func() {
		m.err = mgr.Start(ctx)
		close(m.ended)
	}()
	return m, nil
}

// stop ends it, as when its process is asked to end. Nothing of it runs afterwards.
func (m *manager) stop() error {
	m.kill()
	return m.err
}

// kill ends one of which it is of no interest how it ends.
func (m *manager) kill() {
	m.cancel()
	<-m.ended
}
