package inventory_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	reports "open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// endpoint is a hub that stores the reports of one cluster.
type endpoint struct {
	server *httptest.Server
	path   string

	mu        sync.Mutex
	resources map[string]reports.Resource
	edges     map[reports.Edge]bool
	// wire contains all received reports, decompressed.
	wire bytes.Buffer
	// full counts full reports, refused counts reports that intercept answered, and asked counts all
	// reports.
	full, refused, asked int
	compressed           bool
	// intercept returns true if it has written a response instead of the hub. If late is set, the hub
	// applies the report first.
	intercept func(http.ResponseWriter) bool
	late      bool
}

func newEndpoint(t testing.TB, cluster string) *endpoint {
	t.Helper()
	e := &endpoint{
		path:      "/apis/search.open-cluster-management.io/v1alpha1/namespaces/" + cluster + "/inventories/" + cluster + "/sync",
		resources: map[string]reports.Resource{}, edges: map[reports.Edge]bool{},
	}
	e.server = httptest.NewServer(e)
	t.Cleanup(e.server.Close)
	return e
}

func (e *endpoint) config() *rest.Config { return &rest.Config{Host: e.server.URL, QPS: -1} }

// ServeHTTP applies a report.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path != e.path || request.Method != http.MethodPost {
		http.Error(w, "unexpected "+request.Method+" "+request.URL.Path, http.StatusNotFound)
		return
	}
	body := io.Reader(request.Body)
	compressed := request.Header.Get("Content-Encoding") == "gzip"
	if compressed {
		decompressor, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = decompressor
	}
	data, err := io.ReadAll(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	e.compressed = e.compressed || compressed
	e.wire.Write(data)
	if e.intercept != nil && !e.late && e.intercept(w) {
		e.refused++
		return
	}
	var report reports.Sync
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if report.ClearAll != (request.Header.Get(reports.OverwriteHeader) == "true") {
		http.Error(w, "header and body differ", http.StatusBadRequest)
		return
	}
	response := e.apply(&report)
	if e.intercept != nil && e.late && e.intercept(w) {
		e.refused++
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response)
}

func (e *endpoint) apply(report *reports.Sync) *reports.Response {
	if report.ClearAll {
		e.full++
		clear(e.resources)
		clear(e.edges)
	}
	for _, resources := range [][]reports.Resource{report.AddResources, report.UpdateResources} {
		for _, resource := range resources {
			e.resources[resource.UID] = resource
		}
	}
	for _, deleted := range report.DeleteResources {
		if _, ok := e.resources[deleted.UID]; !ok {
			continue
		}
		delete(e.resources, deleted.UID)
		maps.DeleteFunc(e.edges, func(edge reports.Edge, _ bool) bool {
			return edge.SourceUID == deleted.UID || edge.DestUID == deleted.UID
		})
	}
	for _, edge := range report.AddEdges {
		e.edges[edge] = true
	}
	for _, edge := range report.DeleteEdges {
		delete(e.edges, edge)
	}
	return &reports.Response{TotalResources: len(e.resources), TotalEdges: len(e.edges)}
}

// answer makes a function respond to all reports from now on instead of the hub. If late is set, the
// hub applies each report first. If the function is nil, the hub responds again.
func (e *endpoint) answer(late bool, with func(http.ResponseWriter) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.intercept, e.late, e.refused = with, late, 0
}

// find returns the resource of a kind and name.
func (e *endpoint) find(kind, name string) (uid string, properties map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, resource := range e.resources {
		var got map[string]any
		text, _ := json.Marshal(resource.Properties)
		if json.Unmarshal(text, &got) == nil && got["kind"] == kind && got["name"] == name {
			return uid, got
		}
	}
	return "", nil
}

// relations returns the edges, each as "kind name type kind name".
func (e *endpoint) relations() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := func(uid string) string {
		var text string
		_ = json.Unmarshal(e.resources[uid].Properties["name"], &text)
		return text
	}
	found := map[string]bool{}
	for edge := range e.edges {
		found[edge.SourceKind+" "+name(edge.SourceUID)+" "+edge.EdgeType+" "+edge.DestKind+" "+name(edge.DestUID)] = true
	}
	return found
}
