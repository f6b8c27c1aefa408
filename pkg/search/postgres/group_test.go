package postgres

import (
	"context"
	"testing"
	"testing/synctest"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// TestQueue checks which reports form a group, and that a caller that leaves neither loses a report in progress nor
// blocks the others.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue{busy: map[string]bool{}}
		add := func(cluster string, full bool) *application {
			a := newApplication(nil, &search.Report{Cluster: cluster, Full: full})
			q.add(a)
			return a
		}
		leads := func(a *application) []*application {
			t.Helper()
			select {
			case group := <-a.lead:
				return group
			default:
				t.Fatalf("the report of %s leads no group", a.report.Cluster)
				return nil
			}
		}
		first := leads(add("a", false))
		second := leads(add("b", false))
		add("a", false)
		follower, leader, large := add("d", false), add("c", false), leads(add("e", true))
		if len(first) != 1 || len(second) != 1 || len(large) != 1 || len(q.waiting) != 3 {
			t.Fatalf("groups of %d, %d and %d reports, %d waiting; want 1, 1, 1 and 3", len(first), len(second), len(large), len(q.waiting))
		}
		// The cluster a still has a report in progress. d waits longer than c, so it leads.
		q.end(second, nil)
		group := leads(follower)
		if len(group) != 2 || len(q.waiting) != 1 {
			t.Fatalf("group of %d reports, %d waiting; want 2 and 1", len(group), len(q.waiting))
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		done := make(chan error, 1)
		go func() {
			_, err := q.wait(left, leader)
			done <- err
		}()
		synctest.Wait()
		q.end(group, nil)
		if err := <-done; err != nil {
			t.Errorf("wait() of a report in progress without its caller: error = %v, want the result of the report", err)
		}
		if _, err := q.wait(left, q.waiting[0]); err == nil || len(q.waiting) != 0 {
			t.Errorf("wait() of a waiting report without its caller: error = %v, %d waiting; want an error and none", err, len(q.waiting))
		}
		q.end(first, nil)
		q.end(large, nil)
		if q.small != 0 || q.large != 0 || len(q.busy) != 0 {
			t.Errorf("after all groups: %d small, %d large, %d busy; want none", q.small, q.large, len(q.busy))
		}
	})
}
