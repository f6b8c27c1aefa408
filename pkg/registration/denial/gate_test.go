package denial

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// stored returns a ManagedCluster with this resource version.
func stored(version string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", ResourceVersion: version}}
	for _, change := range change {
		change(mc)
	}
	return mc
}

func accepted(mc *clusterv1.ManagedCluster) { mc.Spec.HubAcceptsClient = true; once(mc) }
func once(mc *clusterv1.ManagedCluster) {
	mc.Status.Acceptance = &clusterv1.Acceptance{EverAccepted: true}
}
func deleting(mc *clusterv1.ManagedCluster) {
	mc.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}

func says(reason string) func(*clusterv1.ManagedCluster) {
	return func(mc *clusterv1.ManagedCluster) {
		mc.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionDeleting, Status: metav1.ConditionTrue, Reason: reason}}
	}
}

type attributes = authorizer.AttributesRecord

func works(groups ...string) attributes {
	return attributes{
		User: &user.DefaultInfo{Name: "agent", Groups: groups}, Verb: "list", APIGroup: "work.open-cluster-management.io",
		Resource: "manifestworks", Namespace: "c1", ResourceRequest: true,
	}
}

var everything = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
})

func (g *Gate) lets(t *testing.T, a attributes) bool {
	t.Helper()
	decision, _, err := g.Authorizer(everything).Authorize(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return decision == authorizer.DecisionAllow
}

func TestGate(t *testing.T) {
	const certificate, entry = "system:open-cluster-management:c1", "open-cluster-management:c1"
	const addon = "system:open-cluster-management:cluster:c1:addon:proxy"
	at := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	g := New(at)
	open := func(what string, want bool) {
		t.Helper()
		for _, group := range []string{certificate, entry, addon} {
			if got := g.lets(t, works(group)); got != want {
				t.Errorf("%s: allowed requests of group %s = %v, want %v", what, group, got, want)
			}
		}
	}
	open("unknown", true)
	g.Observe(stored("1"))
	open("not accepted yet", true) // the hub decides
	g.Observe(stored("2", accepted))
	open("accepted", true)
	g.Observe(stored("4", once))
	open("denied", false)
	g.Observe(stored("3", accepted))
	open("an old acceptance is observed late", false)
	for what, a := range map[string]attributes{
		"another cluster":              works("system:open-cluster-management:c2"),
		"an add-on of another cluster": works("system:open-cluster-management:cluster:c2:addon:c1"),
		"another user":                 works("system:authenticated"),
		"not a resource":               {User: works(certificate).User, Verb: "get", Path: "/version"},
		"its own ManagedCluster": {
			User: works(certificate).User, Verb: "watch", APIGroup: clusterv1.GroupName, Resource: "managedclusters", Name: "c1", ResourceRequest: true,
		},
	} {
		if !g.lets(t, a) {
			t.Errorf("decision for %s = denied, want allowed", what)
		}
	}
	for what, change := range map[string]func(*attributes){
		"an update": func(a *attributes) { a.Verb = "update" }, "the status": func(a *attributes) { a.Subresource = "status" },
		"another": func(a *attributes) { a.Name = "c2" }, "all": func(a *attributes) { a.Name = "" },
	} {
		a := attributes{User: works(certificate).User, Verb: "get", APIGroup: clusterv1.GroupName, Resource: "managedclusters", Name: "c1", ResourceRequest: true}
		change(&a)
		if g.lets(t, a) {
			t.Errorf("decision for a denied cluster and %s = allowed, want denied", what)
		}
	}
	g.Observe(stored("5", accepted))
	open("accepted again", true)
	g.Observe(stored("6", accepted, deleting))
	open("deleted and draining", true)
	g.Observe(stored("6", accepted, deleting, says(clusterv1.ReasonResourceRemaining)))
	open("still draining", true)
	g.Observe(stored("7", accepted, deleting, says(clusterv1.ReasonNoResource)))
	open("deleted and drained", false)
	g.Observe(stored("7", accepted, deleting, says(clusterv1.ReasonDrainTimedOut)))
	open("deleted after the drain timeout", false)
	g.Handler().OnDelete(stored("7", accepted, deleting))
	open("removed", false)
	g.Observe(stored("8"))
	open("recreated and not accepted", false)
	g.Observe(stored("9", accepted))
	open("recreated and accepted", true)
	g.Deleted(stored("9", accepted))
	open("deleted by a request", false)
	at.SetTime(at.Now().Add(2 * keepDeleted))
	g.Deleted(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c2", ResourceVersion: "20"}})
	if len(g.clusters) != 1 {
		t.Errorf("clusters of the Gate after keepDeleted = %v, want c2 only", g.clusters)
	}
}

// TestUnacceptedClusterDeniesNobody checks that a ManagedCluster that was never accepted
// does not deny access to members of a group of its name.
func TestUnacceptedClusterDeniesNobody(t *testing.T) {
	g := New(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	g.Observe(stored("1"))
	g.Observe(stored("2", deleting))
	g.Deleted(stored("3"))
	if !g.lets(t, works("open-cluster-management:c1")) {
		t.Error("decision for a group of an unaccepted cluster = denied, want allowed")
	}
}

func TestWatchesEnd(t *testing.T) {
	g := New(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	g.Observe(stored("1", accepted))
	started := make(chan context.Context)
	handler := g.Handle(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		started <- r.Context()
		<-r.Context().Done()
	}))
	serve := func(group string, info request.RequestInfo) (context.Context, context.CancelFunc) {
		info.IsResourceRequest = true
		ctx, cancel := context.WithCancel(request.WithRequestInfo(request.WithUser(t.Context(), works(group).User), &info))
		go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return <-started, cancel
	}
	watching := request.RequestInfo{Verb: "watch", APIGroup: "work.open-cluster-management.io", Resource: "manifestworks", Namespace: "c1"}
	itself := request.RequestInfo{Verb: "watch", APIGroup: clusterv1.GroupName, Resource: "managedclusters", Name: "c1"}
	read := watching
	read.Verb = "get"
	const group = "system:open-cluster-management:c1"
	ended, endEnded := serve(group, watching)
	defer endEnded()
	var stays []context.Context
	for _, s := range []struct {
		group string
		info  request.RequestInfo
	}{{"system:open-cluster-management:c2", watching}, {"system:authenticated", watching}, {group, itself}, {group, read}} {
		ctx, cancel := serve(s.group, s.info)
		defer cancel()
		stays = append(stays, ctx)
	}
	g.Observe(stored("2", once))
	if ended.Err() == nil {
		t.Error("watch of a denied cluster continues, want it to end")
	}
	for i, ctx := range stays {
		if ctx.Err() != nil {
			t.Errorf("request %d ended, want it to continue", i)
		}
	}
	late, endLate := serve(group, watching)
	defer endLate()
	if late.Err() == nil {
		t.Error("watch that was authorized just before the denial continues, want it to end")
	}
}
