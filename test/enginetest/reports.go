package enginetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func pod(id, status string) object {
	return object{id, fmt.Sprintf(`{"kind":"Pod","kind_plural":"pods","name":%q,"namespace":"a","status":%q}`, id, status)}
}

// withoutVersion returns applied without its version, because the contract does not define the
// numbers.
func withoutVersion(applied *search.Applied) search.Applied {
	a := *applied
	a.Version = 0
	return a
}

func testApply(t *testing.T, open func(t *testing.T) search.Engine) {
	for _, test := range []struct {
		name string
		test func(t *testing.T, engine search.Engine)
	}{
		{"FullThenDelta", testFullThenDelta},
		{"LastOfDuplicateResourcesApplies", testDuplicateResources},
		{"HubClasses", testHubClasses},
		{"CancelledIsAllOrNothing", testCancelled},
		{"ChangeByServer", testChangeByServer},
		{"LargeReport", testLargeReport},
	} {
		t.Run(test.name, func(t *testing.T) { test.test(t, open(t)) })
	}
}

func testFullThenDelta(t *testing.T, engine search.Engine) {
	report := full(t, "c", pod("a", "Running"), pod("b", "Running"), pod("c", "Running"))
	report.AddEdges = []search.Edge{edge("c", "a", "Pod", "b", "Pod", "ownedBy"), edge("c", "b", "Pod", "c", "Pod", "ownedBy")}
	first := apply(t, engine, report)
	same(t, "full report", withoutVersion(first), search.Applied{Added: 3, EdgesAdded: 2, Resources: 3, Edges: 2})
	change := delta(t, "c", pod("b", "Failed"), pod("d", "Pending"))
	change.Time = now.Add(time.Minute)
	change.Delete = []string{"c/c"}
	change.AddEdges = []search.Edge{edge("c", "d", "Pod", "a", "Pod", "ownedBy")}
	change.DeleteEdges = []search.Edge{edge("c", "a", "Pod", "b", "Pod", "ownedBy")}
	second := apply(t, engine, change)
	same(t, "delta", withoutVersion(second), search.Applied{Added: 1, Updated: 1, Deleted: 1, EdgesAdded: 1, EdgesDeleted: 2, Resources: 3, Edges: 1})
	if second.Version <= first.Version || version(t, engine) != second.Version {
		t.Errorf("version of the second report = %d, Version() = %d, want the same version above %d", second.Version, version(t, engine), first.Version)
	}
	sameWords(t, "found", findAll(t, engine, everything(), parse(t, `status:Running,Failed,Pending`)), "c/a c/b c/d")
	sameWords(t, "not running", findAll(t, engine, everything(), parse(t, `status!=Running`)), "c/b c/d")
	same(t, "clusters", clusters(t, engine), []search.ClusterState{{Name: "c", Resources: 3, Edges: 1, Reported: change.Time}})
	if a, b := get(t, engine, everything(), "c/a"), get(t, engine, everything(), "c/b"); a.Version != first.Version || b.Version != second.Version {
		t.Errorf("versions of a and b = %d and %d, want %d and %d", a.Version, b.Version, first.Version, second.Version)
	}
}

// ended returns a cancelled context. Changes does not wait with it.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func related(t tester, engine search.Engine, name string) []string {
	t.Helper()
	return relatedUIDs(find(t, engine, everything(), &search.Request{
		Query: parse(t, "name:"+name), Related: true, RelatedItems: true, RelatedLimit: -1,
	}))
}

func testDuplicateResources(t *testing.T, engine search.Engine) {
	for _, report := range []*search.Report{full(t, "c", pod("a", "First"), pod("a", "Last")), delta(t, "c", pod("a", "Second"), pod("a", "Latest"))} {
		if applied := apply(t, engine, report); applied.Resources != 1 {
			t.Errorf("resources after a report with one UID twice = %d, want 1", applied.Resources)
		}
		want := search.Text(report.Put[1].Properties, query.Status)
		sameWords(t, "found", findAll(t, engine, everything(), parse(t, "status:"+want)), "c/a")
		sameWords(t, "found without a query", findAll(t, engine, everything(), query.Query{}), "c/a")
	}
}

// testHubClasses checks that the number of HubClasses changes with the classes.
func testHubClasses(t *testing.T, engine search.Engine) {
	number := func() uint64 {
		t.Helper()
		_, number, err := engine.HubClasses(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		return number
	}
	apply(t, engine, full(t, hub, pod("a", "Running")))
	first := number()
	apply(t, engine, delta(t, hub, object{"e", `{"kind":"Pod","kind_plural":"pods","name":"e","namespace":"b"}`}))
	added := number()
	gone := delta(t, hub)
	gone.Delete = []string{hub + "/e"}
	apply(t, engine, gone)
	if removed := number(); added == first || removed == added {
		t.Errorf("numbers of HubClasses() = %d, with another class %d, without it %d, want another number after each change", first, added, removed)
	}
}

func testCancelled(t *testing.T, engine search.Engine) {
	apply(t, engine, full(t, "c", pod("a", "Old"), pod("b", "Old")))
	_, err := engine.Apply(ended(), full(t, "c", pod("a", "New"), pod("b", "New")))
	want := "c/a c/b"
	fresh := findAll(t, engine, everything(), parse(t, `status:New`))
	if err == nil {
		sameWords(t, "acknowledged", fresh, want)
	} else if len(fresh) != 0 {
		t.Errorf("Apply(): error %v and resources %v stored, want none stored", err, fresh)
	}
}

// testChangeByServer checks that a change without a time is not a report of the cluster.
func testChangeByServer(t *testing.T, engine search.Engine) {
	change := delta(t, "c", object{"cluster", `{"kind":"Cluster","name":"c"}`})
	change.Time = time.Time{}
	apply(t, engine, change)
	same(t, "before the first report", clusters(t, engine), []search.ClusterState{{Name: "c", Resources: 1}})
	apply(t, engine, full(t, "c", pod("a", "Running"), object{"cluster", `{"kind":"Cluster","name":"c"}`}))
	apply(t, engine, change)
	same(t, "after a report", clusters(t, engine), []search.ClusterState{{Name: "c", Resources: 2, Reported: now}})
}

func testLargeReport(t *testing.T, engine search.Engine) {
	const count = 6000
	report := &search.Report{Cluster: "c", Full: true, Time: now}
	for i := range count {
		report.Put = append(report.Put, search.Resource{UID: fmt.Sprintf("c/%08x-0000-4000-8000-%012x", i, i), Properties: decode(t,
			fmt.Sprintf(`{"kind":"Pod","name":"pod-%d","restarts":%d,"label":{"app":"a%d"}}`, i, i%100, i%13))})
		report.AddEdges = append(report.AddEdges, search.Edge{SourceUID: report.Put[i].UID, DestUID: report.Put[i/2].UID, SourceKind: "Pod", DestKind: "Pod", Type: "ownedBy"})
	}
	same(t, "applied", withoutVersion(apply(t, engine, report)), search.Applied{Added: count, EdgesAdded: count, Resources: count, Edges: count})
	q := parse(t, `restarts:7 label:app=a7`)
	same(t, "found", findAll(t, engine, everything(), q), matching(report, &q))
	same(t, "the same report again", withoutVersion(apply(t, engine, report)), search.Applied{Resources: count, Edges: count})
	same(t, "empty full report", withoutVersion(apply(t, engine, full(t, "c"))), search.Applied{Deleted: count, EdgesDeleted: count})
}
