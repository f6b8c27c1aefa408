package apiserver

import (
	"bytes"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// frontProxyPeriod bounds how long a certificate is used after its authority has expired.
	frontProxyPeriod = time.Minute
	// frontProxies is the number of certificates that are remembered: one for each API server of the hub.
	frontProxies = 32
)

// frontProxy authenticates requests that the hub forwards, as the authenticator of k8s.io/apiserver does, but verifies
// the client certificate of the hub once a minute instead of for each request. The verification takes an eighth of the
// CPU time of a GET. Their users are of type *forwardedUser.
type frontProxy struct {
	config *authenticatorfactory.RequestHeaderConfig
	// headers reads the user from the headers, and verified verifies the certificate before.
	headers, verified authenticator.Request
	// known contains the verifications by *x509.Certificate. crypto/tls returns the same pointer for all requests of a
	// connection.
	known *lru.Cache
	clock clock.PassiveClock
	// published verifies certificates of an authority that is not loaded yet.
	published *publishedAuthority
	// next authenticates all other requests.
	next authenticator.Request
}

// verification is the state with which a certificate was verified.
type verification struct {
	bundle []byte
	names  []string
	until  time.Time
}

func newFrontProxy(config *authenticatorfactory.RequestHeaderConfig, hub kubernetes.Interface, next authenticator.Request, passive clock.PassiveClock) *frontProxy {
	headers := group.NewAuthenticatedGroupAdder(headerrequest.NewDynamic(config.UsernameHeaders, config.UIDHeaders, config.GroupHeaders, config.ExtraHeaderPrefixes))
	return &frontProxy{
		config:    config,
		headers:   headers,
		verified:  x509request.NewDynamicCAVerifier(config.CAContentProvider.VerifyOptions, headers, config.AllowedClientNames),
		known:     lru.New(frontProxies),
		clock:     passive,
		published: newPublishedAuthority(hub, headers, config.AllowedClientNames, passive),
		next:      next,
	}
}

// AuthenticateRequest implements authenticator.Request.
func (p *frontProxy) AuthenticateRequest(request *http.Request) (*authenticator.Response, bool, error) {
	if request.TLS == nil || len(request.TLS.PeerCertificates) == 0 {
		return p.next.AuthenticateRequest(request)
	}
	certificate := request.TLS.PeerCertificates[0]
	if p.isKnown(certificate) {
		response, ok, err := p.headers.AuthenticateRequest(request)
		switch {
		case err != nil:
			return nil, false, err
		case ok:
			return forwardedResponse(response), true, nil
		}
		return p.next.AuthenticateRequest(request)
	}
	// The state is read before the verification, so that a change meanwhile invalidates it.
	state := verification{bundle: p.config.CAContentProvider.CurrentCABundleContent(), names: p.config.AllowedClientNames.Value()}
	response, ok, err := p.verified.AuthenticateRequest(request)
	if errors.As(err, &x509.UnknownAuthorityError{}) && p.namesUser(request) {
		// A client whom the cluster knows is not the hub, whatever its headers say, so it waits for no new authority.
		response, ok, err := p.next.AuthenticateRequest(request)
		if ok && response.User.GetName() != user.Anonymous {
			return response, ok, err
		}
		if response, ok := p.published.authenticate(request); ok {
			return forwardedResponse(response), true, nil
		}
		return response, ok, err
	}
	if err != nil || !ok {
		return p.next.AuthenticateRequest(request)
	}
	state.until = p.clock.Now().Add(frontProxyPeriod)
	if state.until.After(certificate.NotAfter) {
		state.until = certificate.NotAfter
	}
	p.known.Add(certificate, state)
	return forwardedResponse(response), true, nil
}

// namesUser reports whether a request contains the user whom the hub has authenticated.
func (p *frontProxy) namesUser(request *http.Request) bool {
	return slices.ContainsFunc(p.config.UsernameHeaders.Value(), func(header string) bool { return request.Header.Get(header) != "" })
}

func forwardedResponse(response *authenticator.Response) *authenticator.Response {
	response.User = &forwardedUser{Info: response.User}
	return response
}

// isKnown reports whether a certificate was verified with the present certificate authorities and names.
func (p *frontProxy) isKnown(certificate *x509.Certificate) bool {
	value, found := p.known.Get(certificate)
	if !found {
		return false
	}
	state := value.(verification)
	return p.clock.Now().Before(state.until) &&
		bytes.Equal(state.bundle, p.config.CAContentProvider.CurrentCABundleContent()) &&
		slices.Equal(state.names, p.config.AllowedClientNames.Value())
}
