package watch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
	"open-cluster-management.io/hub-apiserver/test/await"
)

var jane = &user.DefaultInfo{Name: "jane"}

// scopes are scopes that tests grant and revoke.
type scopes struct {
	lock        sync.Mutex
	scope       visibility.Scope
	err         error
	subscribers map[chan struct{}]bool
	// asked is closed after the first request for a scope.
	asked    chan struct{}
	askedYet bool
	// stopped receives a value when a subscription ends.
	stopped chan struct{}
}

func newScopes(scope visibility.Scope) *scopes {
	return &scopes{scope: scope, subscribers: map[chan struct{}]bool{}, asked: make(chan struct{}), stopped: make(chan struct{}, 16)}
}

func (s *scopes) Scope(context.Context, user.Info) (visibility.Scope, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.askedYet {
		s.askedYet = true
		close(s.asked)
	}
	return s.scope, s.err
}

func (s *scopes) Subscribe(user.Info) (<-chan struct{}, func()) {
	s.lock.Lock()
	defer s.lock.Unlock()
	changed := make(chan struct{}, 1)
	s.subscribers[changed] = true
	return changed, func() {
		s.lock.Lock()
		defer s.lock.Unlock()
		delete(s.subscribers, changed)
		s.stopped <- struct{}{}
	}
}

