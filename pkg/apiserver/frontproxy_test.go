package apiserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority is a certificate authority of front proxies.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	content, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*ecdsa.PrivateKey)
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key := newKey(t)
	certificate, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

// client returns a client certificate that expires.
func (a *authority) client(t *testing.T, name string, expires time.Time) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	content, err := x509.CreateCertificate(rand.Reader, template, a.certificate, newKey(t).Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(content)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// authorities are the certificate authorities that the hub publishes.
type authorities struct {
	dynamiccertificates.CAContentProvider
}

func (a *authorities) publish(t *testing.T, authority *authority) {
	t.Helper()
	content, err := certutil.EncodeCertificates(authority.certificate)
	if err != nil {
		t.Fatal(err)
	}
	if a.CAContentProvider, err = dynamiccertificates.NewStaticCAContent("front-proxy", content); err != nil {
		t.Fatal(err)
	}
}

// clientName is the name of a client whose certificate the cluster knows.
const clientName = "client"

// newTestProxy returns a frontProxy to which all other clients are anonymous, except those with a certificate for the name
// clientName.
func newTestProxy(loaded dynamiccertificates.CAContentProvider, names headerrequest.StringSliceProvider, hub kubernetes.Interface) *frontProxy {
	return newFrontProxy(&authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: headerrequest.StaticStringSlice{"X-Remote-Uid"},
		GroupHeaders: headerrequest.StaticStringSlice{"X-Remote-Group"}, ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		CAContentProvider: loaded, AllowedClientNames: names,
	}, hub, authenticator.RequestFunc(func(request *http.Request) (*authenticator.Response, bool, error) {
		name := user.Anonymous
		if request.TLS != nil && len(request.TLS.PeerCertificates) > 0 && request.TLS.PeerCertificates[0].Subject.CommonName == clientName {
			name = clientName
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
	}))
}

// TestFrontProxy checks that only a valid certificate of the hub with an allowed name makes a request one of another user.
func TestFrontProxy(t *testing.T) {
	published, names := &authorities{}, []string{"front-proxy"}
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	published.publish(t, first)
	// The provider is replaced while the proxy uses it.
	proxy := newTestProxy(published, headerrequest.StringSliceProviderFunc(func() []string { return names }), fake.NewClientset())
	proxy.published.patience = 0
	later := time.Now().Add(time.Hour)
	certificate := first.client(t, "front-proxy", later)
	for _, step := range []struct {
		name   string
		change func()
		with   *x509.Certificate
		header string
		user   string
	}{
		{name: "no certificate", header: "alice", user: user.Anonymous},
		{name: "certificate of another authority", with: second.client(t, "front-proxy", later), header: "alice", user: user.Anonymous},
		{name: "certificate with another name", with: first.client(t, "other", later), header: "alice", user: user.Anonymous},
		{name: "expired certificate", with: first.client(t, "front-proxy", time.Now().Add(-time.Minute)), header: "alice", user: user.Anonymous},
		{name: "certificate of the hub", with: certificate, header: "alice", user: "alice"},
		{name: "next request", with: certificate, header: "bob", user: "bob"},
		{name: "without user", with: certificate, user: user.Anonymous},
		{name: "name no longer allowed", change: func() { names = []string{"renamed"} }, with: certificate, header: "alice", user: user.Anonymous},
		{name: "name allowed again", change: func() { names = []string{"front-proxy"} }, with: certificate, header: "alice", user: "alice"},
		{name: "authority replaced", change: func() { published.publish(t, second) }, with: certificate, header: "alice", user: user.Anonymous},
		{name: "authority restored", change: func() { published.publish(t, first) }, with: certificate, header: "alice", user: "alice"},
	} {
		if step.change != nil {
			step.change()
		}
		r := &http.Request{Header: http.Header{}}
		if step.header != "" {
			r.Header.Set("X-Remote-User", step.header)
		}
		if step.with != nil {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{step.with}}
		}
		response, ok, err := proxy.AuthenticateRequest(r)
		if err != nil || !ok {
			t.Fatalf("%s: AuthenticateRequest() = %t, %v, want a user", step.name, ok, err)
		}
		if got := response.User.GetName(); got != step.user {
			t.Errorf("%s: user = %s, want %s", step.name, got, step.user)
		} else if got == step.header && r.Header.Get("X-Remote-User") != "" {
			t.Errorf("%s: the header of the user is kept, want it removed", step.name)
		}
	}
}
