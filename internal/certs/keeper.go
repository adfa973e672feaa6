package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// syncInterval is how long a change by another replica, or a webhook configuration that was installed
	// anew, can go unnoticed.
	syncInterval = 10 * time.Second

	// maxSteps of one sync: each write is followed by a look at what came of it.
	maxSteps = 6

	fieldOwner = "routing-operator-certificates"

	// injectAnnotation tells cert-manager to write the bundle, so that we must not.
	injectAnnotation = "cert-manager.io/inject-ca-from"
)

// Options of a Keeper. All are required.
type Options struct {
	// Client reads from the API server, not from a cache: two replicas that look at old copies would undo each
	// other's writes.
	Client client.Client
	// Secret that the replicas share. It is made when it is missing.
	Secret types.NamespacedName
	// Hosts that the certificate is for: DNS names or IP addresses.
	Hosts []string
	// Configuration is the name of the ValidatingWebhookConfiguration whose webhooks are told what to trust.
	Configuration string
	// Clock to tell the age of certificates by.
	Clock clock.WithTicker
	// Log for what goes wrong in the background.
	Log logr.Logger
}

// Keeper keeps the certificate of the webhook server of one replica. It is a manager.Runnable that runs with or
// without leadership.
type Keeper struct {
	Options
	serving atomic.Pointer[tls.Certificate]
}

// New makes a Keeper.
func New(options Options) *Keeper { return &Keeper{Options: options} }

// NeedLeaderElection says that every replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// GetCertificate is for tls.Config. It fails until the first sync succeeded.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := k.serving.Load(); serving != nil {
		return serving, nil
	}
	return nil, errors.New("the webhook certificate is not there yet; the manager's log says why")
}

// Start syncs until the context is done. A failure is logged and tried again at the next tick.
func (k *Keeper) Start(ctx context.Context) error {
	ticker := k.Clock.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error(err, "Webhook certificate not in order; trying again", "after", syncInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Sync brings Secret, webhook configuration and the certificate that is served in line, once.
func (k *Keeper) Sync(ctx context.Context) error {
	for range maxSteps {
		again, err := k.step(ctx)
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("webhook certificate: Secret %s changed at each of %d looks; another replica or client keeps writing it", k.Secret, maxSteps)
}

// step looks once and does the next thing; again asks for a further look. The configuration is read before the
// Secret and written with the version that was read: a bundle from an old look at the Secret then cannot replace
// the newer one of another replica.
func (k *Keeper) step(ctx context.Context) (again bool, err error) {
	configuration, err := k.configuration(ctx)
	if err != nil {
		return false, err
	}
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, k.Secret, secret); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Secret %s: %w", k.Secret, err)
	}
	held := read(secret.Data)

	publishErr := k.publish(ctx, configuration, held)
	if apierrors.IsConflict(publishErr) {
		return true, nil
	}
	next, changed, err := held.advance(k.Clock.Now(), k.Hosts, publishErr == nil)
	if err != nil {
		return false, fmt.Errorf("webhook certificate: %w", err)
	}
	if !changed {
		k.serving.Store(held.serving)
		return false, publishErr
	}
	switch err := k.store(ctx, secret, next); {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return true, nil // another replica was first; take what it made
	case err != nil:
		return false, err
	}
	k.Log.Info("Webhook certificate renewed", "secret", k.Secret, "authorities", len(next.authorities),
		"notAfter", next.serving.Leaf.NotAfter)
	return true, nil
}

// configuration is nil where the webhook is not installed: then nobody has to trust anything.
func (k *Keeper) configuration(ctx context.Context) (*admissionv1.ValidatingWebhookConfiguration, error) {
	configuration := &admissionv1.ValidatingWebhookConfiguration{}
	err := k.Client.Get(ctx, types.NamespacedName{Name: k.Configuration}, configuration)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	return configuration, nil
}

// publish tells the webhooks of the configuration whom to trust, if they have not been told.
func (k *Keeper) publish(ctx context.Context, configuration *admissionv1.ValidatingWebhookConfiguration, held material) error {
	if configuration == nil || len(held.authorities) == 0 {
		return nil
	}
	if source, ok := configuration.Annotations[injectAnnotation]; ok {
		return fmt.Errorf("ValidatingWebhookConfiguration %s has annotation %s=%s: cert-manager writes its caBundle; remove the annotation, or give the manager cert-manager's certificate with --webhook-cert-dir",
			k.Configuration, injectAnnotation, source)
	}
	bundle, err := held.bundle()
	if err != nil {
		return err
	}
	apply := admissionapply.ValidatingWebhookConfiguration(k.Configuration).WithResourceVersion(configuration.ResourceVersion)
	current := true
	for _, webhook := range configuration.Webhooks {
		current = current && bytes.Equal(webhook.ClientConfig.CABundle, bundle)
		apply.WithWebhooks(admissionapply.ValidatingWebhook().WithName(webhook.Name).
			WithClientConfig(admissionapply.WebhookClientConfig().WithCABundle(bundle...)))
	}
	if current {
		return nil
	}
	if err := k.Client.Apply(ctx, apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("write caBundle of ValidatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	k.Log.Info("Webhook configuration trusts the present authorities", "configuration", k.Configuration, "authorities", len(held.authorities))
	return nil
}

// store writes the material into the Secret as it was read.
func (k *Keeper) store(ctx context.Context, secret *corev1.Secret, m material) error {
	data, err := m.write()
	if err != nil {
		return err
	}
	if secret.ResourceVersion == "" {
		secret.ObjectMeta = metav1.ObjectMeta{Name: k.Secret.Name, Namespace: k.Secret.Namespace}
		secret.Type, secret.Data = corev1.SecretTypeTLS, data
		if err := k.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("create Secret %s: %w", k.Secret, err)
		}
		return nil
	}
	secret.Data = data
	if err := k.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("update Secret %s: %w", k.Secret, err)
	}
	return nil
}
