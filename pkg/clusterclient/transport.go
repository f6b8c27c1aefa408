package clusterclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// drainLimit bounds the bytes that are read of a refused response to reuse its connection.
const drainLimit = 64 << 10

// credentials are the credentials of requests. They are immutable; the source replaces them.
type credentials struct {
	token      string
	generation *generation
}

// generation contains the connections that one CA bundle verifies. After a change of the bundle, new requests use
// connections of the next generation. Old connections are closed when their requests end.
type generation struct {
	pem  []byte
	pool *x509.CertPool

	mu sync.Mutex
	// transports maps the transports of client-go to the copies of this generation.
	transports map[*http.Transport]*http.Transport
}

// newGeneration returns an error for a bundle that is not empty and contains no certificate.
func newGeneration(pem []byte) (*generation, error) {
	g := &generation{pem: pem, transports: map[*http.Transport]*http.Transport{}}
	if len(pem) > 0 {
		g.pool = x509.NewCertPool()
		if !g.pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("it contains no PEM certificate")
		}
	}
	return g, nil
}

// transport returns the copy of a transport in this generation.
func (g *generation) transport(of *http.Transport) *http.Transport {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.transports[of] == nil {
		own := of.Clone()
		if own.TLSClientConfig == nil {
			own.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		own.TLSClientConfig.RootCAs = g.pool
		// A clone shares the HTTP/2 connections of the original, which another bundle may have verified.
		// SetTransportDefaults sets up separate connections.
		g.transports[of] = utilnet.SetTransportDefaults(own)
	}
	return g.transports[of]
}

func (g *generation) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, transport := range g.transports {
		transport.CloseIdleConnections()
	}
}

func joinPEM(bundles ...[]byte) []byte {
	var out []byte
	for _, bundle := range bundles {
		if bundle = bytes.TrimSpace(bundle); len(bundle) > 0 {
			out = append(append(out, bundle...), '\n')
		}
	}
	return out
}

// roundTripper adds the current token to requests, and uses connections that the current bundle verifies.
type roundTripper struct {
	source *Source
	// base is the transport of client-go, and original the http.Transport that it wraps. original is nil for upgraded
	// connections, as for exec.
	base     http.RoundTripper
	original *http.Transport
}

func (s *Source) wrap(base http.RoundTripper) http.RoundTripper {
	t := &roundTripper{source: s, base: base}
	for inner := base; inner != nil; {
		switch rt := inner.(type) {
		case *http.Transport:
			t.original, inner = rt, nil
		case utilnet.RoundTripperWrapper:
			inner = rt.WrappedRoundTripper()
		default:
			inner = nil
		}
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Authorization") != "" || redirectedAway(req) {
		return t.through(t.source.current.Load()).RoundTrip(req)
	}
	used := t.source.current.Load()
	resp, err := t.send(req, used)
	if !refused(resp, err) {
		return resp, err
	}
	now := t.source.renew(req.Context(), used)
	if now == used {
		return resp, err
	}
	again, ok := repeat(req)
	if !ok {
		return resp, err
	}
	if err == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, drainLimit)
		_ = resp.Body.Close()
	}
	return t.send(again, now)
}

func (t *roundTripper) send(req *http.Request, use *credentials) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+use.token)
	return t.through(use).RoundTrip(req)
}

func (t *roundTripper) through(use *credentials) http.RoundTripper {
	if t.original == nil {
		return t.base
	}
	return use.generation.transport(t.original)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper {
	return t.through(t.source.current.Load())
}

// CloseIdleConnections implements the interface that http.Client.CloseIdleConnections uses.
func (t *roundTripper) CloseIdleConnections() {
	utilnet.CloseIdleConnectionsFor(t.WrappedRoundTripper())
}

// refused reports whether newer credentials may help: the server rejected the token, or its certificate did not verify. In
// the latter case, nothing was sent.
func refused(resp *http.Response, err error) bool {
	if err != nil {
		var unverified *tls.CertificateVerificationError
		return errors.As(err, &unverified)
	}
	return resp.StatusCode == http.StatusUnauthorized
}

// repeat returns a copy of a request for a retry, if its body can be read again.
func repeat(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	var err error
	again.Body, err = req.GetBody()
	return again, err == nil
}

// redirectedAway reports whether a redirect leads to a server other than the server of the original request. The token
// must not be sent there: a service behind the API server's proxy can redirect anywhere.
func redirectedAway(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first.URL.Scheme != req.URL.Scheme || first.URL.Host != req.URL.Host
}
