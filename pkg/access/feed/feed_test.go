package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const (
	hub = "local-cluster"
	// maxBytes is the bound of the content of a cluster in these tests.
	maxBytes = 1 << 20
)

// fleet is a feed of an engine, with the index that it fills.
type fleet struct {
	t      *testing.T
	dir    string
	log    int
	engine *embedded.Engine
	index  *access.Index
	// stop ends the feed.
	stop func()
	// begun counts the reads of the cluster held, which do not return while a test holds the lock.
	begun atomic.Int64
	hold  sync.RWMutex

	mu     sync.Mutex
	states map[string]ingest.State
}

const held = "held"

// heldEngine is an engine that does not return from reads of the cluster held while a test holds them.
type heldEngine struct {
	*embedded.Engine
	fleet *fleet
}

func (e heldEngine) Internal(ctx context.Context, cluster string, visit func(*search.Resource) error) (uint64, error) {
	version, err := e.Engine.Internal(ctx, cluster, visit)
	if cluster == held {
		e.fleet.begun.Add(1)
		e.fleet.hold.RLock()
		defer e.fleet.hold.RUnlock()
	}
	return version, err
}

func newFleet(t *testing.T, changeLog int) *fleet {
	f := &fleet{t: t, dir: t.TempDir(), log: changeLog, states: map[string]ingest.State{}}
	f.open()
	t.Cleanup(func() { f.close() })
	return f
}

func (f *fleet) open() {
	f.t.Helper()
	engine, err := embedded.Open(f.dir, embedded.Options{ChangeLog: f.log})
	if err != nil {
		f.t.Fatal(err)
	}
	f.engine, f.index = engine, access.New()
	feed := New(Config{Engine: heldEngine{engine, f}, Index: f.index, HubCluster: hub, States: f.list})
	feed.maxBytes = maxBytes
	feed.timing = timing{tick: 10 * time.Millisecond, states: 20 * time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		feed.Run(ctx)
	}()
	f.stop = func() {
		cancel()
		<-done
	}
}

func (f *fleet) close() {
	f.stop()
	if err := f.engine.Close(); err != nil {
		f.t.Error(err)
	}
}

func (f *fleet) list(context.Context) ([]ingest.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	states := []ingest.State{{Name: hub, Hub: true}}
	for _, s := range f.states {
		states = append(states, s)
	}
	return states, nil
}

func (f *fleet) set(s ingest.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[s.Name] = s
}

// report stores a report. It returns the errors of resources.
func (f *fleet) report(cluster string, full bool, report inventory.Sync) []inventory.SyncError {
	f.t.Helper()
	f.mu.Lock()
	if _, known := f.states[cluster]; !known && cluster != hub {
		f.states[cluster] = ingest.State{Name: cluster}
	}
	f.mu.Unlock()
	body, err := json.Marshal(report)
	if err != nil {
		f.t.Fatal(err)
	}
	decoded, response, err := ingest.Decode(strings.NewReader(string(body)), cluster, cluster == hub, full, ingest.Limits{})
	if err != nil {
		f.t.Fatal(err)
	}
	decoded.Time = time.Now()
	if _, err := f.engine.Apply(f.t.Context(), decoded); err != nil {
		f.t.Fatal(err)
	}
	return append(response.AddErrors, response.DeleteErrors...)
}

// ask asks whether a user may list Secrets in the namespace prod of a cluster.
func (f *fleet) ask(cluster, user string) access.Answer {
	a := access.Attributes{Verb: "list", Resource: "secrets", Namespace: "prod"}
	return f.index.CanI(access.Subject{User: user}, a, []string{cluster}, 1)[0]
}

// wants waits for a decision about a user, with a reason that contains a text.
func (f *fleet) wants(cluster, user string, decision access.Decision, reason string) {
	f.t.Helper()
	var got access.Answer
	err := await.Poll(f.t.Context(), func() error {
		if got = f.ask(cluster, user); got.Decision != decision || !strings.Contains(got.Reason, reason) {
			return errors.New("another decision")
		}
		return nil
	})
	if err != nil {
		f.t.Fatalf("decision about %s on %s = %s (%s), want %s (%s)", user, cluster, got.Decision, got.Reason, decision, reason)
	}
}

func quoted(text string) json.RawMessage {
	encoded, _ := json.Marshal(text)
	return encoded
}

