// Package platform starts what a suite of the whole operator needs: a control plane, what stands in for its kubelet, and
// the operator installed in it, but not running.
package platform

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/routing-operator/routing-operator/api/v1alpha1"
	"github.com/routing-operator/routing-operator/internal/release"
	"github.com/routing-operator/routing-operator/test/envtest/operator"
	"github.com/routing-operator/routing-operator/test/envtest/testenv"
	"github.com/routing-operator/routing-operator/test/fixtures"
	"github.com/routing-operator/routing-operator/test/standin"
)

// Options of a platform. The zero value is usable.
type Options struct {
	// Webhook has admission ask the operator; whoever sets it starts one.
	Webhook bool
	// Controllers of Kubernetes beside those that testenv starts.
	Controllers []string
	// Pods is how pods behave. Default: as standin has them.
	Pods *standin.Behaviour
}

// Platform that runs.
type Platform struct {
	Env *testenv.Environment
	// Admin may do everything.
	Admin   client.WithWatch
	Kubelet *standin.Standin
	// Releases are the fixtures'.
	Releases  release.Table
	Installed *operator.Operator
}

// Start a platform, which is to be stopped.
func Start(ctx context.Context, o Options) (*Platform, error) {
	p := &Platform{}
	if err := p.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a platform: %w", err), p.Stop())
	}
	return p, nil
}

func (p *Platform) start(ctx context.Context, o Options) (err error) {
	control := testenv.Options{ControllerManager: true, Controllers: o.Controllers}
	if o.Webhook {
		control.Webhooks = []string{operator.WebhookManifest}
	}
	if p.Env, err = testenv.Start(ctx, control); err != nil {
		return err
	}
	if p.Admin, err = client.NewWithWatch(p.Env.Config, client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	if p.Releases, err = release.ParseTable(fixtures.Releases()); err != nil {
		return err
	}
	if p.Kubelet, err = standin.Start(ctx, p.Env.Config, standin.Options{Releases: &p.Releases, Behaviour: o.Pods}); err != nil {
		return err
	}
	p.Installed, err = operator.Install(ctx, p.Env)
	return err
}

// Stop ends all of it.
func (p *Platform) Stop() error {
	if p.Kubelet != nil {
		p.Kubelet.Stop()
	}
	if p.Env == nil {
		return nil
	}
	return p.Env.Stop()
}

// Scheme has Kubernetes' own kinds and the operator's.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}
