package servingcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority is a certificate authority with its key.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	// bundle contains the authorities that clients must trust, with this one first.
	bundle []*x509.Certificate
}

func issueAuthority(service string, now time.Time, validity time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// Each authority has a name of its own, so that a client finds the right one in a bundle.
		Subject:   pkix.Name{CommonName: fmt.Sprintf("%s-ca@%d", service, now.UnixNano())},
		NotBefore: now.Add(-min(maxSkew, validity/10)), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, nil
}

// issueServing creates a serving certificate, and returns the content of its Secret without the bundle.
func (a *authority) issueServing(names []string, now time.Time, validity time.Duration) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: now.Add(-min(maxSkew, validity/10)), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	leaf, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return pair(leaf, key, nil)
}

// SelfSigned returns a certificate for a name, and its key. Clients that trust the certificate need no authority.
func SelfSigned(name string) (cert, key []byte, err error) {
	const validity = 10 * 365 * 24 * time.Hour
	authority, err := issueAuthority(name, time.Now(), validity)
	if err != nil {
		return nil, nil, err
	}
	content, err := authority.issueServing([]string{name}, time.Now(), validity)
	return content[corev1.TLSCertKey], content[corev1.TLSPrivateKeyKey], err
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func pair(cert *x509.Certificate, key crypto.Signer, bundle []*x509.Certificate) (map[string][]byte, error) {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	certPEM, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return nil, err
	}
	bundlePEM, err := certutil.EncodeCertificates(bundle...)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM, BundleKey: bundlePEM}, nil
}