func resource(cluster, id, kind, namespace, name string, internal map[string]string) inventory.Resource {
	r := inventory.Resource{UID: cluster + "/" + id, Kind: kind, Properties: map[string]json.RawMessage{
		"apigroup": quoted(rbacv1.GroupName), "name": quoted(name),
	}}
	if namespace != "" {
		r.Properties["namespace"] = quoted(namespace)
	}
	for name, text := range internal {
		r.Properties[name] = quoted(text)
	}
	return r
}

const secretRules = `[{"verbs":["list"],"apiGroups":[""],"resources":["secrets"]}]`

func role(cluster, id, rules string) inventory.Resource {
	return resource(cluster, id, "ClusterRole", "", "reader", map[string]string{inventory.Rules: rules})
}

func binding(cluster, id, user string) inventory.Resource {
	return resource(cluster, id, "RoleBinding", "prod", "readers", map[string]string{
		inventory.RoleRef:  `{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reader"}`,
		inventory.Subjects: fmt.Sprintf(`[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":%q}]`, user),
	})
}

func accessReport(cluster string, report inventory.AccessReport) inventory.Resource {
	text, _ := json.Marshal(report)
	return inventory.Resource{
		UID: cluster + "/" + inventory.AccessReportID, Kind: inventory.AccessReportKind,
		Properties: map[string]json.RawMessage{"name": quoted("access-report"), "apigroup": quoted(inventory.AccessGroup), inventory.Access: quoted(string(text))},
	}
}

func complete(cluster string, objects int) inventory.Resource {
	return accessReport(cluster, inventory.AccessReport{Complete: true, Objects: objects})
}

// grants is a full report in which alice may list Secrets.
func grants(cluster string) inventory.Sync {
	return inventory.Sync{AddResources: []inventory.Resource{role(cluster, "r", secretRules), binding(cluster, "b", "alice"), complete(cluster, 2)}}
}

