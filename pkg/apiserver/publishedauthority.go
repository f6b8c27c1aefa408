package apiserver

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

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
	clock   clock.PassiveClock

	patience time.Duration
	waiters  chan struct{}
	// turn protects the fields below.
	turn chan struct{}
	// read is the time of the last read, and verifier is nil if it found no authority.
	read     time.Time
	verifier authenticator.Request
}

func newPublishedAuthority(hub kubernetes.Interface, headers authenticator.Request, names headerrequest.StringSliceProvider, passive clock.PassiveClock) *publishedAuthority {
	return &publishedAuthority{
		hub: hub, headers: headers, names: names, clock: passive, patience: authorityPatience,
		waiters: make(chan struct{}, authorityWaiters), turn: make(chan struct{}, 1),
	}
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
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil
	}
	if a.clock.Since(a.read) < authorityPeriod {
		return a.verifier
	}
	a.verifier = nil
	config, err := a.hub.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	a.read = a.clock.Now()
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
