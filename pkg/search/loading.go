package search

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ErrLoading is the error while the data of an engine are being loaded. It wraps ErrUnavailable.
var ErrLoading = fmt.Errorf("%w: the data are being loaded", ErrUnavailable)

// loadBackoff is the delay between attempts to load an engine that is unavailable.
var loadBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 5, Cap: 15 * time.Second}

// Loading is an engine that is loaded in the background. Its methods return ErrLoading until then.
type Loading struct {
	engine atomic.Pointer[Engine]
	stop   context.CancelFunc
	done   chan struct{}
	failed chan error
}

var _ Engine = (*Loading)(nil)

// Load calls load in the background, and again with a backoff after an error that wraps
// ErrUnavailable. The context of load ends with Close.
func Load(load func(context.Context) (Engine, error)) *Loading {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Loading{stop: cancel, done: make(chan struct{}), failed: make(chan error, 1)}
	go func() {
		defer close(l.done)
		err := loadBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			engine, err := load(ctx)
			if err == nil {
				l.engine.Store(&engine)
				return true, nil
			}
			if ctx.Err() == nil && errors.Is(err, ErrUnavailable) {
				klog.Background().Error(err, "Cannot open the search engine yet; trying again")
				return false, nil
			}
			return false, err
		})
		if err != nil && ctx.Err() == nil {
			l.failed <- err
		}
	}()
	return l
}

// Failed receives the error if the engine cannot be loaded.
func (l *Loading) Failed() <-chan error { return l.failed }

// Close implements Engine. It ends loading.
func (l *Loading) Close() error {
	l.stop()
	<-l.done
	if engine := l.engine.Load(); engine != nil {
		return (*engine).Close()
	}
	return nil
}

// loaded calls a method of the engine once it is loaded.
func loaded[T any](l *Loading, call func(Engine) (T, error)) (T, error) {
	engine := l.engine.Load()
	if engine == nil {
		var none T
		return none, ErrLoading
	}
	return call(*engine)
}

// Apply implements Engine.
func (l *Loading) Apply(ctx context.Context, report *Report) (*Applied, error) {
	return loaded(l, func(e Engine) (*Applied, error) { return e.Apply(ctx, report) })
}

// RemoveCluster implements Engine.
func (l *Loading) RemoveCluster(ctx context.Context, cluster string) error {
	_, err := loaded(l, func(e Engine) (any, error) { return nil, e.RemoveCluster(ctx, cluster) })
	return err
}

// Clusters implements Engine.
func (l *Loading) Clusters(ctx context.Context) ([]ClusterState, error) {
	return loaded(l, func(e Engine) ([]ClusterState, error) { return e.Clusters(ctx) })
}

// Search implements Engine.
func (l *Loading) Search(ctx context.Context, scope visibility.Scope, request *Request) (*Result, error) {
	return loaded(l, func(e Engine) (*Result, error) { return e.Search(ctx, scope, request) })
}

// Complete implements Engine.
func (l *Loading) Complete(ctx context.Context, scope visibility.Scope, request *CompletionRequest) (*Completion, error) {
	return loaded(l, func(e Engine) (*Completion, error) { return e.Complete(ctx, scope, request) })
}

// Schema implements Engine.
func (l *Loading) Schema(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time) ([]PropertySchema, error) {
	return loaded(l, func(e Engine) ([]PropertySchema, error) { return e.Schema(ctx, scope, q, now) })
}

// GetMany implements Engine.
func (l *Loading) GetMany(ctx context.Context, scope visibility.Scope, uids []string) ([]Item, error) {
	return loaded(l, func(e Engine) ([]Item, error) { return e.GetMany(ctx, scope, uids) })
}

// Version implements Engine.
func (l *Loading) Version(ctx context.Context) (uint64, error) {
	return loaded(l, func(e Engine) (uint64, error) { return e.Version(ctx) })
}

// Changes implements Engine.
func (l *Loading) Changes(ctx context.Context, after Position, max, bytes int) ([]Change, Position, error) {
	engine := l.engine.Load()
	if engine == nil {
		return nil, Position{}, ErrLoading
	}
	return (*engine).Changes(ctx, after, max, bytes)
}

// Internal implements Engine.
func (l *Loading) Internal(ctx context.Context, cluster string, visit func(*Resource) error) (uint64, error) {
	return loaded(l, func(e Engine) (uint64, error) { return e.Internal(ctx, cluster, visit) })
}

// HubClasses implements Engine.
func (l *Loading) HubClasses(ctx context.Context) ([]visibility.Class, uint64, error) {
	engine := l.engine.Load()
	if engine == nil {
		return nil, 0, ErrLoading
	}
	return (*engine).HubClasses(ctx)
}
