// Package fence prevents that an agent writes to its cluster for a hub that another hub has replaced.
//
// The managed cluster stores the epoch of the hub that may write. An agent that moves to another hub first raises that
// epoch, and then waits for Validity. Every other process of the agent, even one that was stopped in between, reads the
// epoch before it writes, at the latest Validity after the last time. So all of them have noticed when the wait ends.
package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

const (
	// Validity is the time for which a read epoch is valid. Reads start before and writes end after it, so the wait after a
	// raise includes a margin.
	Validity = 4 * time.Second
	// Wait is the time from a raise of the epoch to the first write for the new hub.
	Wait = Validity + 2*time.Second
	// readTimeout bounds a read of the epoch.
	readTimeout = 10 * time.Second
)

// ErrClosed is the error of a write while the agent serves no hub.
var ErrClosed = errors.New("the agent does not write to the cluster, because it serves no hub now")

// OtherHubError is the error of a write for a hub that another hub has replaced.
type OtherHubError struct{ Own, Stored rehoming.Epoch }

func (e *OtherHubError) Error() string {
	return fmt.Sprintf("the agent does not write to the cluster, because the cluster belongs to the hub with epoch %q, not to the hub with epoch %q", e.Stored, e.Own)
}

// Fence decides whether this process may write to the managed cluster.
type Fence struct {
	read func(ctx context.Context) (rehoming.Epoch, error)

	mu sync.Mutex
	// open is true while the agent serves the hub with epoch own.
	open bool
	own  rehoming.Epoch
	// verified is the start of the last read that returned own.
	verified time.Time
}

// New returns a closed Fence. read reads the epoch that the managed cluster stores, without a cache.
func New(read func(ctx context.Context) (rehoming.Epoch, error)) *Fence { return &Fence{read: read} }

// Open allows writes for the hub with this epoch, while the managed cluster stores it.
func (f *Fence) Open(own rehoming.Epoch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.own, f.verified = true, own, time.Time{}
}

// Close prevents further writes.
func (f *Fence) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = false
}

// Check returns nil if this process may write now.
func (f *Fence) Check(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		return ErrClosed
	}
	began := time.Now()
	if began.Sub(f.verified) < Validity {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stored, err := f.read(ctx)
	if err != nil {
		return fmt.Errorf("reading the epoch of the hub on the cluster: %w", err)
	}
	if stored != f.own {
		return &OtherHubError{Own: f.own, Stored: stored}
	}
	f.verified = began
	return nil
}

// Transport wraps a transport to the managed cluster, and refuses requests that may write while Check does.
func (f *Fence) Transport(next http.RoundTripper) http.RoundTripper {
	return &transport{fence: f, next: next}
}

type transport struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if err := t.fence.Check(request.Context()); err != nil {
			if request.Body != nil {
				_ = request.Body.Close()
			}
			return nil, err
		}
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper implements the interface of k8s.io/apimachinery/pkg/util/net.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
