package fair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// fixture is a queue of items whose classes are set by the test.
type fixture struct {
	*Queue[string]
	classes map[string]Class
}

// metric returns the value of a metric of the queue that is named after the test.
func metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, sample := range family.GetMetric() {
			for _, label := range sample.GetLabel() {
				if label.GetValue() == t.Name() {
					return sample.GetGauge().GetValue() + sample.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("metric %s does not exist", name)
	return 0
}

func newFixture(t *testing.T, workers, perTenant, priority int) *fixture {
	f := &fixture{classes: map[string]Class{}}
	f.Queue = NewQueue(Config[string]{
		Name: t.Name(), Workers: workers, WorkersPerTenant: perTenant, PriorityWorkers: priority,
		StuckAfter: time.Minute, Clock: clock.RealClock{},
		// The default tenant is the part of the item before the dash.
		Class: func(item string) Class {
			if class, ok := f.classes[item]; ok {
				return class
			}
			tenant, _, _ := strings.Cut(item, "-")
			return Class{Tenant: tenant}
		},
	})
	t.Cleanup(f.ShutDown)
	return f
}

func (f *fixture) add(tenant string, n int, class Class) {
	for i := range n {
		item := fmt.Sprintf("%s-%d", tenant, i)
		class.Tenant = tenant
		f.classes[item] = class
		f.Add(item)
	}
}

// try returns at most n items that the idle workers of a pool get immediately.
func (f *fixture) try(pool *lane[string], n int) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var items []string
	for len(items) < n {
		item, ok := f.next(pool)
		if !ok {
			break
		}
		items = append(items, item)
	}
	return items
}

func count(items []string, prefix string) int {
	n := 0
	for _, item := range items {
		if strings.HasPrefix(item, prefix) {
			n++
		}
	}
	return n
}

func TestTenantsTakeTurns(t *testing.T) {
	f := newFixture(t, 1, 1, 1)
	f.add("flood", 5000, Class{})
	f.add("one", 1, Class{})
	first := f.try(f.ordinary, 10)
	if want := []string{"flood-0"}; !slices.Equal(first, want) {
		t.Fatalf("items of one worker = %v, want %v", first, want)
	}
	f.Done("flood-0")
	if got, want := f.try(f.ordinary, 10), []string{"one-0"}; !slices.Equal(got, want) {
		t.Errorf("items after one pass = %v, want %v", got, want)
	}
	f.Done("one-0")
	if got, want := f.try(f.ordinary, 10), []string{"flood-1"}; !slices.Equal(got, want) {
		t.Errorf("items after two passes = %v, want %v", got, want)
	}
}

func TestShares(t *testing.T) {
	for _, test := range []struct {
		name                       string
		workers, perTenant         int
		tenants, wantAll, wantEach int
	}{
		{"one tenant is limited by its own limit", 32, 10, 1, 10, 10},
		{"one tenant leaves workers idle", 12, 12, 1, 4, 4},
		{"all tenants share a single worker", 1, 1, 1, 1, 1},
		{"twenty tenants leave a worker idle", 32, 10, 20, 30, 2},
		{"as many tenants as workers get one each", 8, 8, 8, 8, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.workers, test.perTenant, 1)
			for i := range test.tenants {
				f.add(fmt.Sprintf("t%d", i), 50, Class{})
			}
			got := f.try(f.ordinary, 1000)
			most := 0
			for i := range test.tenants {
				most = max(most, count(got, fmt.Sprintf("t%d-", i)))
			}
			if len(got) != test.wantAll || most != test.wantEach {
				t.Errorf("busy workers = %d, of one tenant = %d, want %d and %d", len(got), most, test.wantAll, test.wantEach)
			}
			if test.tenants < test.workers && test.workers > 1 {
				f.add("late", 1, Class{})
				if got, want := f.try(f.ordinary, 10), []string{"late-0"}; !slices.Equal(got, want) {
					t.Errorf("items of a new tenant = %v, want %v", got, want)
				}
			}
		})
	}
}

