package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const (
	service           = "routing-operator-webhook.routing-system.svc"
	configurationName = "routing-operator"
)

var (
	start      = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	secretName = types.NamespacedName{Namespace: "routing-system", Name: "routing-operator-webhook"}
)

// site is an API server with some replicas of the manager.
type site struct {
	t        *testing.T
	client   client.WithWatch
	clock    *clocktesting.FakeClock
	replicas []*Keeper
}

func newSite(t *testing.T, replicas int, intercept interceptor.Funcs, objects ...client.Object) *site {
	t.Helper()
	s := &site{t: t, clock: clocktesting.NewFakeClock(start)}
	s.client = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(intercept).Build()
	for range replicas {
		s.replicas = append(s.replicas, New(Options{
			Client: s.client, Secret: secretName, Hosts: []string{service, "127.0.0.1"},
			Configuration: configurationName, Clock: s.clock, Log: logr.Discard(),
		}))
	}
	return s
}

// installed is the webhook as the manifests install it: two webhooks, no bundle.
func installed() *admissionv1.ValidatingWebhookConfiguration {
	webhook := func(name string) admissionv1.ValidatingWebhook {
		none := admissionv1.SideEffectClassNone
		return admissionv1.ValidatingWebhook{
			Name: name, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "routing-system", Name: "routing-operator-webhook"}},
		}
	}
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configurationName},
		Webhooks:   []admissionv1.ValidatingWebhook{webhook("policies.routing.nvcf.io"), webhook("planes.routing.nvcf.io")},
	}
}

func (s *site) sync(k *Keeper) {
	s.t.Helper()
	if err := k.Sync(s.t.Context()); err != nil {
		s.t.Fatalf("sync at %s: %v", s.clock.Now(), err)
	}
}

func (s *site) secret() *corev1.Secret {
	s.t.Helper()
	secret := &corev1.Secret{}
	if err := s.client.Get(s.t.Context(), secretName, secret); err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// bundle is what the API server was told to trust, which is the same for both webhooks.
func (s *site) bundle() []byte {
	s.t.Helper()
	configuration := &admissionv1.ValidatingWebhookConfiguration{}
	if err := s.client.Get(s.t.Context(), types.NamespacedName{Name: configurationName}, configuration); err != nil {
		s.t.Fatal(err)
	}
	if len(configuration.Webhooks) != 2 {
		s.t.Fatalf("the configuration has %d webhooks, not 2", len(configuration.Webhooks))
	}
	for _, webhook := range configuration.Webhooks {
		if webhook.ClientConfig.Service == nil {
			s.t.Fatalf("webhook %s lost its service", webhook.Name)
		}
		if string(webhook.ClientConfig.CABundle) != string(configuration.Webhooks[0].ClientConfig.CABundle) {
			s.t.Fatal("the two webhooks trust different authorities")
		}
	}
	return configuration.Webhooks[0].ClientConfig.CABundle
}

// trusts says whether an API server whose clock shows now would talk to the replica.
func (s *site) trusts(k *Keeper, bundle []byte, now time.Time) error {
	serving, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("empty bundle")
	}
	_, err = serving.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: service})
	return err
}

func TestFirstSyncMakesACertificateThatTheWebhookConfigurationTrusts(t *testing.T) {
	s := newSite(t, 1, interceptor.Funcs{}, installed())
	if _, err := s.replicas[0].GetCertificate(nil); err == nil {
		t.Error("there is a certificate before the first sync")
	}
	s.sync(s.replicas[0])
	if err := s.trusts(s.replicas[0], s.bundle(), s.clock.Now()); err != nil {
		t.Error(err)
	}
	if got, want := slices.Sorted(maps.Keys(s.secret().Data)), []string{"ca.crt", "ca.key", "tls.crt", "tls.key"}; !slices.Equal(got, want) {
		t.Errorf("Secret has keys %q, want %q", got, want)
	}
}

