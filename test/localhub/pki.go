package localhub

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// serviceRange contains the addresses of Services, and serviceAddress is that of the Service kubernetes.
	serviceRange   = "10.0.0.0/24"
	serviceAddress = "10.0.0.1"
)

// leafLifetime is the validity of issued certificates. A serving certificate is issued
// again each time that the object of its server is created.
const leafLifetime = 365 * 24 * time.Hour

// authority is a certificate authority kept as <dir>/<name>.crt and .key.
type authority struct {
	certFile, keyFile string
	cert              *x509.Certificate
	key               crypto.Signer
}

// loadAuthority reads the authority name from dir, or creates it there.
func loadAuthority(dir, name string) (*authority, error) {
	a := &authority{
		certFile: filepath.Join(dir, name+".crt"),
		keyFile:  filepath.Join(dir, name+".key"),
	}
	var err error
	if a.key, err = loadKey(a.keyFile); err != nil {
		return nil, err
	}
	certs, err := cert.CertsFromFile(a.certFile)
	switch {
	case err == nil:
		a.cert = certs[0]
		return a, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	if a.cert, err = cert.NewSelfSignedCACert(cert.Config{CommonName: name}, a.key); err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	content, err := cert.EncodeCertificates(a.cert)
	if err != nil {
		return nil, err
	}
	return a, cert.WriteCert(a.certFile, content)
}

// loadKey reads the private key at path, or creates it.
func loadKey(path string) (crypto.Signer, error) {
	content, _, err := keyutil.LoadOrGenerateKeyFile(path)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", path, err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", path, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("private key %s: cannot sign with a %T", path, key)
	}
	return signer, nil
}

// bundle returns the authority's certificate in PEM.
func (a *authority) bundle() ([]byte, error) {
	return cert.EncodeCertificates(a.cert)
}

// issue creates a key and a certificate for it, both in PEM.
func (a *authority) issue(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	// The certificate is valid from a minute ago, because the clock may step back.
	template.NotBefore = time.Now().Add(-time.Minute)
	if template.NotAfter.IsZero() {
		template.NotAfter = template.NotBefore.Add(leafLifetime)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate for %q: %w", template.Subject.CommonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	if certPEM, err = cert.EncodeCertificates(leaf); err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return certPEM, keyPEM, err
}

// issueClient issues a client certificate, which Kubernetes maps to the user and the groups. It expires at a time, or
// after leafLifetime if it is zero.
func (a *authority) issueClient(expires time.Time, user string, groups []string) (certPEM, keyPEM []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		NotAfter:    expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// issueServingUntil issues a serving certificate for the DNS names, an address, 127.0.0.1 and serviceAddress, and writes it to
// <dir>/serving.crt and .key. It expires at a time, or after leafLifetime if it is zero.
func (a *authority) issueServingUntil(expires time.Time, dir, address string, dnsNames ...string) (certFile, keyFile string, err error) {
	certPEM, keyPEM, err := a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: dnsNames[0]},
		DNSNames:    dnsNames,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(address), net.ParseIP(serviceAddress)},
		NotAfter:    expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return "", "", err
	}
	return writePair(dir, "serving", certPEM, keyPEM)
}

// WriteTLS creates an authority, and a certificate for the DNS names and 127.0.0.1, for servers and for
// clients. It writes ca.crt, tls.crt and tls.key to the existing directory dir.
func WriteTLS(dir string, dnsNames ...string) error {
	ca, err := loadAuthority(dir, "ca")
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: dnsNames[0]},
		DNSNames:    dnsNames,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	_, _, err = writePair(dir, "tls", certPEM, keyPEM)
	return err
}

// writePair replaces <dir>/<name>.crt and .key by a certificate and its key. Programs that read them in between try again.
func writePair(dir, name string, certPEM, keyPEM []byte) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	return certFile, keyFile, errors.Join(writeFile(keyFile, keyPEM), writeFile(certFile, certPEM))
}

// controlPlanePKI contains all keys and certificates of one control plane.
type controlPlanePKI struct {
	serving, client, frontProxy *authority
	// nextServing replaces serving if a test replaces the authority. The test's own clients trust both.
	nextServing *authority
	// trusted are the authorities in the kubeconfigs that the cluster writes.
	trusted []*x509.Certificate

	servingCert, servingKey       string
	frontProxyCert, frontProxyKey string
	serviceAccountKey             string
}

// frontProxyName is the common name in the client certificate of the aggregation layer.
const frontProxyName = "front-proxy-client"

func loadControlPlanePKI(dir, address string) (*controlPlanePKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &controlPlanePKI{serviceAccountKey: filepath.Join(dir, "service-account.key")}
	var err error
	// As in production, there are three authorities: a client certificate must not
	// authenticate as the front proxy or as the server.
	for name, authority := range map[string]**authority{
		"serving-ca": &p.serving, "next-serving-ca": &p.nextServing, "client-ca": &p.client, "front-proxy-ca": &p.frontProxy,
	} {
		if *authority, err = loadAuthority(dir, name); err != nil {
			return nil, err
		}
	}
	p.trusted = []*x509.Certificate{p.serving.cert}
	if _, err = loadKey(p.serviceAccountKey); err != nil {
		return nil, err
	}
	if err := p.issueServing(dir, address); err != nil {
		return nil, err
	}
	return p, p.issueFrontProxy(dir, time.Time{})
}

// issueServing writes a serving certificate for an address.
func (p *controlPlanePKI) issueServing(dir, address string) (err error) {
	p.servingCert, p.servingKey, err = p.serving.issueServingUntil(time.Time{}, dir, address, "localhost", "kubernetes.default.svc", "kubernetes.default", "kubernetes")
	return err
}

// issueFrontProxy writes a client certificate of the aggregation layer that expires at a time, or after leafLifetime if
// it is zero.
func (p *controlPlanePKI) issueFrontProxy(dir string, expires time.Time) error {
	certPEM, keyPEM, err := p.frontProxy.issueClient(expires, frontProxyName, nil)
	if err != nil {
		return err
	}
	p.frontProxyCert, p.frontProxyKey, err = writePair(dir, frontProxyName, certPEM, keyPEM)
	return err
}
