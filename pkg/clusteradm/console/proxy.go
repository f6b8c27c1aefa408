package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
)

const (
	// requestTimeout bounds all requests but watches. It is longer than the bound of the hub, whose message is better.
	requestTimeout = 70 * time.Second
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	stopTimeout    = 5 * time.Second
	headerBytes    = 64 << 10
	// bodyBytes is the limit of a kube-apiserver.
	bodyBytes = 3 << 20
)

// forwardedHeaders are the headers of the page's requests that the hub receives. Cookies, credentials and impersonation are
// not among them: the transport of the kubeconfig keeps such headers if a request has them.
var forwardedHeaders = []string{"Accept", "Accept-Encoding", "Content-Type", "If-None-Match"}

// hiddenHeaders are headers of the hub that would change what the browser does with the address of the proxy.
var hiddenHeaders = []string{"Alt-Svc", "Clear-Site-Data", "Set-Cookie", "Www-Authenticate"}

// proxy forwards the requests of the console to the hub, with the identity of a kubeconfig.
//
// Every user of the machine can connect to the proxy, and every page of the browser can send requests to it. So a request
// needs a secret in its path. The browser gets it in exchange for a token that works once, because other users can read the
// arguments of the browser.
type proxy struct {
	address netip.AddrPort
	// hosts are the values of the header Host. Others mean that a page has changed the address of its own name.
	hosts         []string
	token, secret string
	opened        atomic.Bool
	// othersReported is true after the first connection of another user, who could print lines without end otherwise.
	othersReported atomic.Bool
	forward        *httputil.ReverseProxy
	errOut         io.Writer
}

// peerRefused is the key of the reason why all requests of a connection are refused.
type peerRefused struct{}

func newProxy(config *rest.Config, listening net.Addr, errOut io.Writer) (*proxy, error) {
	address, err := netip.ParseAddrPort(listening.String())
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	hub, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	p := &proxy{address: address, token: rand.Text(), secret: rand.Text(), errOut: errOut}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
		// Browsers omit the port of the scheme.
		p.hosts = append(p.hosts, strings.TrimSuffix(fmt.Sprintf("%s:%d", host, address.Port()), ":80"))
	}
	p.forward = &httputil.ReverseProxy{
		Transport: transport,
		// Events of watches arrive one by one.
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: hub.Scheme, Host: hub.Host, Path: hub.Path})
			r.Out.Header = http.Header{}
			for _, name := range forwardedHeaders {
				if values := r.In.Header.Values(name); len(values) > 0 {
					r.Out.Header[name] = values
				}
			}
		},
		ModifyResponse: func(response *http.Response) error {
			for _, name := range hiddenHeaders {
				response.Header.Del(name)
			}
			guard(response.Header)
			if response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest && response.StatusCode != http.StatusNotModified {
				return fmt.Errorf("it redirects to %q", response.Header.Get("Location"))
			}
			return nil
		},
		ErrorHandler: unforwarded,
		// Its messages are about connections that ended, which the page notices itself.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return p, nil
}

// url returns the URL that the browser opens. It works once.
func (p *proxy) url() string { return "http://" + p.address.String() + "/" + p.token }

func (p *proxy) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		// Watches end with ctx.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, connection net.Conn) context.Context {
			return context.WithValue(ctx, peerRefused{}, p.refusePeer(connection.RemoteAddr()))
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-failed
	return err
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	if refused := p.refuse(r); refused != "" {
		respond(w, http.StatusForbidden, refused)
		return
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case same(first, p.token):
		p.open(w, r)
	case same(first, p.secret):
		p.serveHub(w, r, "/"+rest)
	default:
		respond(w, http.StatusForbidden, "the URL does not belong to a console that runs; run clusteradm console, and open the URL that it prints")
	}
}

