package visibility

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	// hubPeriod is the interval at which the state of the hub in the RBAC of the fleet is checked. reviewValidity is the time for
	// which a review of its authorizers is used.
	hubPeriod      = 200 * time.Millisecond
	reviewValidity = 15 * time.Minute
)

func (c *Compiler) follow() error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.applied(obj, false) },
		UpdateFunc: func(_, obj any) { c.applied(obj, false) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			c.applied(obj, true)
		},
	}
	for _, informer := range []cache.SharedIndexInformer{c.config.Roles, c.config.ClusterRoles, c.config.RoleBindings, c.config.ClusterRoleBindings} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("following an informer: %w", err)
		}
		c.feeds = append(c.feeds, registration)
	}
	return nil
}

// hubSynced reports whether the RBAC of the hub is listed.
func (c *Compiler) hubSynced() bool {
	return !slices.ContainsFunc(c.feeds, func(r cache.ResourceEventHandlerRegistration) bool { return !r.HasSynced() })
}

func (c *Compiler) applied(obj any, gone bool) {
	all, known := access.ObjectUpdate(obj, gone)
	if !known {
		return
	}
	c.config.Fleet.Update(c.config.HubCluster, all)
	u, _ := updateOf(obj, gone)
	c.hub.Update(onHub, u)
	if o, _ := rbac.FromTyped(obj); c.delivered != nil && o.Key.Kind == rbac.KindClusterRole {
		c.delivered.setDefault(o.Key, u.Roles[o.Key], isDefault(obj) && !gone)
	}
}

// publishHub sets the state of the hub in the RBAC of the fleet until ctx ends.
func (c *Compiler) publishHub(ctx context.Context) {
	var last access.State
	wait.UntilWithContext(ctx, func(context.Context) {
		review := c.authorizers.Load()
		state := access.State{Known: true, OtherAuthorizers: review.others}
		switch {
		case !c.hubSynced():
			state = access.State{Reason: "the server has not listed the roles and bindings of the hub yet"}
		case review.at.IsZero():
			state = access.State{Reason: "the authorizers of the hub are not known yet"}
		case time.Since(review.at) > reviewValidity:
			state = access.State{Reason: "the hub does not answer the server"}
		}
		if state != last {
			last = state
			c.config.Fleet.SetState(c.config.HubCluster, state)
		}
	}, hubPeriod)
}

// Run does the periodic work of the Compiler until ctx ends, and returns after all
// goroutines that it started have stopped. Afterwards Scope returns ErrNotSynced.
func (c *Compiler) Run(ctx context.Context) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "search-visibility")
	ctx = klog.NewContext(ctx, logger)
	defer c.stopped.Store(true)

	var running wait.Group
	defer running.Wait()
	running.StartWithContext(ctx, c.publishHub)
	if c.config.ReviewAuthorizers != nil {
		running.StartWithContext(ctx, c.watchMode)
	}
	if c.config.Mode == Auto {
		running.StartWithContext(ctx, c.confirmSamples)
	}
	if c.config.Mode != RBAC {
		running.StartWithContext(ctx, c.notifyReviewed)
	}
	if c.delivered != nil {
		running.StartWithContext(ctx, c.delivered.run)
	}
	<-ctx.Done()
}

// notifyReviewed periodically notifies subscribers whose Scope comes from reviews, because the hub
// sends no event when its decisions change.
func (c *Compiler) notifyReviewed(ctx context.Context) {
	for pause(ctx, c.config.ReviewTTL) {
		if c.asks(&user.DefaultInfo{}) {
			c.interests.subscribers.TouchAll()
		} else {
			c.interests.subscribers.Touch([]rbac.Subject{{Group: true, Name: user.NodesGroup}})
		}
	}
}

// pause waits, and reports false if ctx ends first.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
