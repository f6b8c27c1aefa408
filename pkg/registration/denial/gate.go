// Package denial keeps the agents of clusters that are denied, or deleted and drained, out of this
// server, from the moment on at which that is stored. The hub's RBAC says the same
// a little later, the answers of the hub to access reviews are kept for some seconds,
// and a watch that runs is not asked about again.
package denial

import (
	"context"
	"fmt"
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

// keepDeleted is for how long a cluster that is gone stays denied. It only has to be
// longer than any answer of the hub is kept.
const keepDeleted = time.Hour

// Gate knows which clusters are denied. It is fed with ManagedClusters as they are
// stored, from requests and from an informer, in any order. It is safe for concurrent use.
type Gate struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	clusters map[string]*cluster
}

type cluster struct {
	// version is the resource version of the ManagedCluster that was seen last.
	version string
	denied  bool
	// deletedAt is zero while there is a ManagedCluster.
	deletedAt time.Time
	// watches are those of its agents that run; each is ended by its function.
	watches map[*watch]struct{}
}

type watch struct{ end context.CancelFunc }

// New returns a Gate that denies nobody.
func New(clock clock.PassiveClock) *Gate {
	return &Gate{clock: clock, clusters: map[string]*cluster{}}
}

// Handler feeds the gate with what an informer of ManagedClusters sees.
func (g *Gate) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if mc, ok := obj.(*clusterv1.ManagedCluster); ok {
				g.Observe(mc)
			}
		},
		UpdateFunc: func(_, obj any) {
			if mc, ok := obj.(*clusterv1.ManagedCluster); ok {
				g.Observe(mc)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if mc, ok := obj.(*clusterv1.ManagedCluster); ok {
				g.Deleted(mc)
			}
		},
	}
}

// Observe takes note of a ManagedCluster as it is stored. Older ones than the gate has
// seen are nothing new.
func (g *Gate) Observe(mc *clusterv1.ManagedCluster) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.of(mc.Name)
	if order, err := resourceversion.CompareResourceVersion(mc.ResourceVersion, c.version); c.version != "" && err == nil && order < 0 {
		return
	}
	c.version, c.deletedAt = mc.ResourceVersion, time.Time{}
	switch {
	case mc.Spec.HubAcceptsClient && mc.DeletionTimestamp == nil, registration.Draining(mc):
		c.denied = false
	case registration.OnceAccepted(mc):
		c.deny()
	}
	// One that never was accepted takes nothing from anybody: whoever may create it
	// would otherwise shut out whom the hub has in a group of that name. Neither does it
	// give back what a former one of its name has lost.
}

// Deleted takes note that a ManagedCluster was deleted, or is being deleted without a chance
// for its agent to remove what the hub delivered.
func (g *Gate) Deleted(mc *clusterv1.ManagedCluster) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	for name, c := range g.clusters {
		if !c.deletedAt.IsZero() && now.Sub(c.deletedAt) > keepDeleted {
			delete(g.clusters, name)
		}
	}
	c := g.of(mc.Name)
	if order, err := resourceversion.CompareResourceVersion(mc.ResourceVersion, c.version); c.version != "" && err == nil && order < 0 {
		return
	}
	c.version, c.deletedAt = mc.ResourceVersion, now
	if registration.OnceAccepted(mc) {
		c.deny()
	}
}

// of returns what is known of a cluster. The caller holds mu.
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

// Authorizer refuses the agents of denied clusters everything in this server but to
// look at their own ManagedCluster, and asks next about all others.
func (g *Gate) Authorizer(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if name := g.refuses(a); name != "" {
			return authorizer.DecisionNoOpinion, fmt.Sprintf("the hub does not accept cluster %q", name), nil
		}
		return next.Authorize(ctx, a)
	})
}

// refuses returns the denied cluster that who asks is an agent of; empty if the gate
// is open.
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

// looksAtItself tells whether a request is one that agents of denied clusters learn by
// that they are denied.
func looksAtItself(a authorizer.Attributes, cluster string) bool {
	return a.GetAPIGroup() == clusterv1.GroupName && a.GetResource() == "managedclusters" && a.GetSubresource() == "" &&
		a.GetName() == cluster && slices.Contains([]string{"get", "list", "watch"}, a.GetVerb())
}

// clustersOf returns the clusters that a user is an agent of, or an agent of an add-on, by its groups.
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

// Handle serves requests that are authorized, and ends the watches and upgraded connections of agents
// when their cluster is denied.
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

// begin notes a watch of an agent, and returns what takes that back. One that was
// authorized just before its cluster was denied ends at once.
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
		// Nothing is kept of names that only groups of callers contain.
		if c.version == "" && len(c.watches) == 0 && g.clusters[name] == c {
			delete(g.clusters, name)
		}
	}
}
