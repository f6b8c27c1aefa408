package graphql_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/graphql"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// userHeader is the header that names the caller in tests.
const userHeader = "X-Test-User"

// scopes are scopes that tests grant and revoke.
type scopes struct {
	lock        sync.Mutex
	scopes      map[string]visibility.Scope
	subscribers map[chan struct{}]bool
}

func newScopes(of map[string]visibility.Scope) *scopes {
	return &scopes{scopes: of, subscribers: map[chan struct{}]bool{}}
}

func (s *scopes) Scope(_ context.Context, caller user.Info) (visibility.Scope, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.scopes[caller.GetName()], nil
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
	}
}

func (s *scopes) set(name string, scope visibility.Scope) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.scopes[name] = scope
	for changed := range s.subscribers {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// seesCluster returns the scope of a user with permission to view one managed cluster.
func seesCluster(t testing.TB, name, cluster string) visibility.Scope {
	t.Helper()
	return visibilitytest.Scope(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: see, namespace: `+cluster+`}
rules:
- {apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: see, namespace: `+cluster+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: see}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: `+name+`}]
`, &user.DefaultInfo{Name: name})
}

type server struct {
	t      testing.TB
	url    string
	engine search.Engine
	scopes *scopes
}

// serve starts the API for an admin, and for jane, who has permission to view the cluster east.
func serve(t testing.TB, change ...func(*graphql.Config)) *server {
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
	granted := newScopes(map[string]visibility.Scope{
		"admin": visibility.Everything(), "jane": seesCluster(t, "jane", "east"),
	})
	config := graphql.Config{Engine: engine, Scopes: granted, Now: func() time.Time { return now }}
	for _, c := range change {
		c(&config)
	}
	handler, err := graphql.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	started := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		caller, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		if name := r.Header.Get(userHeader); name != "" {
			caller = request.WithUser(caller, &user.DefaultInfo{Name: name})
			caller = request.WithRequestInfo(caller, &request.RequestInfo{
				IsResourceRequest: true, Verb: "list", APIGroup: "search.open-cluster-management.io", APIVersion: "v1alpha1", Resource: "graphql",
			})
		}
		handler.ServeHTTP(w, r.WithContext(caller))
	}))
	t.Cleanup(func() {
		stop()
		started.Close()
		serving.Wait()
	})
	return &server{t: t, url: started.URL, engine: engine, scopes: granted}
}

// report applies a report. Resources are JSON objects that contain their UID as "uid".
func (s *server) report(cluster string, edges []search.Edge, resources ...string) {
	s.t.Helper()
	report := &search.Report{Cluster: cluster, Hub: cluster == "local-cluster", Time: now, AddEdges: edges}
	for _, text := range resources {
		var identified struct{ UID string }
		if err := json.Unmarshal([]byte(text), &identified); err != nil {
			s.t.Fatal(err)
		}
		properties, err := query.DecodeProperties([]byte(text))
		if err != nil {
			s.t.Fatal(err)
		}
		var kept query.Properties
		for _, p := range properties {
			if p.Name != "uid" {
				kept = append(kept, p)
			}
		}
		report.Put = append(report.Put, search.Resource{UID: identified.UID, Properties: kept})
	}
	if _, err := s.engine.Apply(s.t.Context(), report); err != nil {
		s.t.Fatal(err)
	}
}

// post sends a request and returns its status and body.
func (s *server) post(caller, contentType string, body []byte) (int, string) {
	s.t.Helper()
	asked, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	asked.Header.Set("Content-Type", contentType)
	return s.do(caller, asked)
}

func (s *server) do(caller string, asked *http.Request) (int, string) {
	s.t.Helper()
	asked.Header.Set(userHeader, caller)
	response, err := http.DefaultClient.Do(asked)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// ask posts a query and returns the response.
func (s *server) ask(caller, text, variables string) string {
	s.t.Helper()
	code, answer := s.post(caller, "application/json", operation(s.t, text, variables))
	if code != http.StatusOK {
		s.t.Fatalf("status = %d, want 200: %s", code, answer)
	}
	return answer
}

func operation(t testing.TB, text, variables string) []byte {
	t.Helper()
	asked := map[string]any{"query": text}
	if variables != "" {
		asked["variables"] = json.RawMessage(variables)
	}
	body, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// same compares JSON.
func same(t testing.TB, what, got, want string) {
	t.Helper()
	var gotten, wanted any
	if err := json.Unmarshal([]byte(got), &gotten); err != nil {
		t.Fatalf("%s: response is not JSON: %v in %s", what, err, got)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatalf("%s: wanted text is not JSON: %v in %s", what, err, want)
	}
	if !reflect.DeepEqual(gotten, wanted) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}
