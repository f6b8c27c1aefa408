package framework

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// reservations contains the number of unused slots of each test that has reserved some, by its name, and the names of
// the tests that use shared control planes.
var reservations = struct {
	sync.Mutex
	unused  map[string]int
	sharing []string
}{unused: map[string]int{}}

// Slots waits until a test may run n control planes, and reserves them until its end, also for its subtests. A test
// that starts one after the other calls it first, with the number of all: OwnFleet, OwnCluster and HubThatRunsOCM
// reserve only their own.
func Slots(t testing.TB, n int) {
	t.Helper()
	if holder := holderOf(t); holder != "" {
		t.Fatalf("%s reserves %d control planes, but %s has already reserved some: reserve all in one call", t.Name(), n, holder)
	}
	release, err := localhub.Reserve(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	reservations.Lock()
	defer reservations.Unlock()
	reservations.unused[t.Name()] = n
	t.Cleanup(func() {
		reservations.Lock()
		defer reservations.Unlock()
		delete(reservations.unused, t.Name())
		release()
	})
}

// UseSlots uses n reserved slots of a test until its end, or reserves them if the test has none. Fixtures call it
// before they start control planes.
func UseSlots(t testing.TB, n int) {
	t.Helper()
	holder := holderOf(t)
	if holder == "" {
		Slots(t, n)
		holder = t.Name()
	}
	reservations.Lock()
	defer reservations.Unlock()
	if unused := reservations.unused[holder]; unused < n {
		t.Fatalf("%s starts %d control planes, but has reserved only %d more: call framework.Slots first, with the number of all", t.Name(), n, unused)
	}
	reservations.unused[holder] -= n
	t.Cleanup(func() {
		reservations.Lock()
		defer reservations.Unlock()
		reservations.unused[holder] += n
	})
}

// UseShared waits until the control planes that the tests of the package share may run. A test calls it before it reserves
// slots of its own, because it may wait for those of all other tests.
func UseShared(t testing.TB) {
	t.Helper()
	reservations.Lock()
	used := slices.ContainsFunc(reservations.sharing, func(name string) bool { return name == t.Name() || strings.HasPrefix(t.Name(), name+"/") })
	if !used {
		reservations.sharing = append(reservations.sharing, t.Name())
	}
	reservations.Unlock()
	if holder := holderOf(t); holder != "" && !used {
		t.Fatalf("%s uses shared control planes, but %s has reserved others: use the shared ones first", t.Name(), holder)
	}
	if err := localhub.UseShared(); err != nil {
		t.Fatal(err)
	}
}

// holderOf returns the name of the test that has reserved slots for t: t itself or a test that contains it.
func holderOf(t testing.TB) string {
	reservations.Lock()
	defer reservations.Unlock()
	for name := range reservations.unused {
		if name == t.Name() || strings.HasPrefix(t.Name(), name+"/") {
			return name
		}
	}
	return ""
}