func TestReplicasThatStartAtOnceServeOneCertificate(t *testing.T) {
	const replicas = 8
	s := newSite(t, replicas, interceptor.Funcs{}, installed())
	var group sync.WaitGroup
	failures := make([]error, replicas)
	for i, replica := range s.replicas {
		group.Go(func() { failures[i] = replica.Sync(t.Context()) })
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	first, _ := s.replicas[0].GetCertificate(nil)
	for i, replica := range s.replicas {
		if serving, _ := replica.GetCertificate(nil); !serving.Leaf.Equal(first.Leaf) {
			t.Errorf("replica %d serves another certificate than replica 0", i)
		}
	}
	if err := s.trusts(s.replicas[0], s.bundle(), s.clock.Now()); err != nil {
		t.Error(err)
	}
}

func TestNothingIsWrittenWhileNothingIsDue(t *testing.T) {
	writes := 0
	count := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			writes++
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, o, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			writes++
			return c.Apply(ctx, o, opts...)
		},
	}
	s := newSite(t, 2, count, installed())
	s.sync(s.replicas[0])
	if writes != 2 {
		t.Fatalf("the first sync made %d writes, not one for the Secret and one for the configuration", writes)
	}
	for range 50 {
		s.clock.Step(24 * time.Hour)
		s.sync(s.replicas[0])
		s.sync(s.replicas[1])
	}
	if writes != 2 {
		t.Errorf("%d writes within 50 days of the first two", writes-2)
	}
}

// Every replica is trusted at every moment of three years: by an API server whose clock is behind, by one that
// heard of the last bundle late, and whichever replica happens to look when.
func TestNoReplicaIsEverDistrustedThroughYearsOfRenewals(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := newSite(t, 3, interceptor.Funcs{}, installed())
			for _, replica := range s.replicas {
				s.sync(replica)
			}
			type told struct {
				at     time.Time
				bundle []byte
			}
			history := []told{{start, s.bundle()}}
			authorities, certificates, overlaps := map[string]bool{}, map[string]bool{}, 0
			for busy := 0; s.clock.Now().Before(start.Add(3 * 365 * 24 * time.Hour)); busy-- {
				if busy > 0 {
					s.clock.Step(time.Minute)
				} else {
					s.clock.Step(time.Duration(random.Int64N(int64(4 * 24 * time.Hour))))
				}
				before := s.secret().ResourceVersion
				for _, replica := range s.replicas {
					if random.IntN(3) > 0 {
						s.sync(replica)
					}
				}
				if s.secret().ResourceVersion != before {
					busy = 30
				}
				now := s.clock.Now()
				if bundle := s.bundle(); string(bundle) != string(history[len(history)-1].bundle) {
					history = append(history, told{now, bundle})
				}
				late := history[len(history)-1].bundle
				for _, h := range slices.Backward(history) {
					if late = h.bundle; now.Sub(h.at) >= 5*time.Minute {
						break
					}
				}
				for i, replica := range s.replicas {
					if err := s.trusts(replica, s.bundle(), now.Add(-59*time.Minute)); err != nil {
						t.Fatalf("replica %d at %s: %v", i, now, err)
					}
					if err := s.trusts(replica, late, now); err != nil {
						t.Fatalf("replica %d at %s, by an API server five minutes late: %v", i, now, err)
					}
				}
				m := read(s.secret().Data)
				authorities[m.authorities[0].SerialNumber.String()] = true
				certificates[m.serving.Leaf.SerialNumber.String()] = true
				if len(m.authorities) == 2 {
					overlaps++
				}
				if len(m.authorities) > 2 {
					t.Fatalf("%d authorities at %s", len(m.authorities), now)
				}
			}
			if len(authorities) < 4 || len(certificates) < 15 || overlaps == 0 {
				t.Errorf("three years saw %d authorities, %d certificates and %d looks at two authorities at once; the test renews too little to tell",
					len(authorities), len(certificates), overlaps)
			}
		})
	}
}

func TestNewAuthorityIsTrustedBeforeItSigns(t *testing.T) {
	s := newSite(t, 1, interceptor.Funcs{}, installed())
	replica := s.replicas[0]
	s.sync(replica)
	for read(s.secret().Data).current() {
		s.clock.Step(12 * time.Hour)
		s.sync(replica)
	}
	if m := read(s.secret().Data); len(m.authorities) != 2 {
		t.Fatalf("%d authorities on the day of the renewal, not old and new", len(m.authorities))
	}
	if got, want := strings.Count(string(s.bundle()), "BEGIN CERTIFICATE"), 2; got != want {
		t.Errorf("the API server trusts %d authorities, not %d", got, want)
	}
	s.clock.Step(settleTime - time.Second)
	s.sync(replica)
	if read(s.secret().Data).current() {
		t.Error("the new authority signs before it is settled")
	}
	s.clock.Step(2 * time.Second)
	s.sync(replica)
	if !read(s.secret().Data).current() {
		t.Error("the new authority does not sign although it is settled")
	}
}

