package graphql_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/graphql"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// discard is a response writer that discards the response.
type discard struct {
	header http.Header
	bytes  int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Write(data []byte) (int, error) {
	d.bytes += len(data)
	return len(data), nil
}

// BenchmarkQueries measures queries over 20,000 resources, without a network.
func BenchmarkQueries(b *testing.B) {
	engine, err := embedded.Open(b.TempDir(), embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := engine.Close(); err != nil {
			b.Error(err)
		}
	})
	options := fleetgen.Options{Clusters: 10, PerCluster: 2000}
	for i := range options.Clusters {
		if _, err := engine.Apply(b.Context(), fleetgen.Cluster(options, i)); err != nil {
			b.Fatal(err)
		}
	}
	handler, err := graphql.New(graphql.Config{
		Engine: engine, Scopes: newScopes(map[string]visibility.Scope{"admin": visibility.Everything()}),
	})
	if err != nil {
		b.Fatal(err)
	}
	queries := []struct{ name, query, variables string }{
		{"items", `query($input: [SearchInput]) { search(input: $input) { items } }`, `{"input":[{"filters":[{"property":"kind","values":["Pod"]}],"limit":1000}]}`},
		{"count", `query($input: [SearchInput]) { search(input: $input) { count } }`, `{"input":[{"filters":[{"property":"kind","values":["Pod"]}]}]}`},
		{"related counts", `query($input: [SearchInput]) { search(input: $input) { related { kind count } } }`, `{"input":[{"filters":[{"property":"kind","values":["Deployment"]},{"property":"namespace","values":["payments"]}]}]}`},
		{"related items", `query($input: [SearchInput]) { search(input: $input) { related { kind items } } }`, `{"input":[{"filters":[{"property":"kind","values":["Pod"]}],"limit":1000}]}`},
		{"completion", `query { searchComplete(property: "name", limit: 1000) }`, ""},
		{"schema", `query { searchSchema }`, ""},
		// The query does not use the engine, so it measures only the API.
		{"messages", `query getMessages { messages { id kind description } }`, ""},
	}
	for _, q := range queries {
		body := operation(b, q.query, q.variables)
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				asked := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
				asked.Header.Set("Content-Type", "application/json")
				asked = asked.WithContext(request.WithUser(b.Context(), &user.DefaultInfo{Name: "admin"}))
				w := &discard{header: http.Header{}}
				handler.ServeHTTP(w, asked)
				b.SetBytes(int64(w.bytes))
			}
		})
	}
}