// refuse returns why a request cannot be one of the page, or an empty string.
func (p *proxy) refuse(r *http.Request) string {
	if reason, ok := r.Context().Value(peerRefused{}).(string); ok && reason != "" {
		return reason
	}
	if !slices.Contains(p.hosts, r.Host) {
		return fmt.Sprintf("host %q is not an address of the console", r.Host)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return fmt.Sprintf("another page sent the request (Sec-Fetch-Site: %s); copy the URL into the address bar", site)
	}
	if origin, sent := r.Header["Origin"]; sent && (len(origin) != 1 || origin[0] != "http://"+r.Host) {
		return fmt.Sprintf("origin %q is not that of the console", origin)
	}
	return ""
}

// open exchanges the token for the secret.
func (p *proxy) open(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != "/"+p.token {
		respond(w, http.StatusForbidden, "the URL of the console can only be opened")
		return
	}
	if !p.opened.CompareAndSwap(false, true) {
		_, _ = fmt.Fprintln(p.errOut, "The URL was opened again, and refused. If that was not you, and the console did not open in your browser, stop it: another user has read the URL.")
		respond(w, http.StatusForbidden, "this URL works once; run clusteradm console again")
		return
	}
	w.Header().Set("Location", "/"+p.secret+"/apis/"+searchv1alpha1.SchemeGroupVersion.String()+"/console/"+index)
	w.WriteHeader(http.StatusSeeOther)
}

// serveHub forwards a request to a path of the hub, if the console needs it.
func (p *proxy) serveHub(w http.ResponseWriter, r *http.Request, path string) {
	forwarded := r.Clone(r.Context())
	// The hub gets exactly the path that is checked.
	forwarded.URL.Path, forwarded.URL.RawPath = path, ""
	info := describe(forwarded)
	if info == nil {
		respond(w, http.StatusForbidden, fmt.Sprintf("clusteradm console does not forward %s %s: the console does not need it", r.Method, path))
		return
	}
	if info.Verb != "watch" {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		forwarded = forwarded.WithContext(ctx)
	}
	forwarded.Body = http.MaxBytesReader(w, r.Body, bodyBytes)
	// The response of the hub has its own.
	clear(w.Header())
	p.forward.ServeHTTP(w, forwarded)
}

// unforwarded answers a request that the hub did not answer.
func unforwarded(w http.ResponseWriter, r *http.Request, err error) {
	guard(w.Header())
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		respond(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", tooLarge.Limit))
	case errors.Is(err, context.DeadlineExceeded):
		respond(w, http.StatusGatewayTimeout, fmt.Sprintf("the hub did not answer within %s", requestTimeout))
	default:
		respond(w, http.StatusServiceUnavailable, "the hub does not answer: "+err.Error())
	}
}

// guard sets the headers of every response: it belongs to the page only.
func guard(header http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy":              "no-referrer",
		"X-Content-Type-Options":       "nosniff",
	} {
		if header.Get(name) == "" {
			header.Set(name, value)
		}
	}
}

var statusReasons = map[int]metav1.StatusReason{
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
}

// respond answers a request with a Status, as an API server does.
func respond(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	status := metav1.Status{Status: metav1.StatusFailure, Message: message, Reason: statusReasons[code], Code: int32(code)}
	status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	// The browser may be gone.
	_ = json.NewEncoder(w).Encode(status)
}

func same(got, want string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 }

// refusePeer returns why all requests of a connection are refused, or an empty string: on systems that list the owners of
// connections, another user cannot use the console, even with the token.
func (p *proxy) refusePeer(remote net.Addr) string {
	peer, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return "the address of the connection is unknown"
	}
	uid, known := peerUser(peer, p.address)
	// Root can do everything that its users can.
	if !known || uid == 0 || uid == ownUser() {
		return ""
	}
	if p.othersReported.CompareAndSwap(false, true) {
		_, _ = fmt.Fprintf(p.errOut, "The console refuses connections of another user, with the ID %d.\n", uid)
	}
	return "the console belongs to another user of this machine"
}
