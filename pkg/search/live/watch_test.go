package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/live"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const patience = 30 * time.Second

var jane = &user.DefaultInfo{Name: "jane"}

// scopes is where the tests grant and revoke.
type scopes struct {
	lock        sync.Mutex
	scope       visibility.Scope
	err         error
	subscribers map[chan struct{}]bool
	// asked is closed once a scope was asked for.
	asked    chan struct{}
	askedYet bool
	// stopped receives when a subscription ends.
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

// seesClusters is the scope of a caller who sees the named managed clusters.
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

// put reports resources of a cluster as "name {properties}"; without properties it is gone.
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

type watch struct {
	*live.Watcher
	t testing.TB
}

func start(t testing.TB, config live.Config) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{Watcher: live.Watch(ctx, config), t: t}
	t.Cleanup(func() {
		cancel()
		for range w.Events() {
			continue
		}
	})
	return w
}

func (w *watch) next() live.Event {
	w.t.Helper()
	select {
	case event, ok := <-w.Events():
		if !ok {
			w.t.Fatalf("the watch has ended: %v", w.Err())
		}
		return event
	case <-time.After(patience):
		w.t.Fatal("no event")
	}
	return live.Event{}
}

// expect waits for an event and returns it.
func (w *watch) expect(eventType live.EventType, uid string) live.Event {
	w.t.Helper()
	event := w.next()
	if event.Type != eventType || event.Item.UID != uid {
		w.t.Fatalf("got %s of %q %s, want %s of %q", event.Type, event.Item.UID, event.Item.JSON(), eventType, uid)
	}
	return event
}

// begun waits until all that matched at first is known.
func (w *watch) begun() live.Event {
	w.t.Helper()
	for {
		if event := w.next(); event.InitialDone {
			return event
		}
	}
}

// end waits until the watch ends, and returns why.
func (w *watch) end() error {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-w.Events():
			if !ok {
				return w.Err()
			}
		case <-deadline:
			w.t.Fatal("the watch does not end")
		}
	}
}

func TestInitial(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `web {"status":"Running"}`, `db {"status":"Failed"}`)
	version := put(t, engine, "west", `web {"status":"Running"}`)
	w := start(t, live.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "status:Running"), Initial: true,
	})
	event := w.expect(live.Added, "east/web")
	var properties map[string]string
	if err := json.Unmarshal(event.Item.JSON(), &properties); err != nil || properties["status"] != "Running" {
		t.Errorf("properties %s: %v", event.Item.JSON(), err)
	}
	if done := w.next(); done.Type != live.Bookmark || !done.InitialDone || done.Version != version {
		t.Errorf("got %+v, want the bookmark of version %d", done, version)
	}
}

func TestChanges(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `web {"status":"Pending"}`, `db {"status":"Running"}`)
	for _, initial := range []bool{true, false} {
		name := map[bool]string{true: "after all that matches", false: "from now on"}[initial]
		t.Run(name, func(t *testing.T) {
			put(t, engine, "east", `web {"status":"Pending"}`, `db {"status":"Running"}`)
			version, err := engine.Version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			config := live.Config{
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
			if event := w.expect(live.Added, "east/web"); event.Version != at || event.Item.Version != at {
				t.Errorf("version %d of an item of version %d, want %d", event.Version, event.Item.Version, at)
			}
			put(t, engine, "east", `web {"status":"Running","restarts":2}`)
			event := w.expect(live.Modified, "east/web")
			if got := search.Text(event.Before, "restarts"); got != "1" || !strings.Contains(string(event.Item.JSON()), `"restarts":2`) {
				t.Errorf("from %q to %s", got, event.Item.JSON())
			}
			put(t, engine, "east", `web {"status":"Failed","reason":"secret"}`)
			event = w.expect(live.Deleted, "east/web")
			if got := string(event.Item.JSON()); !strings.Contains(got, `"restarts":2`) || strings.Contains(got, "secret") {
				t.Errorf("an item that does not match any more has the properties %s", got)
			}
			put(t, engine, "east", "db")
			w.expect(live.Deleted, "east/db")
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
	w := start(t, live.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})
	w.expect(live.Added, "east/web")
	w.begun()

	granted.set(west, nil)
	event := w.expect(live.Deleted, "east/web")
	var told map[string]string
	if err := json.Unmarshal(event.Item.JSON(), &told); err != nil {
		t.Fatal(err)
	}
	if len(told) != 3 || told["name"] != "web" || told["kind"] != "Pod" || told["namespace"] != "shop" || event.Before != nil {
		t.Errorf("a revoked item is told as %s, before %v", event.Item.JSON(), event.Before)
	}
	w.expect(live.Added, "west/db")

	// What has been revoked is not told of; the next event is of something else.
	put(t, engine, "east", `web {"status":"Failed"}`)
	put(t, engine, "west", `db {"status":"Failed"}`)
	w.expect(live.Modified, "west/db")

	granted.set(visibility.Scope{}, nil)
	w.expect(live.Deleted, "west/db")
	granted.set(east, nil)
	if event := w.expect(live.Added, "east/web"); !strings.Contains(string(event.Item.JSON()), "Failed") {
		t.Errorf("a granted item is told as %s", event.Item.JSON())
	}
}

func TestRevokedWhileWaiting(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `web {"status":"Running"}`, `db {"status":"Running"}`)
	put(t, engine, "west", `app {"status":"Running"}`)
	granted := newScopes(seesClusters(t, "east", "west"))
	w := start(t, live.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})
	granted.set(seesClusters(t, "west"), nil)
	for {
		event := w.next()
		if event.Item.Cluster == "east" {
			t.Errorf("%s of %s after it was revoked", event.Type, event.Item.UID)
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
	w := start(t, live.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "status:Running"), From: from,
	})
	w.expect(live.Modified, "east/a")
	w.expect(live.Deleted, "east/b")
	w.expect(live.Added, "east/c")
	w.expect(live.Deleted, "east/a")
	put(t, engine, "east", "c", "d")
	w.expect(live.Deleted, "east/c")
}

