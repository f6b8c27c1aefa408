package clusterclient_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// front is a TLS proxy of the API server. Its certificate can change.
type front struct {
	*httptest.Server
	mu           sync.Mutex
	tls          *tls.Config
	authority    []byte
	connections  []string
	unauthorized int
}

func newFront(t *testing.T) *front {
	t.Helper()
	target, err := url.Parse(hub.AdminConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	if proxy.Transport, err = rest.TransportFor(hub.AnonymousConfig()); err != nil {
		t.Fatal(err)
	}
	proxy.ModifyResponse = func(response *http.Response) error {
		if response.StatusCode == http.StatusUnauthorized {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.unauthorized++
		}
		return nil
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		f.mu.Lock()
		f.connections = append(f.connections, request.RemoteAddr)
		f.mu.Unlock()
		if away := request.URL.Query().Get("redirect"); away != "" {
			http.Redirect(w, request, away, http.StatusFound)
			return
		}
		// After a 401, the API server closes the connection. The proxy must be able to
		// send other requests in progress on the connection again.
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body, _ = request.GetBody()
		proxy.ServeHTTP(w, request)
	}))
	f.EnableHTTP2 = true
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.renew(t)
	f.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.tls, nil
	}}
	f.StartTLS()
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// renew replaces the certificate with one of another authority.
func (f *front) renew(t *testing.T) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	_, authority := pem.Decode(certificate)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.authority = authority
	f.tls = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
}

func (f *front) ca() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.authority)
}

// last returns the connection of the last request.
func (f *front) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.connections[len(f.connections)-1]
}

func (f *front) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.connections)
}

func (f *front) refused() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unauthorized
}

type exchange func(*http.Request) (*http.Response, error)

func (e exchange) RoundTrip(request *http.Request) (*http.Response, error) { return e(request) }

// watchGate delays the events of watches.
type watchGate struct {
	mu     sync.Mutex
	closed bool
}

func (g *watchGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

type gatedBody struct {
	io.ReadCloser
	gate *watchGate
	ctx  context.Context
}

func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.mu.Lock()
	closed := b.gate.closed
	b.gate.mu.Unlock()
	if closed {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return n, err
}
