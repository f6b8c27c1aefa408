package live_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/live"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// TestWatchesRememberWithinTheirMemory opens watches that need more memory than there is, at the start or by
// and by: they end with status 429, and give back what they had.
func TestWatchesRememberWithinTheirMemory(t *testing.T) {
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
	granted := newScopes(visibilitytest.Everything())
	// A watch of all takes about 140 KiB, so that there is room for two, but not for two of one caller.
	memory := live.NewMemory(400<<10, "search-watch-memory-bytes")
	watch := func(ctx context.Context, name string) (*live.Watcher, error) {
		w := live.Watch(ctx, live.Config{Engine: engine, Scopes: granted, User: &user.DefaultInfo{Name: name}, Initial: true, Memory: memory})
		for event := range w.Events() {
			if event.InitialDone {
				return w, nil
			}
		}
		return w, w.Err()
	}
	ending, end := context.WithCancel(t.Context())
	first, err := watch(ending, "jane")
	if err != nil {
		t.Fatalf("the first watch ended with %v", err)
	}
	refused := func(name, limit string) {
		t.Helper()
		_, err := watch(t.Context(), name)
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), limit) {
			t.Errorf("the watch of %s ended with %v, want status 429 that says %q", name, err, limit)
		}
	}
	refused("jane", "the watches of one caller")
	if _, err := watch(t.Context(), "joe"); err != nil {
		t.Errorf("the watch of another caller ended with %v", err)
	}
	refused("jim", "all watches")
	jim := &user.DefaultInfo{Name: "jim"}
	if err := memory.Fits(jim, 1000); !apierrors.IsTooManyRequests(err) {
		t.Errorf("Fits() = %v, want status 429", err)
	}
	if err := memory.Fits(jim, 100); err != nil {
		t.Errorf("Fits() for few = %v, want no error", err)
	}
	end()
	for range first.Events() {
	}
	if _, err := watch(t.Context(), "jim"); err != nil {
		t.Errorf("the watch after another one has ended: %v", err)
	}
	if err := (*live.Memory)(nil).Fits(jim, 1_000_000); err != nil {
		t.Errorf("Fits() without a bound = %v", err)
	}
}
