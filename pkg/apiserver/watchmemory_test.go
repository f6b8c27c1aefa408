package apiserver

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	searchwatch "open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

// anyone grants every caller the Scope of all resources.
type anyone struct{}

func (anyone) Scope(context.Context, user.Info) (visibility.Scope, error) {
	return visibility.Everything(), nil
}

func (anyone) Subscribe(user.Info) (<-chan struct{}, func()) { return nil, func() {} }

// TestWatchesOfTheTableAreBounded checks that the memory limit of the server applies to the watches that it serves.
func TestWatchesOfTheTableAreBounded(t *testing.T) {
	engine, err := embedded.Open(t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	rows := Virtual(VirtualDependencies{
		Engine: engine, Scopes: anyone{}, WatchMemory: searchwatch.NewMemory(1, "search-watch-memory-bytes"),
	})
	ctx := request.WithNamespace(request.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"}), "")
	watched := 0
	for _, row := range rows {
		if row.Name != "fleetresources" {
			continue
		}
		for name, storage := range row.Storages() {
			watcher, is := storage.(rest.Watcher)
			if !is {
				continue
			}
			watched++
			stream, err := watcher.Watch(ctx, &metainternalversion.ListOptions{})
			if err == nil {
				stream.Stop()
			}
			if !apierrors.IsTooManyRequests(err) {
				t.Errorf("Watch() of %s without memory = %v, want status 429", name, err)
			}
		}
	}
	if watched == 0 {
		t.Error("resources of searches that can be watched = none, want fleetresources")
	}
}