func TestChanges(t *testing.T) {
	f := newFleet(t, 0)
	f.report("c1", true, grants("c1"))
	f.wants("c1", "alice", access.Allowed, "")
	f.wants("c1", "bob", access.Denied, "")

	f.report("c1", false, inventory.Sync{UpdateResources: []inventory.Resource{binding("c1", "b", "bob")}})
	f.wants("c1", "bob", access.Allowed, "")
	f.wants("c1", "alice", access.Denied, "")

	// The binding is deleted and created again with the same name.
	f.report("c1", false, inventory.Sync{
		AddResources: []inventory.Resource{binding("c1", "b2", "carol")}, DeleteResources: []inventory.Deleted{{UID: "c1/b"}},
	})
	f.wants("c1", "carol", access.Allowed, "")
	f.wants("c1", "bob", access.Denied, "")

	f.report("c1", false, inventory.Sync{
		AddResources: []inventory.Resource{complete("c1", 1)}, DeleteResources: []inventory.Deleted{{UID: "c1/b2"}},
	})
	f.wants("c1", "carol", access.Denied, "")

	f.report("c1", true, grants("c1"))
	f.wants("c1", "alice", access.Allowed, "")
	if err := f.engine.RemoveCluster(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	f.wants("c1", "alice", access.Unknown, "does not report")
}

// TestHeldRead checks that changes of other clusters take effect while a cluster is read, and that no change of it is lost.
func TestHeldRead(t *testing.T) {
	f := newFleet(t, 0)
	f.report(held, true, grants(held))
	f.wants(held, "alice", access.Allowed, "")
	f.hold.Lock()
	release := sync.OnceFunc(f.hold.Unlock)
	defer release()
	begun := f.begun.Load()
	f.report(held, false, inventory.Sync{UpdateResources: []inventory.Resource{binding(held, "b", "bob")}})
	await.True(t, "a read of the cluster has begun", func() bool { return f.begun.Load() > begun })
	f.report(held, false, inventory.Sync{UpdateResources: []inventory.Resource{binding(held, "b", "carol")}})
	f.report("c1", true, grants("c1"))
	f.wants("c1", "alice", access.Allowed, "")
	release()
	f.wants(held, "carol", access.Allowed, "")
	f.wants(held, "bob", access.Denied, "")
}

// TestDue checks that clusters that take little time are read first.
func TestDue(t *testing.T) {
	f, now := New(Config{}), time.Now()
	f.clusters = map[string]*cluster{
		"unchanged": {}, "large": {since: now, took: time.Second}, "small": {since: now, took: time.Millisecond}, "paused": {since: now, next: now.Add(time.Hour)},
	}
	reading := sets.New[string]()
	for _, want := range []string{"small", "large", ""} {
		if got, _ := f.due(reading); got != want {
			t.Errorf("due(%v) = %q, want %q", sets.List(reading), got, want)
		}
		reading.Insert(want)
	}
}

// TestLateRead checks that a cluster is unknown whose change has not been read for maxLag, and that others are known.
func TestLateRead(t *testing.T) {
	for name, test := range map[string]struct {
		since time.Time
		want  access.State
	}{
		"no change":     {time.Time{}, access.State{Known: true}},
		"a new change":  {time.Now(), access.State{Known: true}},
		"an old change": {time.Now().Add(-maxLag), access.State{Reason: behindReason}},
	} {
		if got := (&cluster{since: test.since}).current(); got != test.want {
			t.Errorf("current() after %s = %+v, want %+v", name, got, test.want)
		}
	}
}

// TestUnknown checks which reports make a cluster unknown, and that they do not change what is known about another.
func TestUnknown(t *testing.T) {
	invalid := func(rules string) inventory.Sync {
		return inventory.Sync{AddResources: []inventory.Resource{role("c1", "r", rules), binding("c1", "b", "alice"), complete("c1", 2)}}
	}
	large := grants("c1")
	for i := range maxBytes/inventory.MaxAccessBytes + 1 {
		rules := fmt.Sprintf(`[{"verbs":["%s"],"nonResourceURLs":["/%d"]}]`, strings.Repeat("x", inventory.MaxAccessBytes-60), i)
		large.AddResources = append(large.AddResources, resource("c1", fmt.Sprint("large", i), "ClusterRole", "", fmt.Sprint("large", i), map[string]string{inventory.Rules: rules}))
	}
	for _, test := range []struct {
		name   string
		report inventory.Sync
		reason string
	}{
		{"a public collector", inventory.Sync{AddResources: []inventory.Resource{resource("c1", "r", "ClusterRole", "", "reader", nil), resource("c1", "b", "RoleBinding", "prod", "readers", nil)}}, "does not report"},
		{"content without a statement that it is complete", inventory.Sync{AddResources: grants("c1").AddResources[:2]}, "does not report"},
		{"an incomplete report", inventory.Sync{AddResources: append(grants("c1").AddResources[:2], accessReport("c1", inventory.AccessReport{Reason: "no permission", Objects: 2}))}, "no permission"},
		{"a role without content", inventory.Sync{AddResources: []inventory.Resource{resource("c1", "r", "ClusterRole", "", "reader", nil), binding("c1", "b", "alice"), complete("c1", 2)}}, "content of 1 roles and bindings; the cluster reports 2"},
		{"rules that are not JSON", invalid(`[`), "content of 1"},
		{"rules that are an object", invalid(`{}`), "content of 1"},
		{"rules with more data", invalid(`[] []`), "content of 1"},
		{"rules with a field that could restrict them", invalid(`[{"verbs":["list"],"apiGroups":[""],"resources":["secrets"],"condition":"false"}]`), "content of 1"},
		{"a namespaced role without a namespace", inventory.Sync{AddResources: append(grants("c1").AddResources[:2], resource("c1", "x", "Role", "", "x", map[string]string{inventory.Rules: "[]"}), complete("c1", 3))}, "content of 2"},
		{"more content than a cluster may report", large, "exceed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(t, 0)
			f.report("c2", true, grants("c2"))
			f.report("c1", true, grants("c1"))
			f.wants("c1", "alice", access.Allowed, "")
			f.report("c1", true, test.report)
			f.wants("c1", "alice", access.Unknown, test.reason)
			f.wants("c1", "nobody", access.Unknown, test.reason)
			f.wants("c2", "alice", access.Allowed, "")
			f.wants("c2", "bob", access.Denied, "")
			f.report("c1", true, grants("c1"))
			f.wants("c1", "alice", access.Allowed, "")
			f.wants("c1", "bob", access.Denied, "")
		})
	}
}

func TestOtherAuthorizers(t *testing.T) {
	f := newFleet(t, 0)
	f.report("c1", true, inventory.Sync{AddResources: append(grants("c1").AddResources[:2], accessReport("c1", inventory.AccessReport{Complete: true, OtherAuthorizers: true, Objects: 2}))})
	f.wants("c1", "alice", access.Allowed, "")
	f.wants("c1", "bob", access.Unknown, "another authorizer")
}

