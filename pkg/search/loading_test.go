package search_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/await"
)

func open(dir string) func(context.Context) (search.Engine, error) {
	return func(context.Context) (search.Engine, error) { return embedded.Open(dir, embedded.Options{}) }
}

// wantLoading checks that no method waits for the data.
func wantLoading(t *testing.T, engine search.Engine) {
	t.Helper()
	ctx := t.Context()
	scope := visibility.Everything()
	calls := map[string]func() error{
		"Apply":         func() error { _, err := engine.Apply(ctx, &search.Report{Cluster: "c"}); return err },
		"RemoveCluster": func() error { return engine.RemoveCluster(ctx, "c") },
		"Clusters":      func() error { _, err := engine.Clusters(ctx); return err },
		"Search":        func() error { _, err := engine.Search(ctx, scope, &search.Request{}); return err },
		"Complete":      func() error { _, err := engine.Complete(ctx, scope, &search.CompletionRequest{}); return err },
		"Schema":        func() error { _, err := engine.Schema(ctx, scope, &query.Query{}, time.Now()); return err },
		"GetMany":       func() error { _, err := engine.GetMany(ctx, scope, []string{"c/a"}); return err },
		"Version":       func() error { _, err := engine.Version(ctx); return err },
		"Changes":       func() error { _, _, err := engine.Changes(ctx, search.Position{}, 1, 1); return err },
		"HubClasses":    func() error { _, _, err := engine.HubClasses(ctx); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, search.ErrLoading) || !errors.Is(err, search.ErrUnavailable) {
			t.Errorf("%s() while the data are loaded = %v, want ErrLoading", name, err)
		}
	}
}

func awaitLoaded(t *testing.T, engine search.Engine) {
	t.Helper()
	await.Eventually(t, "the data are loaded", func(ctx context.Context) error {
		_, err := engine.Version(ctx)
		return err
	})
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	before, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	properties, err := query.DecodeProperties([]byte(`{"kind":"Pod","name":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	report := &search.Report{Cluster: "c", Full: true, Time: time.Now(), Put: []search.Resource{{UID: "c/a", Properties: properties}}}
	if _, err := before.Apply(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}

	begin := make(chan struct{})
	loading := search.Load(func(ctx context.Context) (search.Engine, error) {
		<-begin
		return open(dir)(ctx)
	})
	wantLoading(t, loading)
	close(begin)
	awaitLoaded(t, loading)
	result, err := loading.Search(t.Context(), visibility.Everything(), &search.Request{Items: true, Limit: -1})
	if err != nil || result.Count != 1 || len(result.Items) != 1 || result.Items[0].UID != "c/a" {
		t.Errorf("Search() after loading = %+v, %v, want c/a", result, err)
	}
	if err := loading.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	again, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		t.Fatalf("Open() after Close() = %v, want nil", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestLoadIsTriedAgainWhileUnavailable(t *testing.T) {
	tries := 0
	loading := search.Load(func(ctx context.Context) (search.Engine, error) {
		if tries++; tries < 2 {
			return nil, fmt.Errorf("%w: the database starts", search.ErrUnavailable)
		}
		return open(t.TempDir())(ctx)
	})
	awaitLoaded(t, loading)
	if err := loading.Close(); err != nil {
		t.Error(err)
	}
}

func TestLoadFails(t *testing.T) {
	want := errors.New("the database has another format")
	loading := search.Load(func(context.Context) (search.Engine, error) { return nil, want })
	select {
	case err := <-loading.Failed():
		if !errors.Is(err, want) {
			t.Errorf("Failed() = %v, want %v", err, want)
		}
	case <-time.After(await.Patience):
		t.Fatal("Failed() received no error")
	}
	wantLoading(t, loading)
	if err := loading.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// TestCloseWhileLoading checks that a server that stops does not wait for its data, and unlocks
// them.
func TestCloseWhileLoading(t *testing.T) {
	dir := t.TempDir()
	data, err := embedded.Begin(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Begin(dir, embedded.Options{}); !errors.Is(err, search.ErrInUse) {
		t.Errorf("Begin() of data that are loaded = %v, want ErrInUse", err)
	}
	begun := make(chan struct{})
	loading := search.Load(func(ctx context.Context) (search.Engine, error) {
		close(begun)
		<-ctx.Done()
		return data.Load(ctx)
	})
	<-begun
	if err := loading.Close(); err != nil {
		t.Errorf("Close() while the data are loaded = %v, want nil", err)
	}
	again, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		t.Fatalf("Open() after Close() = %v, want nil", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