func TestPriorityLaneHasItsOwnWorkers(t *testing.T) {
	f := newFixture(t, 2, 2, 1)
	f.add("a", 5, Class{})
	f.add("b", 5, Class{})
	f.try(f.ordinary, 10)
	f.add("deleted", 1, Class{Priority: true})
	if got := f.try(f.ordinary, 10); len(got) != 0 {
		t.Errorf("items of busy workers = %v, want none", got)
	}
	if got, want := f.try(f.priority, 10), []string{"deleted-0"}; !slices.Equal(got, want) {
		t.Errorf("items of the priority lane = %v, want %v", got, want)
	}
	f.Done("deleted-0")
	if got := f.try(f.priority, 10); len(got) != 0 {
		t.Errorf("items of idle priority workers = %v, want no ordinary items", got)
	}
}

func TestIdleWorkersHelpThePriorityLane(t *testing.T) {
	f := newFixture(t, 6, 6, 1)
	f.add("deleted", 50, Class{Priority: true})
	f.add("a", 1, Class{})
	got := f.try(f.ordinary, 10)
	if got[0] != "a-0" || count(got, "deleted") != 2 {
		t.Errorf("items = %v, want a-0 first and then 2 items of the priority lane, the share of one tenant", got)
	}
}

func TestWaitingItemChangesLane(t *testing.T) {
	f := newFixture(t, 1, 1, 1)
	f.add("a", 3, Class{})
	f.classes["a-2"] = Class{Priority: true, Tenant: "a"}
	if got := f.try(f.priority, 10); len(got) != 0 {
		t.Fatalf("items of the priority lane before Add() = %v, want none", got)
	}
	f.Add("a-2")
	if got, want := f.try(f.priority, 10), []string{"a-2"}; !slices.Equal(got, want) {
		t.Errorf("items of the priority lane = %v, want %v", got, want)
	}
	f.Done("a-2")
	var rest []string
	for range 4 {
		got := f.try(f.ordinary, 10)
		rest = append(rest, got...)
		for _, item := range got {
			f.Done(item)
		}
	}
	if want := []string{"a-0", "a-1"}; !slices.Equal(rest, want) || f.Len() != 0 {
		t.Errorf("other items = %v, Len() = %d, want %v and 0", rest, f.Len(), want)
	}
}

func TestItemHasOneWorker(t *testing.T) {
	f := newFixture(t, 4, 4, 4)
	f.add("a", 1, Class{})
	f.try(f.ordinary, 10)
	f.classes["a-0"] = Class{Priority: true, Tenant: "a"}
	f.Add("a-0")
	f.Add("a-0")
	if got := append(f.try(f.priority, 10), f.try(f.ordinary, 10)...); len(got) != 0 {
		t.Fatalf("items of a second worker = %v, want none", got)
	}
	f.Done("a-0")
	if got, want := f.try(f.priority, 10), []string{"a-0"}; !slices.Equal(got, want) {
		t.Errorf("items after the first worker has returned = %v, want %v", got, want)
	}
	f.Done("a-0")
	if got := f.try(f.priority, 10); len(got) != 0 {
		t.Errorf("items without another Add() = %v, want none", got)
	}
}

// TestShutDownEmptiesTheQueue checks that Serve ends when the items that were added before ShutDown are handled.
func TestShutDownEmptiesTheQueue(t *testing.T) {
	f := newFixture(t, 1, 1, 1)
	f.add("a", 5, Class{})
	f.try(f.ordinary, 1)
	f.Add("a-0")
	f.ShutDown()
	f.Add("b-0")
	f.Done("a-0")
	handled := make(chan string, 10)
	f.Serve(t.Context(), func(_ context.Context, item string) { handled <- item })
	close(handled)
	var items []string
	for item := range handled {
		items = append(items, item)
	}
	if want := []string{"a-1", "a-2", "a-3", "a-4", "a-0"}; !slices.Equal(items, want) {
		t.Errorf("items after ShutDown() = %v, want %v", items, want)
	}
	if f.Len() != 0 || f.ordinary.busy != 0 {
		t.Errorf("waiting items = %d, busy workers = %d, want 0 and 0", f.Len(), f.ordinary.busy)
	}
	if got := metric(t, "fair_queue_depth"); got != 0 {
		t.Errorf("fair_queue_depth = %v, want 0", got)
	}
}

