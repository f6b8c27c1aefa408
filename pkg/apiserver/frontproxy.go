package apiserver

import (
	"crypto/x509"
	"errors"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// frontProxy authenticates requests that the hub forwards, as the authenticator of k8s.io/apiserver does. Their users are of
// type *forwardedUser.
type frontProxy struct {
	config *authenticatorfactory.RequestHeaderConfig
	// loaded verifies the client certificate, and reads the user from the headers. published does so with an authority that
	// is not loaded yet.
	loaded    authenticator.Request
	published *publishedAuthority
	// next authenticates all other requests.
	next authenticator.Request
}

func newFrontProxy(config *authenticatorfactory.RequestHeaderConfig, hub kubernetes.Interface, next authenticator.Request, passive clock.PassiveClock) *frontProxy {
	headers := group.NewAuthenticatedGroupAdder(headerrequest.NewDynamic(config.UsernameHeaders, config.UIDHeaders, config.GroupHeaders, config.ExtraHeaderPrefixes))
	return &frontProxy{
		config:    config,
		loaded:    x509request.NewDynamicCAVerifier(config.CAContentProvider.VerifyOptions, headers, config.AllowedClientNames),
		published: newPublishedAuthority(hub, headers, config.AllowedClientNames, passive),
		next:      next,
	}
}

// AuthenticateRequest implements authenticator.Request.
func (p *frontProxy) AuthenticateRequest(request *http.Request) (*authenticator.Response, bool, error) {
	if request.TLS == nil || len(request.TLS.PeerCertificates) == 0 {
		return p.next.AuthenticateRequest(request)
	}
	response, ok, err := p.loaded.AuthenticateRequest(request)
	if err == nil && ok {
		return forwardedResponse(response), true, nil
	}
	unknown := errors.As(err, &x509.UnknownAuthorityError{}) && p.namesUser(request)
	response, ok, err = p.next.AuthenticateRequest(request)
	// A client whom the cluster knows is not the hub, whatever its headers say, so it waits for no new authority.
	if unknown && (!ok || response.User.GetName() == user.Anonymous) {
		if response, ok := p.published.authenticate(request); ok {
			return forwardedResponse(response), true, nil
		}
	}
	return response, ok, err
}

// namesUser reports whether a request contains the user whom the hub has authenticated.
func (p *frontProxy) namesUser(request *http.Request) bool {
	return slices.ContainsFunc(p.config.UsernameHeaders.Value(), func(header string) bool { return request.Header.Get(header) != "" })
}

func forwardedResponse(response *authenticator.Response) *authenticator.Response {
	response.User = &forwardedUser{Info: response.User}
	return response
}