func TestRevokedAfterResume(t *testing.T) {
	engine := open(t)
	put(t, engine, "east", `a {"status":"Running"}`)
	from := put(t, engine, "east", `b {"status":"Running"}`)
	granted := newScopes(seesClusters(t, "east"))
	w := start(t, live.Config{Engine: engine, Scopes: granted, User: jane, From: from})
	put(t, engine, "east", `b {"status":"Failed"}`)
	w.expect(live.Modified, "east/b")
	granted.set(visibility.Scope{}, nil)
	gone := map[string]bool{w.next().Item.UID: true, w.next().Item.UID: true}
	if !gone["east/a"] || !gone["east/b"] {
		t.Errorf("revoked %v, want a and b", gone)
	}
}

func TestAges(t *testing.T) {
	engine := open(t)
	created := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var lock sync.Mutex
	now := created.Add(10 * time.Minute)
	put(t, engine, "east", `web {"created":"2026-01-01T12:00:00Z"}`)
	w := start(t, live.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "created:hour"), Initial: true,
		Now: func() time.Time {
			lock.Lock()
			defer lock.Unlock()
			return now
		},
	})
	w.expect(live.Added, "east/web")
	w.begun()
	lock.Lock()
	now = created.Add(2 * time.Hour)
	lock.Unlock()
	put(t, engine, "east", `web {"created":"2026-01-01T12:00:00Z","status":"Old"}`)
	w.expect(live.Deleted, "east/web")
}

func TestFilter(t *testing.T) {
	engine := open(t)
	w := start(t, live.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Initial: true,
		Filter: func(item *search.Item) bool { return strings.Contains(string(item.JSON()), "keep") },
	})
	w.begun()
	put(t, engine, "east", `a {"status":"drop"}`, `b {"status":"keep"}`)
	w.expect(live.Added, "east/b")
	put(t, engine, "east", `b {"status":"drop"}`)
	w.expect(live.Deleted, "east/b")
}

func TestBookmarks(t *testing.T) {
	engine := open(t)
	w := start(t, live.Config{
		Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, Query: looksFor(t, "kind:Node"),
		Initial: true, BookmarkEvery: 10 * time.Millisecond,
	})
	w.begun()
	version := put(t, engine, "east", `web {}`)
	for event := w.next(); event.Version != version; event = w.next() {
		if event.Type != live.Bookmark || event.Version > version {
			t.Fatalf("got %+v, want bookmarks up to version %d", event, version)
		}
	}
}

func TestEnds(t *testing.T) {
	t.Run("a version that is not known", func(t *testing.T) {
		engine := open(t)
		put(t, engine, "east", `web {}`)
		w := start(t, live.Config{Engine: engine, Scopes: newScopes(seesClusters(t, "east")), User: jane, From: 1 << 40})
		if err := w.end(); !errors.Is(err, search.ErrExpired) {
			t.Errorf("got %v, want %v", err, search.ErrExpired)
		}
	})
	t.Run("a receiver that is too slow", func(t *testing.T) {
		engine := open(t)
		granted := newScopes(seesClusters(t, "east"))
		put(t, engine, "east", `a {}`, `b {}`, `c {}`)
		w := start(t, live.Config{
			Engine: engine, Scopes: granted, User: jane, Initial: true, Buffer: 1, Patience: 10 * time.Millisecond,
		})
		select {
		case <-granted.stopped:
		case <-time.After(patience):
			t.Fatal("the watch waits for its receiver")
		}
		if err := w.end(); !errors.Is(err, live.ErrTooSlow) {
			t.Errorf("got %v, want %v", err, live.ErrTooSlow)
		}
	})
	t.Run("a scope that is not known any more", func(t *testing.T) {
		engine := open(t)
		granted := newScopes(seesClusters(t, "east"))
		w := start(t, live.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})
		w.begun()
		broken := errors.New("the authorizer is away")
		granted.set(visibility.Scope{}, broken)
		put(t, engine, "east", `web {}`)
		if event, ok := <-w.Events(); ok {
			t.Errorf("got %s of %s without a scope", event.Type, event.Item.UID)
		}
		if err := w.Err(); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
	})
	t.Run("the context", func(t *testing.T) {
		engine := open(t)
		granted := newScopes(seesClusters(t, "east"))
		ctx, cancel := context.WithCancel(t.Context())
		w := &watch{t: t, Watcher: live.Watch(ctx, live.Config{Engine: engine, Scopes: granted, User: jane, Initial: true})}
		w.begun()
		cancel()
		if err := w.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		select {
		case <-granted.stopped:
		case <-time.After(patience):
			t.Error("the scope is still subscribed to")
		}
	})
}