func TestCertificateStaysWithTheOldAuthorityWhileTheNewOneCannotBePublished(t *testing.T) {
	forbidden := false
	s := newSite(t, 1, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if forbidden {
				return apierrors.NewForbidden(admissionv1.Resource("validatingwebhookconfigurations"), configurationName, errors.New("no"))
			}
			return c.Apply(ctx, o, opts...)
		},
	}, installed())
	replica := s.replicas[0]
	s.sync(replica)
	forbidden = true
	var failure error
	for range 250 {
		s.clock.Step(24 * time.Hour)
		failure = replica.Sync(t.Context())
		if err := s.trusts(replica, s.bundle(), s.clock.Now()); err != nil {
			t.Fatalf("at %s: %v", s.clock.Now(), err)
		}
	}
	if !apierrors.IsForbidden(failure) {
		t.Errorf("after the renewal of the authority the sync says %v, not that it may not publish it", failure)
	}
}

func TestDamageIsMended(t *testing.T) {
	for name, damage := range map[string]func(data map[string][]byte){
		"an emptied Secret":             func(data map[string][]byte) { clear(data) },
		"a cut serving certificate":     func(data map[string][]byte) { data["tls.crt"] = data["tls.crt"][:40] },
		"a lost serving key":            func(data map[string][]byte) { delete(data, "tls.key") },
		"a lost authority key":          func(data map[string][]byte) { delete(data, "ca.key") },
		"a foreign key":                 func(data map[string][]byte) { data["ca.key"] = data["tls.key"] },
		"no authorities":                func(data map[string][]byte) { data["ca.crt"] = nil },
		"text in place of certificates": func(data map[string][]byte) { data["ca.crt"], data["tls.crt"] = []byte("x"), []byte("y") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 2, interceptor.Funcs{}, installed())
			s.sync(s.replicas[0])
			secret := s.secret()
			damage(secret.Data)
			if err := s.client.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, replica := range s.replicas {
					s.sync(replica)
					if err := s.trusts(replica, s.bundle(), s.clock.Now()); err != nil {
						t.Error(err)
					}
				}
				s.clock.Step(settleTime + time.Minute)
			}
			if m := read(s.secret().Data); m.signer == nil || m.serving == nil || !m.current() {
				t.Error("the Secret is still damaged")
			}
		})
	}
}

func TestBundleIsWrittenAgainWhenTheWebhookIsInstalledAnew(t *testing.T) {
	s := newSite(t, 1, interceptor.Funcs{})
	s.sync(s.replicas[0]) // the webhook is not installed; that is no error
	if err := s.client.Create(t.Context(), installed()); err != nil {
		t.Fatal(err)
	}
	s.sync(s.replicas[0])
	if err := s.trusts(s.replicas[0], s.bundle(), s.clock.Now()); err != nil {
		t.Error(err)
	}
}

func TestBundleIsLeftToCertManagerWhereItIsAskedFor(t *testing.T) {
	configuration := installed()
	configuration.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "routing-system/serving"}
	s := newSite(t, 1, interceptor.Funcs{}, configuration)
	err := s.replicas[0].Sync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--webhook-cert-dir") {
		t.Errorf("got %v, want an error that names the flag to set", err)
	}
	if len(s.bundle()) > 0 {
		t.Error("the bundle was written")
	}
}

func TestRenamedServiceGetsACertificateForTheNewName(t *testing.T) {
	s := newSite(t, 1, interceptor.Funcs{}, installed())
	s.replicas[0].Hosts = []string{"elsewhere.svc"}
	s.sync(s.replicas[0])
	s.replicas[0].Hosts = []string{service}
	s.sync(s.replicas[0])
	if err := s.trusts(s.replicas[0], s.bundle(), s.clock.Now()); err != nil {
		t.Error(err)
	}
}

func TestStartSyncsAtEachTickUntilTheContextIsDone(t *testing.T) {
	s := newSite(t, 1, interceptor.Funcs{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.replicas[0].Start(ctx) }()
	eventually(t, "the first sync", func() bool { _, err := s.replicas[0].GetCertificate(nil); return err == nil })
	if err := s.client.Create(ctx, installed()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second sync", func() bool { s.clock.Step(syncInterval); return len(s.bundle()) > 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no sign of %s within 30 seconds", what)
		}
	}
}
