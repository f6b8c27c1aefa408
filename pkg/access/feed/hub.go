package feed

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/access"
)

const (
	// hubPeriod is the interval at which the state of the hub is checked.
	hubPeriod = 200 * time.Millisecond
	// reviewValidity is the time for which a review of the authorizers of the hub is used.
	reviewValidity = 15 * time.Minute
)

// HubConfig contains the dependencies of a HubFeed. All fields are required.
type HubConfig struct {
	Index *access.Index
	// Cluster is the name of the cluster that is the hub itself.
	Cluster string
	// Informers are those of the roles and bindings of the hub. Their owner starts them.
	Informers []cache.SharedIndexInformer
	// OtherAuthorizers reports whether the hub asks another authorizer than RBAC, and when it was reviewed, or the zero time.
	OtherAuthorizers func() (others bool, reviewed time.Time)
}

// HubFeed fills the index with the RBAC of the hub.
type HubFeed struct {
	config        HubConfig
	registrations []cache.ResourceEventHandlerRegistration
	// state is the state that the index has.
	state access.State
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
	wait.UntilWithContext(ctx, func(context.Context) { f.publish() }, hubPeriod)
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
	others, reviewed := f.config.OtherAuthorizers()
	state := access.State{Known: true, OtherAuthorizers: others}
	switch {
	case !f.hasSynced():
		state = access.State{Reason: "the server has not listed the roles and bindings of the hub yet"}
	case reviewed.IsZero():
		state = access.State{Reason: "the authorizers of the hub are not known yet"}
	case time.Since(reviewed) > reviewValidity:
		state = access.State{Reason: "the hub does not answer the server"}
	}
	if state != f.state {
		f.state = state
		f.config.Index.SetState(f.config.Cluster, state)
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
