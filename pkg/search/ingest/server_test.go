package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	hubCluster = "local-cluster"
)

// fleet contains the ManagedClusters of a test.
type fleet struct {
	lock  sync.Mutex
	names sets.Set[string]
	// unlisted clusters exist, but are not in the list.
	unlisted sets.Set[string]
	err      error
}

func (f *fleet) exists(name string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.names.Has(name)
}

func (f *fleet) list() ([]string, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return sets.List(f.names), f.err
}

func (f *fleet) set(names ...string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.names = sets.New(names...)
}

func (f *fleet) deleted(_ context.Context, name string) (bool, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return !f.names.Has(name) && !f.unlisted.Has(name), f.err
}

// unlist removes clusters that exist from the list.
func (f *fleet) unlist(names ...string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.names = f.names.Difference(sets.New(names...))
	f.unlisted = sets.New(names...)
}

func (f *fleet) fail(err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.err = err
}

// server serves reports like an API server, at /<cluster>.
type server struct {
	*httptest.Server
	handler *Handler
	engine  search.Engine
	fleet   *fleet
}

// serve starts a server with the clusters c1 to c30. A Config without an engine gets one.
func serve(t testing.TB, config Config) *server {
	t.Helper()
	return serveBy(t, config, (*httptest.Server).Start)
}

// serveBy is like serve, with a function that starts the server.
func serveBy(t testing.TB, config Config, start func(*httptest.Server)) *server {
	t.Helper()
	f := &fleet{names: sets.New[string]()}
	for i := range 30 {
		f.names.Insert(fmt.Sprintf("c%d", i+1))
	}
	if config.Engine == nil {
		config.Engine = openEngine(t)
	}
	config.HubCluster, config.ClusterExists, config.Clusters, config.Version = hubCluster, f.exists, f.list, "v1"
	config.ClusterDeleted = f.deleted
	handler, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{handler: handler, engine: config.Engine, fleet: f}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.Sync(strings.Trim(r.URL.Path, "/")).ServeHTTP(w, r)
	}))
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

// answer is a response to a collector.
type answer struct {
	code   int
	header http.Header
	body   string
}

// status returns the Status of a response.
func (a answer) status(t testing.TB) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(a.body), &status); err != nil || status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure {
		t.Fatalf("response = %d %s (%v), want a Status", a.code, a.body, err)
	}
	if int(status.Code) != a.code {
		t.Errorf("code of the Status = %d, want the code of the response %d", status.Code, a.code)
	}
	return status
}

// totals returns the totals of a response.
func (a answer) totals(t testing.TB) (resources, edges int) {
	t.Helper()
	var response inventory.Response
	if err := json.Unmarshal([]byte(a.body), &response); err != nil || a.code != http.StatusOK {
		t.Fatalf("response = %d %s (%v), want 200 with totals", a.code, a.body, err)
	}
	return response.TotalResources, response.TotalEdges
}

func (s *server) request(t testing.TB, method, cluster string, body io.Reader, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/"+cluster, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func (s *server) do(t testing.TB, r *http.Request) answer {
	t.Helper()
	a, err := s.try(r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (s *server) try(r *http.Request) (answer, error) {
	response, err := s.Client().Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{code: response.StatusCode, header: response.Header, body: string(body)}, err
}

func (s *server) post(t testing.TB, cluster, body string, header ...string) answer {
	t.Helper()
	return s.do(t, s.request(t, http.MethodPost, cluster, strings.NewReader(body), header...))
}

func zipped(t testing.TB, body io.Reader) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// pod returns a resource as JSON.
func pod(cluster, name string) string {
	return fmt.Sprintf(`{"kind":"Pod","uid":"%s/%s","resourceString":"pods","properties":{"kind":"Pod","kind_plural":"pods","apiversion":"v1","name":"%s"}}`, cluster, name, name)
}

// full returns a full report of pods as JSON.
func full(cluster string, names ...string) string {
	pods := make([]string, len(names))
	for i, name := range names {
		pods[i] = pod(cluster, name)
	}
	return `{"clearAll":true,"addResources":[` + strings.Join(pods, ",") + `]}`
}
