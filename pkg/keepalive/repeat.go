package keepalive

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// DialTimeout limits a connection attempt. The kernel repeats lost packets of an attempt less and less often, so
	// a new attempt notices earlier that the network is back.
	DialTimeout = 5 * time.Second
	// A process tries again after repeatPeriod to twice that time, with one request for all that wait.
	repeatPeriod = 3 * time.Second
	// waitAtMost is the time after which a request that waits for another one tries by itself.
	waitAtMost = 30 * time.Second
	// unauthorizedAtMost is the time during which a request is repeated that the server does not authenticate. It has
	// the token with which it began, so the informer must begin again.
	unauthorizedAtMost = time.Minute
)

// Repeat returns a transport that repeats the lists and watches of informers while the server is not available. A hub
// whose aggregation layer has an expired certificate returns 401, so these are repeated too, for a minute. An
// informer itself waits up to a minute after a long outage, and its cache is out of date until then. Other requests
// fail as before.
func Repeat(inner http.RoundTripper) http.RoundTripper { return &repeater{inner: inner} }

type repeater struct {
	inner http.RoundTripper

	mu sync.Mutex
	// available is closed when the request that tries for all has succeeded or given up. It is nil if none tries.
	available chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (r *repeater) RoundTrip(request *http.Request) (*http.Response, error) {
	if !ofInformer(request) {
		return r.inner.RoundTrip(request)
	}
	ctx := request.Context()
	began, tries := time.Now(), false
	defer func() {
		if tries {
			r.release()
		}
	}()
	for {
		response, err := r.inner.RoundTrip(request)
		if ctx.Err() != nil || !unavailable(response, err, time.Since(began)) {
			return response, err
		}
		if err == nil {
			err = errors.New(response.Status)
			_ = response.Body.Close()
		}
		available := (chan struct{})(nil)
		if !tries {
			if tries, available = r.acquire(); tries {
				klog.FromContext(ctx).Info("The server is not available; trying again until it is", "host", request.URL.Host, "err", err)
			}
		}
		after := waitAtMost
		if tries {
			after = repeatPeriod + rand.N(repeatPeriod)
		}
		select {
		case <-ctx.Done():
		case <-available:
		case <-time.After(after):
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// acquire reports whether the caller tries for all requests. Otherwise it returns a channel that is closed when
// another request has succeeded.
func (r *repeater) acquire() (bool, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.available == nil {
		r.available = make(chan struct{})
		return true, nil
	}
	return false, r.available
}

func (r *repeater) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.available)
	r.available = nil
}

// ofInformer reports whether a request is a list or a watch of an informer. Only these have a resource version.
func ofInformer(request *http.Request) bool {
	query := request.URL.Query()
	return request.Method == http.MethodGet && (query.Has("watch") || query.Has("resourceVersion"))
}

// unavailable reports whether the server does not respond, the hub cannot reach it, or the server does not authenticate
// the hub.
func unavailable(response *http.Response, err error, since time.Duration) bool {
	if err != nil {
		return true
	}
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusUnauthorized:
		return since < unauthorizedAtMost
	default:
		return false
	}
}
