package tokens

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

// drainLimit bounds what is read of a refused response to use its connection again.
const drainLimit = 64 << 10

// credentials are what a request uses. They never change; the source replaces them.
type credentials struct {
	token      string
	generation *generation
}

// generation is the connections that one bundle of certificates verifies. When
// the bundle changes, new requests go over connections of the next generation,
// and those of the former are closed when what is under way on them ends.
type generation struct {
	pem  []byte
	pool *x509.CertPool

	mu sync.Mutex
	// transports are this generation's copies of the transports that client-go makes.
	transports map[*http.Transport]*http.Transport
}

// newGeneration fails on a bundle that is not empty and has no certificate.
func newGeneration(pem []byte) (*generation, error) {
	g := &generation{pem: pem, transports: map[*http.Transport]*http.Transport{}}
	if len(pem) > 0 {
		g.pool = x509.NewCertPool()
		if !g.pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("there is no PEM certificate in it")
		}
	}
	return g, nil
}

// transport returns this generation's copy of a transport.
func (g *generation) transport(of *http.Transport) *http.Transport {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.transports[of] == nil {
		own := of.Clone()
		if own.TLSClientConfig == nil {
			own.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		own.TLSClientConfig.RootCAs = g.pool
		// A clone shares the HTTP/2 connections of its original, which another
		// bundle may have verified; SetTransportDefaults gives it its own.
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

// joinPEM puts bundles one after the other.
func joinPEM(bundles ...[]byte) []byte {
	var out []byte
	for _, bundle := range bundles {
		if bundle = bytes.TrimSpace(bundle); len(bundle) > 0 {
			out = append(append(out, bundle...), '\n')
		}
	}
	return out
}

// roundTripper gives requests the current token, over connections that the
// current bundle verifies.
type roundTripper struct {
	source *Source
	// base is what client-go made; original is the http.Transport in it. There is
	// none where client-go upgrades connections, as for exec.
	base     http.RoundTripper
	original *http.Transport
}

// wrap is the WrapTransport of configurations.
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

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (t *roundTripper) CloseIdleConnections() {
	utilnet.CloseIdleConnectionsFor(t.WrappedRoundTripper())
}

// refused tells whether newer credentials may help: the token was not accepted,
// or the server's certificate not verified, in which case nothing has been sent.
func refused(resp *http.Response, err error) bool {
	if err != nil {
		var unverified *tls.CertificateVerificationError
		return errors.As(err, &unverified)
	}
	return resp.StatusCode == http.StatusUnauthorized
}

// repeat returns a request to send once more, if its body can be had again.
func repeat(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, false
	}
	again.Body = body
	return again, true
}

// redirectedAway tells whether a redirect leads this request to another server
// than the one it was first meant for. The token is not for that one: what a
// cluster's API server proxies may redirect to anywhere.
func redirectedAway(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first.URL.Scheme != req.URL.Scheme || first.URL.Host != req.URL.Host
}
