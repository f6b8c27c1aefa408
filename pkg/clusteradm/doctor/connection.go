package clusteradm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// maxSkew is the difference of clocks above which certificates, tokens and Leases misbehave.
	maxSkew = 30 * time.Second
	// expirySoon is the remaining lifetime of a certificate below which the doctor warns.
	expirySoon = 14 * 24 * time.Hour
	// maxBody bounds the responses that the doctor reads.
	maxBody = 32 << 20
)

// response is a response to a GET request.
type response struct {
	status int
	body   string
	// skew is the time by which the clock of the other side is ahead. It is known if dated is true.
	skew  time.Duration
	dated bool
}

// get sends a GET request.
func get(ctx context.Context, client *http.Client, address string) (*response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	received := time.Now()
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return nil, err
	}
	out := &response{status: answer.StatusCode, body: string(body)}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		// The header has whole seconds, rounded down.
		out.skew, out.dated = date.Add(500*time.Millisecond).Sub(sent.Add(received.Sub(sent)/2)), true
	}
	return out, nil
}

// clock returns the finding about the clock of a server.
func (r *response) clock(subject string) finding {
	switch {
	case !r.dated:
		return finding{State: stateUnknown, Subject: subject, Cause: "its responses have no Date", Remedy: "compare the clocks manually"}
	case r.skew.Abs() > maxSkew:
		direction := "ahead of"
		if r.skew < 0 {
			direction = "behind"
		}
		return bad(subject, fmt.Sprintf("%s %s the clock of this machine", r.skew.Abs().Round(time.Second), direction), "synchronize both clocks by NTP; certificates, tokens and Leases are not reliable until then")
	}
	return healthy(subject, "agrees with the clock of this machine")
}

// unreachable returns the finding of a request to an API server that got no response.
func unreachable(subject, host string, err error) finding {
	var (
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		dns       *net.DNSError
		timeout   net.Error
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if invalid.Cert != nil && time.Now().Before(invalid.Cert.NotBefore) {
			return bad(subject, "the certificate of "+host+" is not valid before "+invalid.Cert.NotBefore.UTC().Format(time.RFC3339), "correct the clock of this machine, or of the machine that issued the certificate")
		}
		return bad(subject, "the certificate of "+host+" has expired: "+invalid.Detail, "renew the serving certificate of this API server")
	case errors.As(err, &authority):
		return bad(subject, "the certificate of "+host+" is of another certificate authority than that in the kubeconfig", "get the kubeconfig again from an administrator of the cluster")
	case errors.As(err, &name):
		return bad(subject, name.Error(), "use an address that is in the certificate")
	case errors.As(err, &dns):
		return bad(subject, "the name of "+host+" cannot be resolved", "correct the address in the kubeconfig, or the DNS")
	case errors.As(err, &timeout) && timeout.Timeout():
		return bad(subject, host+" does not respond in time", "check that the API server runs, and that firewalls and proxies allow the connection")
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		err = transport.Err
	}
	return bad(subject, host+" cannot be reached: "+err.Error(), "check the address in the kubeconfig, that the API server runs, and that firewalls allow the connection")
}

