package fair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	clocktesting "k8s.io/utils/clock/testing"

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
func (f *fixture) try(pool, n int) []string {
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
	first := f.try(ordinaryLane, 10)
	if want := []string{"flood-0"}; !slices.Equal(first, want) {
		t.Fatalf("items of one worker = %v, want %v", first, want)
	}
	f.Done("flood-0")
	if got, want := f.try(ordinaryLane, 10), []string{"one-0"}; !slices.Equal(got, want) {
		t.Errorf("items after one pass = %v, want %v", got, want)
	}
	f.Done("one-0")
	if got, want := f.try(ordinaryLane, 10), []string{"flood-1"}; !slices.Equal(got, want) {
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
			got := f.try(ordinaryLane, 1000)
			most := 0
			for i := range test.tenants {
				most = max(most, count(got, fmt.Sprintf("t%d-", i)))
			}
			if len(got) != test.wantAll || most != test.wantEach {
				t.Errorf("busy workers = %d, of one tenant = %d, want %d and %d", len(got), most, test.wantAll, test.wantEach)
			}
			if test.tenants < test.workers && test.workers > 1 {
				f.add("late", 1, Class{})
				if got, want := f.try(ordinaryLane, 10), []string{"late-0"}; !slices.Equal(got, want) {
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
	f.try(ordinaryLane, 10)
	f.add("deleted", 1, Class{Priority: true})
	if got := f.try(ordinaryLane, 10); len(got) != 0 {
		t.Errorf("items of busy workers = %v, want none", got)
	}
	if got, want := f.try(priorityLane, 10), []string{"deleted-0"}; !slices.Equal(got, want) {
		t.Errorf("items of the priority lane = %v, want %v", got, want)
	}
	f.Done("deleted-0")
	if got := f.try(priorityLane, 10); len(got) != 0 {
		t.Errorf("items of idle priority workers = %v, want no ordinary items", got)
	}
}

func TestIdleWorkersHelpThePriorityLane(t *testing.T) {
	f := newFixture(t, 6, 6, 1)
	f.add("deleted", 50, Class{Priority: true})
	f.add("a", 1, Class{})
	got := f.try(ordinaryLane, 10)
	if got[0] != "a-0" || count(got, "deleted") != 2 {
		t.Errorf("items = %v, want a-0 first and then 2 items of the priority lane, the share of one tenant", got)
	}
}

func TestWaitingItemChangesLane(t *testing.T) {
	f := newFixture(t, 1, 1, 1)
	f.add("a", 3, Class{})
	f.classes["a-2"] = Class{Priority: true, Tenant: "a"}
	if got := f.try(priorityLane, 10); len(got) != 0 {
		t.Fatalf("items of the priority lane before Add() = %v, want none", got)
	}
	f.Add("a-2")
	if got, want := f.try(priorityLane, 10), []string{"a-2"}; !slices.Equal(got, want) {
		t.Errorf("items of the priority lane = %v, want %v", got, want)
	}
	f.Done("a-2")
	var rest []string
	for range 4 {
		got := f.try(ordinaryLane, 10)
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
	f.try(ordinaryLane, 10)
	f.classes["a-0"] = Class{Priority: true, Tenant: "a"}
	f.Add("a-0")
	f.Add("a-0")
	if got := append(f.try(priorityLane, 10), f.try(ordinaryLane, 10)...); len(got) != 0 {
		t.Fatalf("items of a second worker = %v, want none", got)
	}
	f.Done("a-0")
	if got, want := f.try(priorityLane, 10), []string{"a-0"}; !slices.Equal(got, want) {
		t.Errorf("items after the first worker has returned = %v, want %v", got, want)
	}
	f.Done("a-0")
	if got := f.try(priorityLane, 10); len(got) != 0 {
		t.Errorf("items without another Add() = %v, want none", got)
	}
}

func TestShutDownRemovesWaitingItems(t *testing.T) {
	f := newFixture(t, 1, 1, 1)
	f.add("a", 5, Class{})
	f.try(ordinaryLane, 1)
	f.Add("a-0")
	f.ShutDown()
	f.Done("a-0")
	f.Add("b-0")
	if f.Len() != 0 || f.pools[ordinaryLane].busy != 0 {
		t.Errorf("waiting items = %d, busy workers = %d, want 0 and 0", f.Len(), f.pools[ordinaryLane].busy)
	}
	if _, shutdown := f.Get(); !shutdown {
		t.Error("Get() returned an item, want shutdown")
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

func TestWatchdog(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	dog := NewWatchdog(t.Name(), clock)
	stuckTotal.WithLabelValues(t.Name()).Add(0)
	before := metric(t, "stuck_workers_total")
	end := dog.Begin(t.Context(), "ManifestWork slow", 30*time.Second)
	clock.Step(29 * time.Second)
	dog.check()
	if err := dog.Err(); err != nil {
		t.Errorf("after 29 s: Err() = %v, want nil", err)
	}
	clock.Step(2 * time.Second)
	dog.check()
	dog.check()
	want := "1 workers of the queue TestWatchdog do not return from ManifestWork slow for 31s"
	if err := dog.Err(); err == nil || err.Error() != want {
		t.Errorf("after 31 s: Err() = %v, want %s", err, want)
	}
	if got := metric(t, "stuck_workers"); got != 1 {
		t.Errorf("stuck_workers = %v, want 1", got)
	}
	end()
	if err := dog.Err(); err != nil {
		t.Errorf("Err() after the return = %v, want nil", err)
	}
	if now, ever := metric(t, "stuck_workers"), metric(t, "stuck_workers_total")-before; now != 0 || ever != 1 {
		t.Errorf("stuck_workers = %v and stuck_workers_total grew by %v, want 0 and 1", now, ever)
	}
}

func TestWatchdogNamesSome(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	dog := NewWatchdog(t.Name(), clock)
	for _, name := range []string{"e", "d", "c", "b", "a"} {
		end := dog.Begin(t.Context(), name, time.Second)
		defer end()
	}
	clock.Step(time.Minute)
	dog.check()
	want := "5 workers of the queue TestWatchdogNamesSome do not return from a for 1m0s, b for 1m0s, c for 1m0s and 2 more"
	if err := dog.Err(); err == nil || err.Error() != want {
		t.Errorf("Err() = %v, want %s", err, want)
	}
}

func TestWatchdogRuns(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	dog := NewWatchdog(t.Name(), clock)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		dog.Run(ctx)
	}()
	end := dog.Begin(ctx, "a", time.Second)
	defer end()
	await.True(t, "the watchdog detects the stuck worker", func() bool {
		clock.Step(checkPeriod)
		return dog.Err() != nil
	})
	cancel()
	<-ended
}