func (s *scopes) set(scope visibility.Scope, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.scope, s.err = scope, err
	for changed := range s.subscribers {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// seesClusters returns the scope of a caller with permission to view managed clusters.
func seesClusters(t testing.TB, names ...string) visibility.Scope {
	t.Helper()
	policy := `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: see}
rules:
- {apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}
`
	for _, name := range names {
		policy += `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: see, namespace: ` + name + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: see}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`
	}
	return visibilitytest.Scope(t, policy, jane)
}

func open(t testing.TB) search.Engine {
	t.Helper()
	engine, err := embedded.Open(t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}

// put reports resources of a cluster as "name {properties}". A resource without properties is
// deleted.
func put(t testing.TB, engine search.Engine, cluster string, resources ...string) uint64 {
	t.Helper()
	report := &search.Report{Cluster: cluster, Time: time.Now()}
	for _, resource := range resources {
		name, text, found := strings.Cut(resource, " ")
		if !found {
			report.Delete = append(report.Delete, cluster+"/"+name)
			continue
		}
		given := map[string]any{"name": name, "kind": "Pod", "kind_plural": "pods", "namespace": "shop"}
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		properties, err := query.DecodeProperties(data)
		if err != nil {
			t.Fatal(err)
		}
		report.Put = append(report.Put, search.Resource{UID: cluster + "/" + name, Properties: properties})
	}
	applied, err := engine.Apply(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	return applied.Version
}

func looksFor(t testing.TB, text string) query.Query {
	t.Helper()
	q, err := query.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

type watching struct {
	*watch.Watcher
	t testing.TB
}

func start(t testing.TB, config watch.Config) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{Watcher: watch.Watch(ctx, config), t: t}
	t.Cleanup(func() {
		cancel()
		for range w.Events() {
			continue
		}
	})
	return w
}

func (w *watching) next() watch.Event {
	w.t.Helper()
	select {
	case event, ok := <-w.Events():
		if !ok {
			w.t.Fatalf("the watch ended with %v, want an event", w.Err())
		}
		return event
	case <-time.After(await.Patience):
		w.t.Fatal("timeout waiting for an event")
	}
	return watch.Event{}
}

// expect waits for an event and returns it.
func (w *watching) expect(eventType watch.EventType, uid string) watch.Event {
	w.t.Helper()
	event := w.next()
	if event.Type != eventType || event.Item.UID != uid {
		w.t.Fatalf("event = %s of %q %s, want %s of %q", event.Type, event.Item.UID, event.Item.JSON(), eventType, uid)
	}
	return event
}

// begun waits until the initial events are complete.
func (w *watching) begun() watch.Event {
	w.t.Helper()
	for {
		if event := w.next(); event.InitialDone {
			return event
		}
	}
}

// end waits until the watch ends and returns its error.
func (w *watching) end() error {
	w.t.Helper()
	deadline := time.After(await.Patience)
	for {
		select {
		case _, ok := <-w.Events():
			if !ok {
				return w.Err()
			}
		case <-deadline:
			w.t.Fatal("timeout waiting for the end of the watch")
		}
	}
}

func TestInitial(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `web {"status":"Running"}`, `db {"status":"Failed"}`)
	version := put(t, engine, "west", `web {"status":"Running"}`)
	w := start(t, watch.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "status:Running"), Initial: true,
	})
	event := w.expect(watch.Added, "east/web")
	var properties map[string]string
	if err := json.Unmarshal(event.Item.JSON(), &properties); err != nil || properties["status"] != "Running" {
		t.Errorf("properties = %s (%v), want status Running", event.Item.JSON(), err)
	}
	if done := w.next(); done.Type != watch.Bookmark || !done.InitialDone || done.Version != version {
		t.Errorf("event = %+v, want the bookmark of version %d", done, version)
	}
}

func TestChanges(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `web {"status":"Pending"}`, `db {"status":"Running"}`)
	for _, initial := range []bool{true, false} {
		name := map[bool]string{true: "after initial matches", false: "from the current version"}[initial]
		t.Run(name, func(t *testing.T) {
			put(t, engine, "east", `web {"status":"Pending"}`, `db {"status":"Running"}`)
			version, err := engine.Version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			config := watch.Config{
				Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane,
				Query: looksFor(t, "status:Running"), Initial: initial,
			}
			if !initial {
				config.From = version
			}
			w := start(t, config)
			if initial {
				w.begun()
			}
			put(t, engine, "west", `web {"status":"Running"}`)
			put(t, engine, "east", `web {"status":"Failed"}`)
			at := put(t, engine, "east", `web {"status":"Running","restarts":1}`)
			if event := w.expect(watch.Added, "east/web"); event.Version != at || event.Item.Version != at {
				t.Errorf("event version = %d, item version = %d, want %d", event.Version, event.Item.Version, at)
			}
			put(t, engine, "east", `web {"status":"Running","restarts":2}`)
			event := w.expect(watch.Modified, "east/web")
			if got := search.Text(event.Before, "restarts"); got != "1" || !strings.Contains(string(event.Item.JSON()), `"restarts":2`) {
				t.Errorf("restarts before = %q, item after = %s, want 1 before and 2 after", got, event.Item.JSON())
			}
			put(t, engine, "east", `web {"status":"Failed","reason":"secret"}`)
			event = w.expect(watch.Deleted, "east/web")
			if got := string(event.Item.JSON()); !strings.Contains(got, `"restarts":2`) || strings.Contains(got, "secret") {
				t.Errorf("properties of the deleted item = %s, want the last visible properties", got)
			}
			put(t, engine, "east", "db")
			w.expect(watch.Deleted, "east/db")
			put(t, engine, "west", "web")
		})
	}
}

func TestScopes(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `web {"status":"Running","podIP":"10.1.2.3"}`)
	put(t, engine, "west", `db {"status":"Running"}`)
	east, west := seesClusters(t, "east"), seesClusters(t, "west")
	granted := newScopes(east)
	w := start(t, watch.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})
	w.expect(watch.Added, "east/web")
	w.begun()

	granted.set(west, nil)
	event := w.expect(watch.Deleted, "east/web")
	var properties map[string]string
	if err := json.Unmarshal(event.Item.JSON(), &properties); err != nil {
		t.Fatal(err)
	}
	if len(properties) != 3 || properties["name"] != "web" || properties["kind"] != "Pod" || properties["namespace"] != "shop" || event.Before != nil {
		t.Errorf("revoked item = %s, before = %v, want only kind, namespace and name", event.Item.JSON(), event.Before)
	}
	w.expect(watch.Added, "west/db")

	// No event is sent for a revoked item, so the next event is for another item.
	put(t, engine, "east", `web {"status":"Failed"}`)
	put(t, engine, "west", `db {"status":"Failed"}`)
	w.expect(watch.Modified, "west/db")

	granted.set(visibility.Scope{}, nil)
	w.expect(watch.Deleted, "west/db")
	granted.set(east, nil)
	if event := w.expect(watch.Added, "east/web"); !strings.Contains(string(event.Item.JSON()), "Failed") {
		t.Errorf("granted item = %s, want status Failed", event.Item.JSON())
	}
}

func TestRevokedWhileWaiting(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `web {"status":"Running"}`, `db {"status":"Running"}`)
	put(t, engine, "west", `app {"status":"Running"}`)
	granted := newScopes(seesClusters(t, "east", "west"))
	w := start(t, watch.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})
	granted.set(seesClusters(t, "west"), nil)
	for {
		event := w.next()
		if event.Item.Cluster == "east" {
			t.Errorf("%s event for %s after the revocation, want none", event.Type, event.Item.UID)
		}
		if event.InitialDone {
			return
		}
	}
}

func TestResume(t *testing.T) {
	engine := open(t)
	from := put(t, engine, "east", `a {"status":"Running"}`, `b {"status":"Running"}`, `c {"status":"Failed"}`)
	put(t, engine, "east", `a {"status":"Running","restarts":1}`)
	put(t, engine, "east", "b")
	put(t, engine, "east", `c {"status":"Running"}`, `d {"status":"Failed"}`)
	put(t, engine, "east", `a {"status":"Failed"}`)
	w := start(t, watch.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "status:Running"), From: from,
	})
	w.expect(watch.Modified, "east/a")
	w.expect(watch.Deleted, "east/b")
	w.expect(watch.Added, "east/c")
	w.expect(watch.Deleted, "east/a")
	put(t, engine, "east", "c", "d")
	w.expect(watch.Deleted, "east/c")
}

func TestRevokedAfterResume(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `a {"status":"Running"}`)
	from := put(t, engine, "east", `b {"status":"Running"}`)
	granted := newScopes(seesClusters(t, "east"))
	w := start(t, watch.Config{Engine: engine, Scopes: granted, User: jane, From: from})
	put(t, engine, "east", `b {"status":"Failed"}`)
	w.expect(watch.Modified, "east/b")
	granted.set(visibility.Scope{}, nil)
	gone := map[string]bool{w.next().Item.UID: true, w.next().Item.UID: true}
	if !gone["east/a"] || !gone["east/b"] {
		t.Errorf("revoked items = %v, want a and b", gone)
	}
}

func TestAges(t *testing.T) {
	engine := open(t)
	created := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var lock sync.Mutex
	now := created.Add(10 * time.Minute)
	put(t, engine, "east", `web {"created":"2026-01-01T12:00:00Z"}`)
	w := start(t, watch.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "created:hour"), Initial: true,
		Now: func() time.Time {
			lock.Lock()
			defer lock.Unlock()
			return now
		},
	})
	w.expect(watch.Added, "east/web")
	w.begun()
	lock.Lock()
	now = created.Add(2 * time.Hour)
	lock.Unlock()
	put(t, engine, "east", `web {"created":"2026-01-01T12:00:00Z","status":"Old"}`)
	w.expect(watch.Deleted, "east/web")
}

func TestFilter(t *testing.T) {
	engine := open(t)
	w := start(t, watch.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Initial: true,
		Filter: func(item *search.Item) bool { return strings.Contains(string(item.JSON()), "keep") },
	})
	w.begun()
	put(t, engine, "east", `a {"status":"drop"}`, `b {"status":"keep"}`)
	w.expect(watch.Added, "east/b")
	put(t, engine, "east", `b {"status":"drop"}`)
	w.expect(watch.Deleted, "east/b")
}

func TestBookmarks(t *testing.T) {
	engine := open(t)
	w := start(t, watch.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "kind:Node"),
		Initial: true, BookmarkEvery: 10 * time.Millisecond,
	})
	w.begun()
	version := put(t, engine, "east", `web {}`)
	for event := w.next(); event.Version != version; event = w.next() {
		if event.Type != watch.Bookmark || event.Version > version {
			t.Fatalf("event = %+v, want bookmarks up to version %d", event, version)
		}
	}
}

func TestEnds(t *testing.T) {
	t.Run("unknown version", func(t *testing.T) {
		engine := open(t)
		put(t, engine, "east", `web {}`)
		w := start(t, watch.Config{Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, From: 1 << 40})
		if err := w.end(); !errors.Is(err, search.ErrExpired) {
			t.Errorf("end() = %v, want %v", err, search.ErrExpired)
		}
	})
	t.Run("slow receiver", func(t *testing.T) {
		engine := open(t)
		granted := newScopes(seesClusters(t, "east"))
		put(t, engine, "east", `a {}`, `b {}`, `c {}`)
		w := start(t, watch.Config{
			Engine: engine, Scopes: granted, User: jane, Initial: true, Patience: 10 * time.Millisecond,
		})
		select {
		case <-granted.stopped:
		case <-time.After(await.Patience):
			t.Fatal("timeout waiting for the end of the watch")
		}
		if err := w.end(); !errors.Is(err, watch.ErrTooSlow) {
			t.Errorf("end() = %v, want %v", err, watch.ErrTooSlow)
		}
	})
	t.Run("scope becomes unknown", func(t *testing.T) {
		engine := open(t)
		granted := newScopes(seesClusters(t, "east"))
		w := start(t, watch.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})
		w.begun()
		broken := errors.New("the authorizer is unavailable")
		granted.set(visibility.Scope{}, broken)
		put(t, engine, "east", `web {}`)
		if event, ok := <-w.Events(); ok {
			t.Errorf("event without a scope = %s of %s, want none", event.Type, event.Item.UID)
		}
		if err := w.Err(); !errors.Is(err, broken) {
			t.Errorf("Err() = %v, want %v", err, broken)
		}
	})
	t.Run("context ends", func(t *testing.T) {
		engine := open(t)
		granted := newScopes(seesClusters(t, "east"))
		ctx, cancel := context.WithCancel(t.Context())
		w := &watching{t: t, Watcher: watch.Watch(ctx, watch.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})}
		w.begun()
		cancel()
		if err := w.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("end() = %v, want %v", err, context.Canceled)
		}
		select {
		case <-granted.stopped:
		case <-time.After(await.Patience):
			t.Error("the subscription to the scope has not ended, want it to end with the watch")
		}
	})
}

// paged is an engine that returns one item per page, and no second page until the first item was received.
type paged struct {
	search.Engine
	received chan struct{}
}

func (p *paged) Search(ctx context.Context, scope visibility.Scope, request *search.Request) (*search.Result, error) {
	if request.Continue != "" {
		select {
		case <-p.received:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	limited := *request
	limited.Limit = 1
	return p.Engine.Search(ctx, scope, &limited)
}

// TestEventsAreSentAsTheyCome checks that a watch sends its first event before it has listed the other resources.
func TestEventsAreSentAsTheyCome(t *testing.T) {
	engine := &paged{Engine: open(t), received: make(chan struct{})}
	put(t, engine, "east", `a {}`, `b {}`, `c {}`)
	w := start(t, watch.Config{Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Initial: true})
	got := []string{w.next().Item.UID}
	close(engine.received)
	got = append(got, w.next().Item.UID, w.next().Item.UID)
	if slices.Sort(got); !slices.Equal(got, []string{"east/a", "east/b", "east/c"}) {
		t.Errorf("initial events = %v, want a, b and c", got)
	}
}

// changing is an engine in which a resource changes after it was listed.
type changing struct {
	search.Engine
	change func()
}

func (c *changing) Search(ctx context.Context, scope visibility.Scope, request *search.Request) (*search.Result, error) {
	result, err := c.Engine.Search(ctx, scope, request)
	c.change()
	return result, err
}

// TestChangesAfterTheListing checks the initial events of resources that change before they are sent.
func TestChangesAfterTheListing(t *testing.T) {
	engine := &changing{Engine: open(t)}
	put(t, engine, "east", `keeps {"status":"Running"}`, `matches {"status":"Running","restarts":1}`, `ends {"status":"Running"}`, `goes {"status":"Running"}`)
	engine.change = sync.OnceFunc(func() {
		put(t, engine, "east", `matches {"status":"Running","restarts":2}`, `ends {"status":"Failed"}`, "goes", `comes {"status":"Running"}`)
	})
	w := start(t, watch.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "status:Running"), Initial: true,
	})
	initial := map[string]string{}
	for event := w.next(); !event.InitialDone; event = w.next() {
		if event.Type != watch.Added {
			t.Errorf("event of %s = %s, want %s", event.Item.UID, event.Type, watch.Added)
		}
		initial[event.Item.UID] = string(event.Item.JSON())
	}
	if len(initial) != 2 || initial["east/keeps"] == "" || !strings.Contains(initial["east/matches"], `"restarts":2`) {
		t.Errorf("initial events = %v, want those of keeps, and of the current state of matches", initial)
	}
	w.expect(watch.Added, "east/comes")
	put(t, engine, "east", "keeps")
	w.expect(watch.Deleted, "east/keeps")
}

// TestLargeReports checks that a watch sends all changes of a report that it reads in parts.
func TestLargeReports(t *testing.T) {
	engine := open(t)
	w := start(t, watch.Config{Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Initial: true})
	w.begun()
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf(`%d {"text":%q}`, i, strings.Repeat("x", i)))
	}
	put(t, engine, "east", names...)
	got := map[string]bool{}
	for range names {
		event := w.next()
		if event.Type != watch.Added || got[event.Item.UID] {
			t.Fatalf("event %d = %s of %q, want an item that was not added before", len(got), event.Type, event.Item.UID)
		}
		got[event.Item.UID] = true
	}
}
