// Package denial denies requests to this server by the agents of denied and of deleted, drained clusters, as soon as the
// decision is stored. The hub's RBAC follows later, access reviews are cached for seconds, and a running watch is not
// authorized again.
package denial

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// keepDeleted is how long a deleted cluster stays denied. It exceeds the lifetime of cached access reviews.
const keepDeleted = time.Hour

// Gate records which clusters are denied. It observes stored ManagedClusters from requests and an informer, in any order.
// It is safe for concurrent use.
type Gate struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	clusters map[string]*cluster
}

type cluster struct {
	// version is the latest observed resource version of the ManagedCluster.
	version string
	denied  bool
	// deletedAt is zero while the ManagedCluster exists.
	deletedAt time.Time
	// watches contains the functions that end the running watches of the cluster's agents.
	watches map[*watch]struct{}
}

type watch struct{ end context.CancelFunc }

// New returns a Gate without denied clusters.
func New(clock clock.PassiveClock) *Gate {
	return &Gate{clock: clock, clusters: map[string]*cluster{}}
}

// Handler returns an event handler for an informer of ManagedClusters.
func (g *Gate) Handler() cache.ResourceEventHandler {
	record := func(obj any, deleted bool) {
		if mc, ok := obj.(*clusterv1.ManagedCluster); ok {
			g.record(mc, deleted)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { record(obj, false) },
		UpdateFunc: func(_, obj any) { record(obj, false) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			record(obj, true)
		},
	}
}

// Observe records a stored ManagedCluster.
func (g *Gate) Observe(mc *clusterv1.ManagedCluster) { g.record(mc, false) }

// Deleted records that a ManagedCluster was deleted, or is being deleted and is not drained.
func (g *Gate) Deleted(mc *clusterv1.ManagedCluster) { g.record(mc, true) }

// record ignores versions older than the latest observed one.
func (g *Gate) record(mc *clusterv1.ManagedCluster, deleted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.of(mc.Name)
	if order, err := resourceversion.CompareResourceVersion(mc.ResourceVersion, c.version); c.version != "" && err == nil && order < 0 {
		return
	}
	c.version, c.deletedAt = mc.ResourceVersion, time.Time{}
	if deleted {
		c.deletedAt = g.clock.Now()
		maps.DeleteFunc(g.clusters, func(_ string, c *cluster) bool {
			return !c.deletedAt.IsZero() && g.clock.Since(c.deletedAt) > keepDeleted
		})
	}
	switch {
	case !deleted && (mc.Spec.HubAcceptsClient && mc.DeletionTimestamp == nil || registration.Draining(mc)):
		c.denied = false
	case registration.EverAccepted(mc):
		c.deny()
	}
	// The Gate ignores a cluster that was never accepted. Otherwise its creator could deny access to members of a group
	// of that name, or restore the access of a previous cluster.
}

// of returns the state of a cluster. The caller holds mu.
func (g *Gate) of(name string) *cluster {
	c := g.clusters[name]
	if c == nil {
		c = &cluster{watches: map[*watch]struct{}{}}
		g.clusters[name] = c
	}
	return c
}

func (c *cluster) deny() {
	c.denied = true
	for w := range c.watches {
		w.end()
	}
}

// Authorizer allows the agents of denied clusters only to read their own ManagedCluster, and delegates all other requests
// to next.
func (g *Gate) Authorizer(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if name := g.refuses(a); name != "" {
			return authorizer.DecisionNoOpinion, fmt.Sprintf("the hub does not accept cluster %q", name), nil
		}
		return next.Authorize(ctx, a)
	})
}

// refuses returns the denied cluster of a caller that is its agent, or an empty string.
func (g *Gate) refuses(a authorizer.Attributes) string {
	if !a.IsResourceRequest() || a.GetUser() == nil {
		return ""
	}
	names := clustersOf(a.GetUser())
	if len(names) == 0 {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		if c := g.clusters[name]; c != nil && c.denied && !looksAtItself(a, name) {
			return name
		}
	}
	return ""
}

// looksAtItself reports whether a request reads the caller's own ManagedCluster, so that its agent receives the denial.
func looksAtItself(a authorizer.Attributes, cluster string) bool {
	return a.GetAPIGroup() == clusterv1.GroupName && a.GetResource() == "managedclusters" && a.GetSubresource() == "" &&
		a.GetName() == cluster && slices.Contains([]string{"get", "list", "watch"}, a.GetVerb())
}

// clustersOf returns the clusters of which a user is an agent, or an agent of an add-on, according to its groups.
func clustersOf(u user.Info) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, group := range u.GetGroups() {
		for _, own := range clusterv1.AgentGroups("") {
			if name, ok := strings.CutPrefix(group, own); ok {
				add(name)
			}
		}
		add(clusterv1.ClusterOfAddonGroup(group))
	}
	return names
}

// Handle serves authorized requests, and ends the watches and upgraded connections of agents whose cluster is denied.
func (g *Gate) Handle(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "watch" && !httpstream.IsUpgradeRequest(r) {
			next.ServeHTTP(rw, r)
			return
		}
		a, err := filters.GetAuthorizerAttributes(r.Context())
		if err != nil || a.GetUser() == nil {
			next.ServeHTTP(rw, r)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		w := &watch{end: end}
		for _, name := range clustersOf(a.GetUser()) {
			if !looksAtItself(a, name) {
				defer g.begin(name, w)()
			}
		}
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

// begin records a watch of an agent, and returns a function that removes the record. A watch that was authorized just
// before the denial ends immediately.
func (g *Gate) begin(name string, w *watch) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.of(name)
	c.watches[w] = struct{}{}
	if c.denied {
		w.end()
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(c.watches, w)
		// Names that occur only in callers' groups use no memory.
		if c.version == "" && len(c.watches) == 0 && g.clusters[name] == c {
			delete(g.clusters, name)
		}
	}
}
