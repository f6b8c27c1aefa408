package apiserver

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
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

func newFrontProxy(config *authenticatorfactory.RequestHeaderConfig, hub kubernetes.Interface, next authenticator.Request) *frontProxy {
	headers := group.NewAuthenticatedGroupAdder(headerrequest.NewDynamic(config.UsernameHeaders, config.UIDHeaders, config.GroupHeaders, config.ExtraHeaderPrefixes))
	return &frontProxy{
		config: config,
		loaded: x509request.NewDynamicCAVerifier(config.CAContentProvider.VerifyOptions, headers, config.AllowedClientNames),
		published: &publishedAuthority{
			hub: hub, headers: headers, names: config.AllowedClientNames,
			patience: authorityPatience, waiters: make(chan struct{}, authorityWaiters),
		},
		next: next,
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
	namesUser := func(header string) bool { return request.Header.Get(header) != "" }
	unknown := errors.As(err, &x509.UnknownAuthorityError{}) && slices.ContainsFunc(p.config.UsernameHeaders.Value(), namesUser)
	response, ok, err = p.next.AuthenticateRequest(request)
	// A client whom the cluster knows is not the hub, whatever its headers say, so it waits for no new authority.
	if unknown && (!ok || response.User.GetName() == user.Anonymous) {
		if response, ok := p.published.authenticate(request); ok {
			return forwardedResponse(response), true, nil
		}
	}
	return response, ok, err
}

func forwardedResponse(response *authenticator.Response) *authenticator.Response {
	response.User = &forwardedUser{Info: response.User}
	return response
}

// forwardedUser is the user of one request that the hub has forwarded.
type forwardedUser struct {
	user.Info
	// authorized is true once the decision of the hub has been used. Later checks of the same permission, such as those
	// of open connections, require a new decision.
	authorized atomic.Bool
}

// authorizedByHub allows requests that the hub has forwarded. The hub's kube-apiserver authorizes the same attributes
// of the same user before it forwards a request, so another SubjectAccessReview would only repeat its decision, later and
// from a cache. All other decisions are those of next: requests that clients send directly, permissions that a request
// requires in addition, later checks of open connections, and non-resource requests: the hub sends some of its own without
// authorization, such as those for OpenAPI.
func authorizedByHub(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if forwarded := forwardedRequest(ctx, a); forwarded != nil && forwarded.authorized.CompareAndSwap(false, true) {
			return authorizer.DecisionAllow, "the hub authorized the request before it forwarded it", nil
		}
		return next.Authorize(ctx, a)
	})
}

// forwardedRequest returns the user if the attributes are those of the request itself, and the hub has forwarded it.
// Otherwise it returns nil. After impersonation on this server, the user of the request is another one.
func forwardedRequest(ctx context.Context, a authorizer.Attributes) *forwardedUser {
	forwarded, ok := a.GetUser().(*forwardedUser)
	if !ok || !a.IsResourceRequest() {
		return nil
	}
	own, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil || own.GetUser() != user.Info(forwarded) || !reflect.DeepEqual(own, a) {
		return nil
	}
	return forwarded
}

const (
	// authorityPatience is how long a request waits until the hub publishes the authority of its client certificate.
	authorityPatience = 3 * time.Second
	authorityPeriod   = 250 * time.Millisecond
	// authorityWaiters bounds the requests that wait. Nobody has authenticated them.
	authorityWaiters = 128
)

// publishedAuthority authenticates requests with a client certificate of an authority of the aggregation layer that the
// hub has published, or publishes now, and that the informer of the ConfigMap has not loaded. A hub that starts with a new
// authority checks its APIServices at once. If a check fails, the hub returns 503 for up to 30 seconds, until it checks again.
type publishedAuthority struct {
	hub     kubernetes.Interface
	headers authenticator.Request
	names   headerrequest.StringSliceProvider

	patience time.Duration
	waiters  chan struct{}

	mu sync.Mutex
	// read is the time of the last read, and verifier is nil if it found no authority.
	read     time.Time
	verifier authenticator.Request
}

// authenticate returns false if the hub publishes no authority of the certificate in time.
func (a *publishedAuthority) authenticate(request *http.Request) (*authenticator.Response, bool) {
	select {
	case a.waiters <- struct{}{}:
		defer func() { <-a.waiters }()
	default:
		return nil, false
	}
	var response *authenticator.Response
	err := wait.PollUntilContextTimeout(request.Context(), authorityPeriod, a.patience, true, func(ctx context.Context) (ok bool, _ error) {
		verifier := a.current(ctx)
		if verifier == nil {
			return false, nil
		}
		var err error
		response, ok, err = verifier.AuthenticateRequest(request)
		return ok && err == nil, nil
	})
	return response, err == nil
}

// current returns the verifier of the authority that the hub has published at most authorityPeriod ago.
func (a *publishedAuthority) current(ctx context.Context) authenticator.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.read) < authorityPeriod {
		return a.verifier
	}
	a.verifier = nil
	config, err := a.hub.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	a.read = time.Now()
	if err != nil {
		return nil
	}
	authorities, err := dynamiccertificates.NewStaticCAContent("front-proxy", []byte(config.Data["requestheader-client-ca-file"]))
	if err != nil {
		return nil
	}
	a.verifier = x509request.NewDynamicCAVerifier(authorities.VerifyOptions, a.headers, a.names)
	return a.verifier
}

const (
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAPatience        = 10 * time.Second
	clientCAPeriod          = 10 * time.Millisecond
)

// loadedCA delays the first TLS handshake until the server has read the certificate authorities of clients
// from a ConfigMap of the hub. An earlier handshake would not request a certificate, and the client, such
// as the aggregator of the hub, would be anonymous for the lifetime of the connection.
type loadedCA struct {
	dynamiccertificates.CAContentProvider
	hub kubernetes.Interface
}

// RunOnce implements dynamiccertificates.ControllerRunner. The server calls it before the first handshake.
func (c *loadedCA) RunOnce(ctx context.Context) error {
	runner, ok := c.CAContentProvider.(dynamiccertificates.ControllerRunner)
	if !ok {
		return nil
	}
	go runner.Run(ctx, 1)

	var last error
	err := wait.PollUntilContextTimeout(ctx, clientCAPeriod, clientCAPatience, true, func(ctx context.Context) (bool, error) {
		last = c.loaded(ctx)
		return last == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		// Clients with tokens do not need certificate authorities.
		klog.FromContext(ctx).Error(last, "Serving without the certificate authorities of clients")
	}
	return nil
}

// Run implements dynamiccertificates.ControllerRunner. RunOnce has already started the runner.
func (c *loadedCA) Run(ctx context.Context, _ int) { <-ctx.Done() }

func (c *loadedCA) loaded(ctx context.Context) error {
	config, err := c.hub.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return err
	}
	known := c.CurrentCABundleContent()
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		if !bytes.Contains(known, bytes.TrimSpace([]byte(config.Data[key]))) {
			return fmt.Errorf("%s of ConfigMap %s/%s is not loaded yet", key, metav1.NamespaceSystem, authenticationConfigMap)
		}
	}
	return nil
}
