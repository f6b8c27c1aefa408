package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

const (
	// maxSkew is the difference of clocks above which certificates, tokens and Leases misbehave.
	maxSkew = 30 * time.Second
	// expirySoon is the remaining lifetime of a certificate below which the doctor warns.
	expirySoon = 14 * 24 * time.Hour
	// maxBody bounds the responses that the doctor reads.
	maxBody = 32 << 20
)

type response struct {
	status int
	body   string
	tls    *tls.ConnectionState
	// skew is the time by which the clock of the other side is ahead. It is known if dated is true.
	skew  time.Duration
	dated bool
}

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
	out := &response{status: answer.StatusCode, body: string(body), tls: answer.TLS}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		// The header has whole seconds, rounded down.
		out.skew, out.dated = date.Add(500*time.Millisecond).Sub(sent.Add(received.Sub(sent)/2)), true
	}
	return out, nil
}

func (r *response) clock(subject string) cli.Finding {
	switch {
	case !r.dated:
		return undecided(subject, "its responses have no Date", "compare the clocks manually")
	case r.skew.Abs() > maxSkew:
		direction := "ahead of"
		if r.skew < 0 {
			direction = "behind"
		}
		return cli.Bad(subject, fmt.Sprintf("%s %s the clock of this machine", r.skew.Abs().Round(time.Second), direction), "synchronize both clocks by NTP; certificates, tokens and Leases are not reliable until then")
	}
	return cli.Healthy(subject, "agrees with the clock of this machine")
}

// unreachable returns the finding of a request to an API server that got no response.
func unreachable(subject, host string, err error) cli.Finding {
	remedy := "check the address in the kubeconfig, the DNS, that the API server runs, and that firewalls and proxies allow the connection"
	if cli.IsCertificateError(err) {
		remedy = "if the certificate authority or the address is another one, get the kubeconfig again; if the certificate has expired, renew that of the API server; if it is not yet valid, correct the clocks"
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		err = transport.Err
	}
	return cli.Bad(subject, host+" cannot be reached: "+err.Error(), remedy)
}

// connect sends requests to an API server. It returns findings about it, and whether it can be used.
func connect(ctx context.Context, config *rest.Config, subject string) (findings []cli.Finding, usable bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings = ownCertificate(config, "client certificate for the "+subject)
	ok := cli.CountBad(findings) == 0
	base, _, wrong := rest.DefaultServerUrlFor(config)
	client, err := rest.HTTPClientFor(config)
	if err := cmp.Or(wrong, err); err != nil {
		return append(findings, cli.Bad(subject, err.Error(), "correct the kubeconfig")), false
	}
	defer client.CloseIdleConnections()
	answer, err := get(ctx, client, base.JoinPath("/version").String())
	if err != nil {
		if !ok && !cli.IsCertificateError(err) {
			// The expired client certificate explains the failed connection.
			return append(findings, undecided(subject, err.Error(), "replace the client certificate first")), false
		}
		return append(findings, unreachable(subject, base.Host, err)), false
	}
	clock := answer.clock("clock of the " + subject)
	switch answer.status {
	case http.StatusUnauthorized:
		if ok {
			findings = append(findings, cli.Bad("credentials for the "+subject, base.Host+" rejects them (401): the token has expired, or the user was deleted", "log in again, or get a new kubeconfig"))
		}
		return append(findings, clock), false
	case http.StatusOK, http.StatusForbidden:
	default:
		findings = append(findings, cli.Bad(subject, fmt.Sprintf("%s responds with %d", base.Host, answer.status), "read the log of this API server"))
	}
	ready, err := get(ctx, client, base.JoinPath("/readyz").String()+"?verbose")
	switch {
	case err != nil:
		findings = append(findings, unreachable(subject, base.Host, err))
	case ready.status == http.StatusOK, ready.status == http.StatusForbidden:
		findings = append(findings, cli.Healthy(subject, base.Host+" responds"))
	default:
		findings = append(findings, cli.Warning(subject, "it responds, but is not ready: "+strings.Join(failing(ready.body), ", "), "read the log of this API server"))
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

// ownCertificate returns a finding about the client certificate of a configuration, or none if it has no certificate.
func ownCertificate(config *rest.Config, subject string) []cli.Finding {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return []cli.Finding{cli.Bad(subject, err.Error(), "correct the kubeconfig")}
	}
	if len(config.CertData) == 0 {
		return nil
	}
	certificates, err := certutil.ParseCertsPEM(config.CertData)
	if err != nil {
		return []cli.Finding{cli.Bad(subject, err.Error(), "get new credentials")}
	}
	return []cli.Finding{validity(subject, certificates[0], "get new credentials")}
}

func validity(subject string, certificate *x509.Certificate, remedy string) cli.Finding {
	now, end := time.Now(), certificate.NotAfter.UTC().Format(time.RFC3339)
	// Agents and servers renew short certificates before a fifth of their lifetime is left.
	soon := min(expirySoon, certificate.NotAfter.Sub(certificate.NotBefore)/10)
	switch {
	case now.After(certificate.NotAfter):
		return cli.Bad(subject, "the certificate expired at "+end, remedy)
	case now.Before(certificate.NotBefore):
		return cli.Bad(subject, "the certificate is not valid before "+certificate.NotBefore.UTC().Format(time.RFC3339), "correct the clocks; then "+remedy)
	case certificate.NotAfter.Sub(now) < soon:
		return cli.Warning(subject, "the certificate expires at "+end, remedy)
	}
	return cli.Healthy(subject, "valid until "+end)
}

// withoutRetry removes Retry-After from responses.
type withoutRetry struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w withoutRetry) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := w.RoundTripper.RoundTrip(request)
	if err == nil {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}