func TestServeHandlesEveryItem(t *testing.T) {
	f := newFixture(t, 4, 4, 2)
	const items = 500
	handled := make(chan string, 2*items)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Serve(context.Background(), func(_ context.Context, item string) { handled <- item })
	}()
	f.mu.Lock()
	for i := range items {
		item := fmt.Sprintf("t%d-%d", i%7, i)
		f.classes[item] = Class{Tenant: item[:2], Priority: i%3 == 0}
	}
	f.mu.Unlock()
	for i := range items {
		f.Add(fmt.Sprintf("t%d-%d", i%7, i))
	}
	seen := map[string]bool{}
	for range items {
		select {
		case item := <-handled:
			seen[item] = true
		case <-time.After(await.Patience):
			t.Fatalf("handled items = %d, want %d", len(seen), items)
		}
	}
	f.ShutDown()
	<-ended
	if len(seen) != items {
		t.Errorf("handled items = %d, want %d", len(seen), items)
	}
}

// TestPriorityWorkersAreUsedFirst checks that items of the priority lane occupy ordinary workers only when the priority
// workers are busy.
func TestPriorityWorkersAreUsedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 4, 4, 2)
		returns := make(chan struct{})
		var serving sync.WaitGroup
		serving.Go(func() { f.Serve(t.Context(), func(context.Context, string) { <-returns }) })
		for i, want := range []struct{ ordinary, priority int }{{0, 1}, {0, 2}, {1, 2}} {
			f.add(fmt.Sprintf("deleted%d", i), 1, Class{Priority: true})
			synctest.Wait()
			f.mu.Lock()
			if ordinary, priority := f.ordinary.busy, f.priority.busy; ordinary != want.ordinary || priority != want.priority {
				t.Errorf("busy workers with %d deletions = %d ordinary and %d for the priority lane, want %v", i+1, ordinary, priority, want)
			}
			f.mu.Unlock()
		}
		close(returns)
		f.ShutDown()
		serving.Wait()
	})
}

// TestStuckWorkers uses the fake clock of synctest, so it takes no time.
func TestStuckWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 20, 20, 1)
		returns := make(chan struct{})
		var serving sync.WaitGroup
		serving.Go(func() {
			f.Serve(t.Context(), func(_ context.Context, item string) {
				if item != "fast" {
					<-returns
				}
			})
		})
		for _, item := range []string{"slow-2", "slow-1", "slow-5", "slow-4", "slow-3", "fast"} {
			f.Add(item)
		}
		time.Sleep(59 * time.Second)
		if err := f.Stuck(); err != nil {
			t.Errorf("after 59 s: Stuck() = %v, want nil", err)
		}
		time.Sleep(2 * time.Second)
		want := "5 workers of the queue " + t.Name() + " do not return from slow-1 for 1m1s, slow-2 for 1m1s, slow-3 for 1m1s and 2 more"
		if err := f.Stuck(); err == nil || err.Error() != want {
			t.Errorf("after 61 s: Stuck() = %v, want %s", err, want)
		}
		if got := metric(t, "stuck_workers"); got != 5 {
			t.Errorf("stuck_workers = %v, want 5", got)
		}
		close(returns)
		synctest.Wait()
		if err := f.Stuck(); err != nil {
			t.Errorf("Stuck() after the return = %v, want nil", err)
		}
		if got := metric(t, "stuck_workers"); got != 0 {
			t.Errorf("stuck_workers after the return = %v, want 0", got)
		}
		f.ShutDown()
		serving.Wait()
	})
}
