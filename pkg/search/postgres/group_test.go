package postgres

import (
	"context"
	"testing"
	"testing/synctest"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// TestGroups checks which reports form a group, and that a report whose caller leaves is dropped while it waits, but not
// in a group.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{small: make(chan *application), large: make(chan *application)}
		results, again := map[string]chan error{}, true
		apply := func(ctx context.Context, name, cluster string, full bool) {
			result := make(chan error, 1)
			results[name] = result
			go func() { result <- e.apply(ctx, newApplication(e, &search.Report{Cluster: cluster, Full: full})) }()
			synctest.Wait()
		}
		left, leave := context.WithCancel(t.Context())
		apply(t.Context(), "first", "a", false)
		apply(t.Context(), "same cluster", "a", false)
		apply(t.Context(), "other cluster", "b", false)
		apply(left, "left", "c", false)
		apply(t.Context(), "full", "d", true)
		group := groupOf(<-e.small, e.small, 3)
		if len(group) != 3 || group[0].report.Cluster != "a" || group[1].report.Cluster != "b" || group[2].report.Cluster != "c" {
			t.Fatalf("group of %d reports, want one of each of the clusters a, b and c", len(group))
		}
		leave()
		apply(left, "left while it waits", "e", false)
		if err := <-results["left while it waits"]; err == nil {
			t.Error("apply() of a waiting report without its caller succeeds, want an error")
		}
		for _, a := range group {
			a.done <- false
		}
		for _, name := range []string{"first", "other cluster", "left"} {
			if err := <-results[name]; err != nil {
				t.Errorf("apply() of the report %q in a group = %v, want the result of the group", name, err)
			}
		}
		// The second report of a cluster tries again, and does not wait with full reports.
		for _, waiting := range []chan *application{e.small, e.small, e.large} {
			a := <-waiting
			if full := waiting == e.large; a.alone != full || a.report.Full != full {
				t.Errorf("report of cluster %s: alone = %t, full = %t, want %t", a.report.Cluster, a.alone, a.report.Full, full)
			}
			// The lock of the first one is not free at the first attempt.
			a.done <- again
			again = false
		}
		if err := <-results["same cluster"]; err != nil {
			t.Errorf("apply() of another report of the cluster = %v, want no error", err)
		}
		if err := <-results["full"]; err != nil {
			t.Errorf("apply() of a full report = %v, want no error", err)
		}
	})
}
