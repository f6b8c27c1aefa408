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
)

const (
	// synced is the interval at which the informers are checked until they have listed all objects, and reviewCheck the
	// interval at which the age of the last review is checked.
	synced      = 50 * time.Millisecond
	reviewCheck = time.Minute
	// reviewPeriod is the interval between reviews of the authorizers of the hub. reviewValidity is the time for which
	// a result is used.
	reviewPeriod   = 5 * time.Minute
	reviewValidity = 15 * time.Minute
)

// reviewBackoff is the delay after a failed review.
var reviewBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 7, Cap: time.Minute}

// HubConfig contains the dependencies of a HubFeed. All fields are required.
type HubConfig struct {
	Index *access.Index
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

	// The goroutine of Run owns the following fields.
	reviewed time.Time
	others   bool
	state    access.State
}

// NewHub returns a HubFeed. It follows the informers from now on.
func NewHub(config HubConfig) (*HubFeed, error) {
	f := &HubFeed{config: config}
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
	if u, known := access.ObjectUpdate(obj, gone); known {
		f.config.Index.Update(f.config.Cluster, u)
	}
}

// Run sets the state of the hub until ctx ends.
func (f *HubFeed) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("access-hub-feed"))
	reviews := make(chan bool)
	var reviewer sync.WaitGroup
	defer reviewer.Wait()
	reviewer.Go(func() { f.review(ctx, reviews) })
	ticker := time.NewTicker(synced)
	defer ticker.Stop()
	for {
		if f.hasSynced() {
			ticker.Reset(reviewCheck)
		}
		f.publish()
		select {
		case <-ctx.Done():
			return
		case f.others = <-reviews:
			f.reviewed = time.Now()
		case <-ticker.C:
		}
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

func (f *HubFeed) publish() {
	state := access.State{Known: true, OtherAuthorizers: f.others}
	switch {
	case !f.hasSynced():
		state = access.State{Reason: "the server has not listed the roles and bindings of the hub yet"}
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

// pause waits until the delay is over or ctx ends.
func pause(ctx context.Context, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
