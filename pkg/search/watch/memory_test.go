package watch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

// TestWatchMemoryIsBounded checks watches that exceed the memory at their start or later. They end
// with status 429 and release their memory.
func TestWatchMemoryIsBounded(t *testing.T) {
	engine := open(t)
	report := &search.Report{Cluster: "east", Full: true, Time: time.Now()}
	for i := range 1000 {
		properties, err := query.DecodeProperties(fmt.Appendf(nil, `{"kind":"Pod","name":"pod-%04d"}`, i))
		if err != nil {
			t.Fatal(err)
		}
		report.Put = append(report.Put, search.Resource{UID: fmt.Sprintf("east/%d", i), Properties: properties})
	}
	if _, err := engine.Apply(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	granted := newScopes(visibility.Everything())
	// A watch of all resources takes about 204 KiB. The limit allows two such watches, but not two
	// of one caller.
	memory := watch.NewMemory(560<<10, "search-watch-memory-bytes")
	begin := func(ctx context.Context, name string) (*watch.Watcher, error) {
		w := watch.Watch(ctx, watch.Config{Engine: engine, Scopes: granted, User: &user.DefaultInfo{Name: name}, Initial: true, Memory: memory})
		for event := range w.Events() {
			event.Done()
			if event.InitialDone {
				return w, nil
			}
		}
		return w, w.Err()
	}
	ending, end := context.WithCancel(t.Context())
	first, err := begin(ending, "jane")
	if err != nil {
		t.Fatalf("error of the first watch = %v, want nil", err)
	}
	refused := func(name, limit string) {
		t.Helper()
		_, err := begin(t.Context(), name)
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), limit) {
			t.Errorf("error of the watch of %s = %v, want status 429 with %q", name, err, limit)
		}
	}
	refused("jane", "the watches of one caller")
	if _, err := begin(t.Context(), "joe"); err != nil {
		t.Errorf("error of the watch of another caller = %v, want nil", err)
	}
	refused("jim", "all watches")
	jim := &user.DefaultInfo{Name: "jim"}
	if err := memory.Fits(jim, 1000); !apierrors.IsTooManyRequests(err) {
		t.Errorf("Fits() = %v, want status 429", err)
	}
	if err := memory.Fits(jim, 100); err != nil {
		t.Errorf("Fits() for 100 resources = %v, want nil", err)
	}
	end()
	for range first.Events() {
	}
	if _, err := begin(t.Context(), "jim"); err != nil {
		t.Errorf("error of a watch after another one has ended = %v, want nil", err)
	}
	if err := (*watch.Memory)(nil).Fits(jim, 1_000_000); err != nil {
		t.Errorf("Fits() without a bound = %v, want nil", err)
	}
}

// TestRewindsAreCounted checks that a watch from an earlier version counts the resources that have changed since then, and
// that nothing is counted after its end.
func TestRewindsAreCounted(t *testing.T) {
	const changed = 12_000 // of at least 43 bytes, which the limit of a caller does not allow
	engine := open(t)
	from := put(t, engine, "east", `web {"status":"Running"}`)
	var names []string
	for i := range changed {
		names = append(names, fmt.Sprintf(`pod-%05d {"status":"Failed"}`, i))
	}
	put(t, engine, "east", names...)
	for limit, refused := range map[int64]bool{1 << 20: true, 1 << 30: false} {
		memory := watch.NewMemory(limit, "search-watch-memory-bytes")
		ctx, cancel := context.WithCancel(t.Context())
		w := watch.Watch(ctx, watch.Config{
			Engine: engine, Scopes: newScopes(visibility.Everything()), User: jane, Query: looksFor(t, "status:Running"), From: from, Memory: memory,
		})
		put(t, engine, "east", fmt.Sprintf(`web {"status":"Running","restarts":%d}`, limit))
		for event := range w.Events() {
			event.Done()
			cancel()
		}
		cancel()
		if err := w.Err(); apierrors.IsTooManyRequests(err) != refused {
			t.Errorf("error of a watch with %d bytes for %d changed resources = %v, want status 429: %t", limit, changed, err, refused)
		}
		if err := memory.Fits(jane, int(limit/2-64<<10)/224); err != nil {
			t.Errorf("Fits() after the end of the watch = %v, want nil", err)
		}
	}
}
