// Package certs keeps the webhook server's certificate where no cert-manager does: one authority and one serving
// certificate, shared by all replicas through a Secret, renewed long before they expire, and trusted by the API
// server before they are used.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// authorityLife and servingLife are what certificates are issued for; each is renewed when a third of it
	// is left, so that a renewal may fail for weeks before anybody notices.
	authorityLife = 360 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour

	// settleTime passes between publishing a new authority and serving a certificate that it signed, so that
	// every API server has heard of it.
	settleTime = 10 * time.Minute

	// clockSkew is how far the clock of an API server may be behind ours.
	clockSkew = time.Hour
)

// The keys of the Secret. The first is the list of authorities to trust, newest first, and the second the private
// key of the newest one; older ones sign no more.
const (
	authoritiesKey  = "ca.crt"
	authorityKeyKey = "ca.key"
	servingKey      = corev1.TLSCertKey
	servingKeyKey   = corev1.TLSPrivateKeyKey
)

// material is the content of the Secret, as far as it can be used.
type material struct {
	authorities []*x509.Certificate // newest first
	signer      crypto.Signer       // of authorities[0]; nil where that is lost
	serving     *tls.Certificate    // nil where there is none
}

// read takes from the Secret what is sound. Whatever is damaged counts as missing: it will be made anew, and what
// is still good stays trusted.
func read(data map[string][]byte) material {
	var m material
	m.authorities, _ = certutil.ParseCertsPEM(data[authoritiesKey])
	if key, err := keyutil.ParsePrivateKeyPEM(data[authorityKeyKey]); err == nil && len(m.authorities) > 0 {
		if signer, ok := key.(*ecdsa.PrivateKey); ok && signer.PublicKey.Equal(m.authorities[0].PublicKey) {
			m.signer = signer
		}
	}
	if serving, err := tls.X509KeyPair(data[servingKey], data[servingKeyKey]); err == nil {
		m.serving = &serving
	}
	return m
}

// write is the reverse of read.
func (m material) write() (map[string][]byte, error) {
	authorityKey, err := keyutil.MarshalPrivateKeyToPEM(m.signer)
	if err != nil {
		return nil, fmt.Errorf("encode the authority's key: %w", err)
	}
	serving, err := certutil.EncodeCertificates(m.serving.Leaf)
	if err != nil {
		return nil, fmt.Errorf("encode the serving certificate: %w", err)
	}
	servingKeyPEM, err := keyutil.MarshalPrivateKeyToPEM(m.serving.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("encode the serving certificate's key: %w", err)
	}
	bundle, err := m.bundle()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		authoritiesKey:  bundle,
		authorityKeyKey: authorityKey,
		servingKey:      serving,
		servingKeyKey:   servingKeyPEM,
	}, nil
}

// bundle is every authority that is to be trusted, as PEM.
func (m material) bundle() ([]byte, error) {
	bundle, err := certutil.EncodeCertificates(m.authorities...)
	if err != nil {
		return nil, fmt.Errorf("encode the authorities: %w", err)
	}
	return bundle, nil
}

// advance is the next state of the material and whether it differs. A new authority is first only added to those
// that are trusted. Serving changes to it when it is settled and published says that the API server has been told,
// or at once where the present certificate is of no use anyway. An old authority is trusted until it expires.
func (m material) advance(now time.Time, hosts []string, published bool) (material, bool, error) {
	next, changed := m, false
	next.authorities = slices.DeleteFunc(slices.Clone(m.authorities), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	changed = len(next.authorities) != len(m.authorities)

	if next.signer == nil || len(next.authorities) == 0 || renewable(next.authorities[0], now) {
		certificate, key, err := newAuthority(now)
		if err != nil {
			return m, false, err
		}
		next.authorities, next.signer = slices.Insert(next.authorities, 0, certificate), key
		changed = true
	}

	settled := published && now.Sub(next.authorities[0].NotBefore) >= clockSkew+settleTime
	if !next.usable(now, hosts) || settled && (renewable(next.serving.Leaf, now) || !next.current()) {
		serving, err := newServing(now, hosts, next.authorities[0], next.signer)
		if err != nil {
			return m, false, err
		}
		next.serving, changed = serving, true
	}
	return next, changed, nil
}

// usable says whether the serving certificate is good now: trusted, in time, and for every host.
func (m material) usable(now time.Time, hosts []string) bool {
	if m.serving == nil {
		return false
	}
	roots := x509.NewCertPool()
	for _, authority := range m.authorities {
		roots.AddCert(authority)
	}
	return !slices.ContainsFunc(hosts, func(host string) bool {
		_, err := m.serving.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: host})
		return err != nil
	})
}

// current says whether the newest authority signed the serving certificate.
func (m material) current() bool {
	return m.serving.Leaf.CheckSignatureFrom(m.authorities[0]) == nil
}

// renewable says whether a third or less is left of a certificate's life.
func renewable(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3))
}

func newAuthority(now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate the authority's key: %w", err)
	}
	certificate, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "routing-operator-webhook-ca"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the authority: %w", err)
	}
	return certificate, key, nil
}

func newServing(now time.Time, hosts []string, authority *x509.Certificate, signer crypto.Signer) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the serving certificate's key: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "routing-operator-webhook"},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(servingLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificate, err := sign(template, authority, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign the serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}, nil
}

// sign issues a certificate; without a parent, one that signs itself.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
