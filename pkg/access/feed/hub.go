package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	// settle is the delay between an event and the update, so that the update includes events that follow at once.
	settle = 10 * time.Millisecond
	// synced is the interval at which the informers are checked until they have listed all objects.
	synced = 50 * time.Millisecond
	// reviewPeriod is the interval between reviews of the authorizers of the hub. reviewValidity is the time for which
	// a result is used.
	reviewPeriod   = 5 * time.Minute
	reviewValidity = 15 * time.Minute
)

// reviewBackoff is the delay after a failed review.
var reviewBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 7, Cap: time.Minute}

// HubConfig contains the dependencies of a HubFeed. All fields are required.
type HubConfig struct {
	Index access.Writer
	// Cluster is the name of the cluster that is the hub itself.
	Cluster string
	// Informers are those of the roles and bindings of the hub. Their owner starts them.
	Informers []cache.SharedIndexInformer
	// OtherAuthorizers reports whether the hub asks another authorizer than RBAC.
	OtherAuthorizers func(context.Context) (bool, error)
}

// HubFeed fills the index with the RBAC of the hub.
type HubFeed struct {
	config        HubConfig
	registrations []cache.ResourceEventHandlerRegistration
	// arrived contains an element if events are pending.
	arrived chan struct{}

	mu sync.Mutex
	// pending contains the changed objects, and nil for deleted ones.
	pending map[rbac.Key]*rbac.Object

	// The goroutine of Run owns the following fields.
	listed bool
	// refused is true if the index has not taken the last update. The objects are then still pending.
	refused  bool
	reviewed time.Time
	others   bool
	state    access.State
}

// NewHub returns a HubFeed. It follows the informers from now on.
func NewHub(config HubConfig) (*HubFeed, error) {
	f := &HubFeed{config: config, arrived: make(chan struct{}, 1), pending: map[rbac.Key]*rbac.Object{}}
	for _, informer := range config.Informers {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { f.event(obj, false) },
			UpdateFunc: func(_, obj any) { f.event(obj, false) },
			DeleteFunc: func(obj any) {
				if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = unknown.Obj
				}
				f.event(obj, true)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("following the RBAC of the hub: %w", err)
		}
		f.registrations = append(f.registrations, registration)
	}
	return f, nil
}

func (f *HubFeed) event(obj any, gone bool) {
	o, ok := rbac.FromTyped(obj)
	if !ok {
		return
	}
	f.mu.Lock()
	if f.pending[o.Key] = &o; gone {
		f.pending[o.Key] = nil
	}
	f.mu.Unlock()
	select {
	case f.arrived <- struct{}{}:
	default:
	}
}

// Run fills the index until ctx ends.
func (f *HubFeed) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("access-hub-feed"))
	f.publish()
	reviews := make(chan bool)
	var reviewer sync.WaitGroup
	defer reviewer.Wait()
	reviewer.Go(func() { f.review(ctx, reviews) })
	ticker := time.NewTicker(synced)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f.others = <-reviews:
			f.reviewed = time.Now()
		case <-f.arrived:
			if !f.listed {
				break
			}
			if !pause(ctx, settle) {
				return
			}
			f.apply(ctx)
		case <-ticker.C:
			switch {
			case !f.listed && f.hasSynced():
				// The first update contains all objects.
				f.listed = f.apply(ctx)
				ticker.Reset(time.Minute)
			case f.refused:
				f.apply(ctx)
			}
		}
		f.publish()
	}
}

func (f *HubFeed) hasSynced() bool {
	for _, registration := range f.registrations {
		if !registration.HasSynced() {
			return false
		}
	}
	return true
}

// apply applies the pending events. It reports whether the index has taken them; otherwise they stay pending.
func (f *HubFeed) apply(ctx context.Context) bool {
	f.mu.Lock()
	pending := f.pending
	f.pending = map[rbac.Key]*rbac.Object{}
	f.mu.Unlock()
	u := newUpdate(!f.listed)
	for key, o := range pending {
		switch {
		case o == nil && f.listed && isRole(key):
			u.DeletedRoles = append(u.DeletedRoles, key)
		case o == nil && f.listed:
			u.DeletedBindings = append(u.DeletedBindings, key)
		case o == nil:
		case isRole(key):
			u.Roles[key] = o.Rules
		default:
			u.Bindings[key] = access.Binding{RoleRef: o.RoleRef, Subjects: o.Subjects}
		}
	}
	err := f.config.Index.Update(f.config.Cluster, u)
	f.refused = err != nil
	if err == nil {
		return true
	}
	klog.FromContext(ctx).Error(err, "The roles and bindings of the hub are refused")
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, o := range pending {
		if _, newer := f.pending[key]; !newer {
			f.pending[key] = o
		}
	}
	return false
}

func (f *HubFeed) publish() {
	state := access.State{Known: true, OtherAuthorizers: f.others}
	switch {
	case !f.listed:
		state = access.State{Reason: "the server has not listed the roles and bindings of the hub yet"}
	case f.refused:
		state = access.State{Reason: "the roles and bindings of the hub exceed the limits of the index"}
	case f.reviewed.IsZero():
		state = access.State{Reason: "the authorizers of the hub are not known yet"}
	case time.Since(f.reviewed) > reviewValidity:
		state = access.State{Reason: "the hub does not answer the server"}
	}
	if state != f.state {
		f.state = state
		f.config.Index.SetState(f.config.Cluster, state)
	}
}

// review periodically asks for the authorizers of the hub until ctx ends.
func (f *HubFeed) review(ctx context.Context, results chan<- bool) {
	backoff := reviewBackoff
	for ctx.Err() == nil {
		delay := wait.Jitter(reviewPeriod, 0.2)
		others, err := f.config.OtherAuthorizers(ctx)
		if err != nil {
			delay = backoff.Step()
			klog.FromContext(ctx).V(2).Info("Cannot review the authorizers of the hub yet", "err", err, "retryAfter", delay)
		} else {
			backoff = reviewBackoff
			select {
			case results <- others:
			case <-ctx.Done():
				return
			}
		}
		pause(ctx, delay)
	}
}

// pause waits, and returns false if ctx ends first.
func pause(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
