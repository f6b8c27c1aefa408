package servingcert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Content is the certificate that the server serves. It implements
// dynamiccertificates.CertKeyContentProvider.
type Content struct {
	name string

	mu        sync.Mutex
	cert, key []byte
	// leaf is nil until a certificate is loaded from the Secret.
	leaf      *x509.Certificate
	listeners []dynamiccertificates.Listener
	// err is the reason why the last reconciliation failed.
	err error
}

var _ dynamiccertificates.CertKeyContentProvider = &Content{}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *Content) Name() string { return c.name }

// AddListener implements dynamiccertificates.Notifier.
func (c *Content) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *Content) CurrentCertKeyContent() (cert, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cert, c.key
}

// load serves another certificate. It returns its leaf, and whether it differs from the previous one.
func (c *Content) load(cert, key []byte) (*x509.Certificate, bool, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(c.cert, cert) && bytes.Equal(c.key, key) {
		return c.leaf, false, nil
	}
	c.cert, c.key, c.leaf = cert, key, pair.Leaf
	for _, listener := range c.listeners {
		listener.Enqueue()
	}
	return pair.Leaf, true, nil
}

func (c *Content) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// check returns an error that names the cause if the served certificate is not valid.
func (c *Content) check(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.leaf == nil && c.err != nil:
		return c.err
	case c.leaf == nil:
		return errors.New("the serving certificate is not loaded yet")
	case !now.Before(c.leaf.NotAfter):
		return errors.Join(fmt.Errorf("the serving certificate expired at %s", c.leaf.NotAfter.Format(time.RFC3339)), c.err)
	case now.Before(c.leaf.NotBefore):
		return errors.Join(fmt.Errorf("the serving certificate is not valid before %s: check the clock of this server", c.leaf.NotBefore.Format(time.RFC3339)), c.err)
	}
	return nil
}
