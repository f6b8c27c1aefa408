package ingest

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
)

// openEngine opens an empty engine for a test.
func openEngine(t testing.TB) search.Engine {
	t.Helper()
	engine, err := embedded.Open(t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatalf("opening the engine: %v", err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("closing the engine: %v", err)
		}
	})
	return engine
}

// stored returns a stored resource as JSON, or "" if it does not exist.
func stored(t testing.TB, engine search.Engine, uid string) string {
	t.Helper()
	item, err := search.Get(t.Context(), engine, visibility.Everything(), uid)
	if err != nil {
		t.Fatalf("getting %s: %v", uid, err)
	}
	if item == nil {
		return ""
	}
	return string(item.JSON())
}