// connect sends a request to an API server. It returns findings about the connection, the credentials,
// the certificates and the clock, and whether the API server can be used.
func connect(ctx context.Context, config *rest.Config, subject string) (findings []finding, usable bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	certificate, ok := ownCertificate(config, "client certificate for the "+subject)
	if certificate != nil {
		findings = append(findings, *certificate)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return append(findings, bad(subject, err.Error(), "correct the kubeconfig")), false
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return append(findings, bad(subject, err.Error(), "correct the kubeconfig")), false
	}
	defer client.CloseIdleConnections()
	answer, err := get(ctx, client, base.JoinPath("/version").String())
	if err != nil {
		if !ok && !isCertificateError(err) {
			// The expired client certificate explains the failed connection.
			return append(findings, finding{State: stateUnknown, Subject: subject, Cause: err.Error(), Remedy: "replace the client certificate first"}), false
		}
		return append(findings, unreachable(subject, base.Host, err)), false
	}
	clock := answer.clock("clock of the " + subject)
	switch answer.status {
	case http.StatusUnauthorized:
		if ok {
			findings = append(findings, bad("credentials for the "+subject, base.Host+" rejects them (401): the token has expired, or the user was deleted", "log in again, or get a new kubeconfig"))
		}
		return append(findings, clock), false
	case http.StatusOK, http.StatusForbidden:
	default:
		findings = append(findings, bad(subject, fmt.Sprintf("%s responds with %d", base.Host, answer.status), "read the log of this API server"))
	}
	ready, err := get(ctx, client, base.JoinPath("/readyz").String()+"?verbose")
	switch {
	case err != nil:
		findings = append(findings, unreachable(subject, base.Host, err))
	case ready.status == http.StatusOK, ready.status == http.StatusForbidden:
		findings = append(findings, healthy(subject, base.Host+" responds"))
	default:
		findings = append(findings, warning(subject, "it responds, but is not ready: "+strings.Join(failing(ready.body), ", "), "read the log of this API server"))
	}
	return append(findings, clock), true
}

// failing returns the names of the failing checks in the response of a health endpoint.
func failing(body string) []string {
	var names []string
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	return names
}

// ownCertificate returns a finding about the client certificate of a configuration, or nil if it
// has none, and reports whether the certificate can be used.
func ownCertificate(config *rest.Config, subject string) (*finding, bool) {
	content := config.CertData
	if len(content) == 0 && config.CertFile != "" {
		read, err := os.ReadFile(config.CertFile)
		if err != nil {
			f := bad(subject, err.Error(), "correct the kubeconfig")
			return &f, false
		}
		content = read
	}
	if len(content) == 0 {
		return nil, true
	}
	f := inspectCertificate(subject, content, "get new credentials")
	return &f, f.State != stateBad
}

// inspectCertificate returns a finding about the validity of a certificate in PEM.
func inspectCertificate(subject string, content []byte, remedy string) finding {
	certificates, err := certutil.ParseCertsPEM(content)
	if err != nil {
		return bad(subject, err.Error(), remedy)
	}
	return validity(subject, certificates[0], remedy)
}

func validity(subject string, certificate *x509.Certificate, remedy string) finding {
	now, end := time.Now(), certificate.NotAfter.UTC().Format(time.RFC3339)
	// Agents and servers renew short certificates before a fifth of their lifetime is left.
	soon := min(expirySoon, certificate.NotAfter.Sub(certificate.NotBefore)/10)
	switch {
	case now.After(certificate.NotAfter):
		return bad(subject, "the certificate expired at "+end, remedy)
	case now.Before(certificate.NotBefore):
		return bad(subject, "the certificate is not valid before "+certificate.NotBefore.UTC().Format(time.RFC3339), "correct the clocks; then "+remedy)
	case certificate.NotAfter.Sub(now) < soon:
		return warning(subject, "the certificate expires at "+end, remedy)
	}
	return healthy(subject, "valid until "+end)
}

// verify verifies the certificates that a server presented, as the aggregation layer of the hub does.
func verify(state *tls.ConnectionState, bundle []byte, name string) error {
	if state == nil || len(state.PeerCertificates) == 0 {
		return errors.New("the server presented no certificate")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("caBundle contains no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, DNSName: name})
	return err
}

// denied reports whether an error says that the caller is not allowed to read something.
func denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// impatient returns a copy of a configuration whose clients do not wait and retry if a server responds
// with Retry-After: the response is a finding.
func impatient(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	// The checks run once, so they need no client-side limit.
	config.QPS = -1
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return withoutRetry{inner} })
	return config
}

type withoutRetry struct{ inner http.RoundTripper }

func (w withoutRetry) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := w.inner.RoundTrip(request)
	if err == nil {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}
