package ingest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	testingclock "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// start is the start time of tests with a fake clock.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func statesAre(t *testing.T, s *server, want ...State) {
	t.Helper()
	got, err := s.handler.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got, cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestStates(t *testing.T) {
	clock := testingclock.NewFakeClock(start)
	engine := &faulty{Engine: openEngine(t)}
	s := serve(t, Config{Clock: clock, Engine: engine})
	s.fleet.set("c1", "c2")
	s.post(t, "c1", full("c1", "a", "b")).totals(t)
	statesAre(t, s,
		State{Name: "c1", Resources: 2, LastReport: start},
		State{Name: "c2", Absent: true},
		State{Name: hubCluster, Hub: true, Absent: true})

	clock.Step(16 * time.Minute)
	s.post(t, hubCluster, full(hubCluster, "a")).totals(t)
	statesAre(t, s,
		State{Name: "c1", Resources: 2, LastReport: start, Silent: true},
		State{Name: "c2", Absent: true},
		State{Name: hubCluster, Hub: true, Resources: 1, LastReport: start.Add(16 * time.Minute)})

	s.post(t, "c1", `{"version":"2.13"}`).totals(t)
	s.fleet.set("c2")
	clock.Step(time.Second)
	statesAre(t, s,
		State{Name: "c1", Resources: 2, LastReport: start.Add(16 * time.Minute), Removed: true},
		State{Name: "c2", Absent: true},
		State{Name: hubCluster, Hub: true, Resources: 1, LastReport: start.Add(16 * time.Minute)})

	s.fleet.set("c1", "c2")
	engine.set(nil, true)
	clock.Step(time.Second)
	statesAre(t, s,
		State{Name: "c1", Resources: 2, LastReport: start.Add(16 * time.Minute), Incomplete: true},
		State{Name: "c2", Absent: true},
		State{Name: hubCluster, Hub: true, Resources: 1, LastReport: start.Add(16 * time.Minute), Incomplete: true})
}

func TestStatesAreUnknownWithoutTheirSources(t *testing.T) {
	clock := testingclock.NewFakeClock(start)
	engine := &faulty{Engine: openEngine(t)}
	s := serve(t, Config{Clock: clock, Engine: engine})
	down := errors.New("down")
	s.fleet.fail(down)
	if _, err := s.handler.States(t.Context()); !errors.Is(err, down) {
		t.Errorf("States() without a list of clusters = %v, want the error of the list", err)
	}
	s.fleet.fail(nil)
	clock.Step(time.Second)
	engine.set(down, false)
	if _, err := s.handler.States(t.Context()); !errors.Is(err, down) {
		t.Errorf("States() without an engine = %v, want the error of the engine", err)
	}
}

// remembers reports whether the engine contains a cluster.
func remembers(t *testing.T, s *server, cluster string) bool {
	t.Helper()
	states, err := s.engine.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range states {
		if state.Name == cluster {
			return true
		}
	}
	return false
}

// run starts the loop that removes clusters.
func run(t *testing.T, s *server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.handler.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		await.Done(t, "the loop ends", done)
	})
}

// eventually advances the clock until a condition holds.
func eventually(t *testing.T, clock *testingclock.FakeClock, step time.Duration, what string, so func() bool) {
	t.Helper()
	await.True(t, what, func() bool {
		if so() {
			return true
		}
		if clock.HasWaiters() {
			clock.Step(step)
		}
		return false
	})
}

// looked waits until the loop has checked the current clusters again.
func looked(t *testing.T, s *server, clock *testingclock.FakeClock) {
	t.Helper()
	for range 2 {
		// The first check may have started before the call. The second check has not.
		s.handler.Notify()
		await.True(t, "the loop waits", func() bool { return len(s.handler.notify) == 0 && clock.HasWaiters() })
	}
}

func TestRemovedClustersAreForgotten(t *testing.T) {
	clock := testingclock.NewFakeClock(start)
	s := serve(t, Config{Clock: clock})
	for _, cluster := range []string{"c1", "c2", hubCluster} {
		s.post(t, cluster, full(cluster, "a")).totals(t)
	}
	run(t, s)
	s.fleet.set("c2")
	s.handler.Notify()
	eventually(t, clock, time.Second, "c1 is removed from the engine", func() bool { return !remembers(t, s, "c1") })
	if got := stored(t, s.engine, "c1/a"); got != "" {
		t.Errorf("resource of a deleted cluster = %s, want none", got)
	}
	for _, cluster := range []string{"c2", hubCluster} {
		if !remembers(t, s, cluster) {
			t.Errorf("%s was removed, want it kept because it exists", cluster)
		}
	}
	if got := s.post(t, "c1", full("c1", "a")); got.code != http.StatusNotFound {
		t.Errorf("response to a report of a deleted cluster = %d, want 404", got.code)
	}
	// c2 is removed without a call of Notify.
	s.fleet.set()
	eventually(t, clock, 10*time.Second, "c2 is removed from the engine", func() bool { return !remembers(t, s, "c2") })
	if !remembers(t, s, hubCluster) {
		t.Error("the hub was removed, want it kept because it reports")
	}
	eventually(t, clock, time.Hour, "the hub is removed from the engine", func() bool { return !remembers(t, s, hubCluster) })
}

func TestClustersThatMayExistAreKept(t *testing.T) {
	t.Run("the list of clusters is unavailable", func(t *testing.T) {
		clock := testingclock.NewFakeClock(start)
		s := serve(t, Config{Clock: clock})
		s.post(t, "c1", full("c1", "a")).totals(t)
		s.fleet.set()
		s.fleet.fail(errors.New("not synced"))
		run(t, s)
		for range 5 {
			looked(t, s, clock)
			clock.Step(time.Minute)
		}
		if !remembers(t, s, "c1") {
			t.Error("c1 was removed, want it kept")
		}
		s.fleet.fail(nil)
		eventually(t, clock, time.Second, "c1 is removed after the list shows its deletion", func() bool { return !remembers(t, s, "c1") })
	})
	t.Run("the list of clusters is out of date", func(t *testing.T) {
		clock := testingclock.NewFakeClock(start)
		s := serve(t, Config{Clock: clock})
		s.post(t, "c1", full("c1", "a")).totals(t)
		s.fleet.unlist("c1")
		run(t, s)
		looked(t, s, clock)
		if !remembers(t, s, "c1") {
			t.Error("c1 was removed, want it kept because it exists")
		}
		s.fleet.unlist()
		eventually(t, clock, time.Second, "c1 is removed after its deletion", func() bool { return !remembers(t, s, "c1") })
	})
	t.Run("the engine fails temporarily", func(t *testing.T) {
		clock := testingclock.NewFakeClock(start)
		engine := &faulty{Engine: openEngine(t)}
		s := serve(t, Config{Clock: clock, Engine: engine})
		s.post(t, "c1", full("c1", "a")).totals(t)
		s.fleet.set()
		engine.set(errors.New("down"), false)
		clock.Step(time.Second)
		run(t, s)
		looked(t, s, clock)
		engine.set(nil, false)
		eventually(t, clock, time.Second, "c1 is removed from the engine", func() bool { return !remembers(t, s, "c1") })
	})
}