// TestHostile checks that a cluster cannot write into the entry of another cluster or of the hub.
func TestHostile(t *testing.T) {
	f := newFleet(t, 0)
	f.report("c1", true, grants("c1"))
	f.report("c2", true, inventory.Sync{AddResources: []inventory.Resource{role("c2", "r", secretRules), complete("c2", 1)}})
	f.wants("c2", "mallory", access.Denied, "")
	// The entry of the hub comes from elsewhere.
	ofHub := access.NewUpdate(true)
	ofHub.Roles[rbac.Key{Kind: rbac.KindClusterRole, Name: "reader"}] = []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"secrets"}}}
	ofHub.Bindings[rbac.Key{Kind: rbac.KindRoleBinding, Namespace: "prod", Name: "readers"}] = access.Binding{
		RoleRef: rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "admin"}},
	}
	f.index.Update(hub, ofHub)
	f.index.SetState(hub, access.State{Known: true})
	refused := f.report("c1", false, inventory.Sync{
		AddResources: []inventory.Resource{
			binding("c2", "b", "mallory"), complete("c2", 2), binding(hub, "b", "mallory"), role("c2", "r", "[]"), complete(hub, 1),
		},
		DeleteResources: []inventory.Deleted{{UID: "c2/r"}},
	})
	if len(refused) != 6 {
		t.Errorf("refused resources = %v, want all 6", refused)
	}
	// A report of the hub itself is stored for searches, and does not reach the index.
	f.report(hub, true, inventory.Sync{AddResources: []inventory.Resource{role(hub, "r", secretRules), binding(hub, "b", "mallory"), complete(hub, 2)}})
	// The next change shows that the feed has read all of the above.
	f.report("c1", false, inventory.Sync{UpdateResources: []inventory.Resource{binding("c1", "b", "bob")}})
	f.wants("c1", "bob", access.Allowed, "")
	f.wants("c2", "mallory", access.Denied, "")
	for user, want := range map[string]access.Decision{"mallory": access.Denied, "admin": access.Allowed} {
		if got := f.ask(hub, user); got.Decision != want {
			t.Errorf("decision about %s on the hub after a report of the hub = %s (%s), want %s", user, got.Decision, got.Reason, want)
		}
	}
}

func TestLiveness(t *testing.T) {
	f := newFleet(t, 0)
	f.report("c1", true, grants("c1"))
	f.wants("c1", "alice", access.Allowed, "")
	for _, test := range []struct {
		state  ingest.State
		reason string
	}{
		{ingest.State{Name: "c1", Silent: true, LastReport: time.Unix(0, 0)}, "since 1970-01-01T00:00:00Z"},
		{ingest.State{Name: "c1", Incomplete: true}, "must report all"},
		{ingest.State{Name: "c1", Removed: true}, "no longer exists"},
		{ingest.State{Name: "c1", Absent: true}, "never reported"},
	} {
		f.set(test.state)
		f.wants("c1", "alice", access.Unknown, test.reason)
	}
	f.set(ingest.State{Name: "c1"})
	f.wants("c1", "alice", access.Allowed, "")
	f.mu.Lock()
	delete(f.states, "c1")
	f.mu.Unlock()
	f.wants("c1", "alice", access.Unknown, "has not reported its roles")
}

func TestRestart(t *testing.T) {
	f := newFleet(t, 0)
	f.report("c1", true, grants("c1"))
	f.wants("c1", "alice", access.Allowed, "")
	f.close()
	f.open()
	f.wants("c1", "alice", access.Allowed, "")
	f.wants("c1", "bob", access.Denied, "")
}

// TestExpired checks that the feed reads everything again if the engine no longer has the changes.
func TestExpired(t *testing.T) {
	f := newFleet(t, 4)
	f.report("c1", true, grants("c1"))
	f.wants("c1", "alice", access.Allowed, "")
	for round := range 3 {
		user := fmt.Sprint("user", round)
		report := inventory.Sync{UpdateResources: []inventory.Resource{binding("c1", "b", user)}}
		for i := range 8 {
			// Other changes fill the log.
			report.AddResources = append(report.AddResources, inventory.Resource{
				UID: fmt.Sprint("c1/pod", i), Kind: "Pod", Properties: map[string]json.RawMessage{"name": quoted(user)},
			})
		}
		f.report("c1", false, report)
		f.wants("c1", user, access.Allowed, "")
		f.wants("c1", "alice", access.Denied, "")
	}
	if _, _, err := search.WholeChanges(t.Context(), f.engine, 1, 10); err == nil {
		t.Fatal("the engine still has all changes, want search.ErrExpired")
	}
}
