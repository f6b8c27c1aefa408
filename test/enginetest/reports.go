package enginetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
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
		{"Empty", testEmpty},
		{"FullThenDelta", testFullThenDelta},
		{"FullReplacesEverything", testFullReplaces},
		{"UnchangedIsNotAChange", testUnchanged},
		{"EdgesBeforeResources", testEdgesFirst},
		{"DuplicateEdges", testDuplicateEdges},
		{"LastOfDuplicateResourcesApplies", testDuplicateResources},
		{"DeletionDeletesEdges", testDeletingEdges},
		{"DeletionOfUnknownResources", testDeletingUnknown},
		{"ClustersAreIndependent", testClustersApart},
		{"RemoveCluster", testRemoveCluster},
		{"HubClasses", testHubClasses},
		{"CancelledIsAllOrNothing", testCancelled},
		{"ClusterPseudoResource", testPseudoResource},
		{"ChangeByServer", testChangeByServer},
		{"LargeReport", testLargeReport},
	} {
		t.Run(test.name, func(t *testing.T) { test.test(t, open(t)) })
	}
}

func testEmpty(t *testing.T, engine search.Engine) {
	if states := clusters(t, engine); len(states) > 0 {
		t.Errorf("Clusters() without reports = %v, want none", states)
	}
	sameWords(t, "found", findAll(t, engine, everything(), query.Query{}), "")
	if classes, _, err := engine.HubClasses(deadline(t)); err != nil || len(classes) > 0 {
		t.Errorf("HubClasses() without reports = %v, %v, want none", classes, err)
	}
	same(t, "empty report", withoutVersion(apply(t, engine, full(t, "c"))), search.Applied{})
	same(t, "clusters", clusters(t, engine), []search.ClusterState{{Name: "c", Reported: now}})
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

func testFullReplaces(t *testing.T, engine search.Engine) {
	report := full(t, "c", pod("a", "Running"), pod("b", "Running"))
	report.AddEdges = []search.Edge{edge("c", "a", "Pod", "b", "Pod", "ownedBy")}
	apply(t, engine, report)
	report = full(t, "c", pod("b", "Failed"), pod("c", "Running"))
	report.AddEdges = []search.Edge{edge("c", "b", "Pod", "c", "Pod", "ownedBy")}
	same(t, "second full report", withoutVersion(apply(t, engine, report)),
		search.Applied{Added: 1, Updated: 1, Deleted: 1, EdgesAdded: 1, EdgesDeleted: 1, Resources: 2, Edges: 1})
	sameWords(t, "found", findAll(t, engine, everything(), query.Query{}), "c/b c/c")
	report = full(t, "c", pod("b", "Failed"), pod("c", "Running"))
	report.AddEdges = []search.Edge{edge("c", "c", "Pod", "b", "Pod", "usedBy")}
	same(t, "other edges", withoutVersion(apply(t, engine, report)), search.Applied{EdgesAdded: 1, EdgesDeleted: 1, Resources: 2, Edges: 1})
	same(t, "empty full report", withoutVersion(apply(t, engine, full(t, "c"))), search.Applied{Deleted: 2, EdgesDeleted: 1})
	sameWords(t, "found", findAll(t, engine, everything(), query.Query{}), "")
}

func testUnchanged(t *testing.T, engine search.Engine) {
	report := full(t, "c", pod("a", "Running"), object{"b", `{"kind":"Pod","name":"b","label":{"x":"y","z":"1"},"list":[1,"2"],"n":1.0}`})
	report.AddEdges = []search.Edge{edge("c", "a", "Pod", "b", "Pod", "ownedBy")}
	first := apply(t, engine, report)
	same(t, "the same report again", withoutVersion(apply(t, engine, report)), search.Applied{Resources: 2, Edges: 1})
	again := delta(t, "c", pod("a", "Running"))
	again.AddEdges = report.AddEdges
	same(t, "a delta without changes", withoutVersion(apply(t, engine, again)), search.Applied{Resources: 2, Edges: 1})
	if item := get(t, engine, everything(), "c/b"); item.Version != first.Version {
		t.Errorf("version of an unchanged resource = %d, want %d", item.Version, first.Version)
	}
	apply(t, engine, delta(t, "c", pod("other", "Running")))
	if changes := changesSince(t, engine, first.Version, 100); len(changes) != 1 || changes[0].UID != "c/other" {
		t.Errorf("Changes() after unchanged reports = %v, want only c/other", changes)
	}
}

// ended returns a cancelled context. Changes does not wait with it.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func related(t testing.TB, engine search.Engine, name string) []string {
	t.Helper()
	return relatedUIDs(find(t, engine, everything(), &search.Request{
		Query: parse(t, "name:"+name), Related: true, RelatedItems: true, RelatedLimit: -1,
	}))
}

func testEdgesFirst(t *testing.T, engine search.Engine) {
	early := delta(t, "c", pod("a", "Running"))
	early.AddEdges = []search.Edge{edge("c", "a", "Pod", "b", "Pod", "ownedBy"), edge("c", "x", "Pod", "y", "Pod", "ownedBy")}
	same(t, "report with early edges", withoutVersion(apply(t, engine, early)), search.Applied{Added: 1, EdgesAdded: 2, Resources: 1, Edges: 2})
	sameWords(t, "related before the other resource is reported", related(t, engine, "a"), "")
	apply(t, engine, delta(t, "c", pod("b", "Running")))
	sameWords(t, "related after the other resource is reported", related(t, engine, "a"), "c/b")
	same(t, "report with the missing resources", withoutVersion(apply(t, engine, delta(t, "c", pod("y", "Running"), pod("x", "Running")))), search.Applied{Added: 2, Resources: 4, Edges: 2})
	sameWords(t, "related to the last", related(t, engine, "y"), "c/x")
}

func testDuplicateEdges(t *testing.T, engine search.Engine) {
	report := full(t, "c", pod("a", "Running"), pod("b", "Running"))
	one := edge("c", "a", "Pod", "b", "Pod", "ownedBy")
	report.AddEdges = []search.Edge{one, one, edge("c", "a", "Pod", "b", "Pod", "usedBy"), edge("c", "b", "Pod", "a", "Pod", "ownedBy")}
	same(t, "duplicates", withoutVersion(apply(t, engine, report)), search.Applied{Added: 2, EdgesAdded: 3, Resources: 2, Edges: 3})
	result := find(t, engine, everything(), &search.Request{Query: parse(t, "name:a"), Related: true, RelatedItems: true, RelatedLimit: -1})
	if len(result.Related) != 1 || result.Related[0].Count != 1 || len(result.Related[0].Items) != 1 {
		t.Errorf("resources related by several edges = %+v, want one resource", result.Related)
	}
	less := delta(t, "c")
	less.DeleteEdges = []search.Edge{one, one, edge("c", "no", "Pod", "b", "Pod", "ownedBy")}
	same(t, "deleted twice", withoutVersion(apply(t, engine, less)), search.Applied{EdgesDeleted: 1, Resources: 2, Edges: 2})
	sameWords(t, "still related", related(t, engine, "a"), "c/b")
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

func testDeletingEdges(t *testing.T, engine search.Engine) {
	report := full(t, "c", pod("a", "Running"), pod("b", "Running"), pod("c", "Running"))
	report.AddEdges = []search.Edge{edge("c", "a", "Pod", "b", "Pod", "ownedBy"), edge("c", "c", "Pod", "a", "Pod", "ownedBy"), edge("c", "b", "Pod", "c", "Pod", "ownedBy")}
	apply(t, engine, report)
	gone := delta(t, "c")
	gone.Delete = []string{"c/a"}
	same(t, "deleted", withoutVersion(apply(t, engine, gone)), search.Applied{Deleted: 1, EdgesDeleted: 2, Resources: 2, Edges: 1})
	same(t, "reported again", withoutVersion(apply(t, engine, delta(t, "c", pod("a", "Running")))), search.Applied{Added: 1, Resources: 3, Edges: 1})
	sameWords(t, "related", related(t, engine, "a"), "")
}

func testDeletingUnknown(t *testing.T, engine search.Engine) {
	apply(t, engine, full(t, "c", pod("a", "Running")))
	gone := delta(t, "c")
	gone.Delete = []string{"c/none", "c/a", "c/a", "nonsense", ""}
	same(t, "deleted", withoutVersion(apply(t, engine, gone)), search.Applied{Deleted: 1})
}

func testClustersApart(t *testing.T, engine search.Engine) {
	for _, cluster := range []string{"c1", "c2", "c10", "c"} {
		apply(t, engine, full(t, cluster, pod("a", "Running"), pod("b", "Running")))
	}
	gone := delta(t, "c1")
	gone.Delete = []string{"c1/a"}
	apply(t, engine, gone)
	apply(t, engine, full(t, "c", pod("b", "Running")))
	sameWords(t, "found", findAll(t, engine, everything(), query.Query{}), "c/b c1/b c2/a c2/b c10/a c10/b")
}

func testRemoveCluster(t *testing.T, engine search.Engine) {
	for _, cluster := range []string{"c1", "c2", hub} {
		report := full(t, cluster, pod("a", "Running"), pod("b", "Running"))
		report.AddEdges = []search.Edge{edge(cluster, "a", "Pod", "b", "Pod", "ownedBy")}
		apply(t, engine, report)
	}
	before := version(t, engine)
	for range 2 {
		if err := engine.RemoveCluster(deadline(t), "c1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := engine.RemoveCluster(deadline(t), "never-seen"); err != nil {
		t.Fatal(err)
	}
	apply(t, engine, delta(t, "c2", pod("b", "Failed")))
	sameWords(t, "found", findAll(t, engine, everything(), query.Query{}), "c2/a c2/b local-cluster/a local-cluster/b")
	if item := get(t, engine, everything(), "c1/a"); item != nil {
		t.Errorf("Get(%s) after its cluster was removed = %v, want nil", item.UID, item)
	}
	same(t, "clusters", clusters(t, engine), []search.ClusterState{
		{Name: "c2", Resources: 2, Edges: 1, Reported: now}, {Name: hub, Hub: true, Resources: 2, Edges: 1, Reported: now},
	})
	var deleted []string
	for _, change := range changesSince(t, engine, before, 100) {
		if change.UID == "c2/b" {
			continue
		}
		if change.After != nil || change.Before == nil || change.Cluster != "c1" {
			t.Errorf("change of %s = %v -> %v, want a deletion in c1", change.UID, change.Before, change.After)
		}
		deleted = append(deleted, change.UID)
	}
	sameWords(t, "changes", deleted, "c1/a c1/b")
	same(t, "reported again", withoutVersion(apply(t, engine, full(t, "c1", pod("a", "Running")))), search.Applied{Added: 1, Resources: 1})
	sameWords(t, "related", related(t, engine, "a"), "c2/b local-cluster/b")
}

func testHubClasses(t *testing.T, engine search.Engine) {
	classes := func() ([]visibility.Class, uint64) {
		t.Helper()
		found, number, err := engine.HubClasses(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		found = slices.Clone(found)
		slices.SortFunc(found, compareClasses)
		return found, number
	}
	apply(t, engine, full(t, "c", pod("a", "Running")))
	apply(t, engine, full(t, hub, pod("a", "Running"), pod("b", "Running"),
		object{"d", `{"kind":"Deployment","kind_plural":"deployments","apigroup":"apps","name":"d","namespace":"a"}`},
		object{"n", `{"kind":"Namespace","kind_plural":"namespaces","name":"a"}`}))
	first, number := classes()
	want := []visibility.Class{
		{Cluster: hub, Hub: true, Resource: "namespaces"}, {Cluster: hub, Hub: true, Resource: "pods", Namespace: "a"},
		{Cluster: hub, Hub: true, Group: "apps", Resource: "deployments", Namespace: "a"},
	}
	same(t, "classes", first, want)
	change := delta(t, hub, object{"e", `{"kind":"Pod","kind_plural":"pods","name":"e","namespace":"b"}`})
	apply(t, engine, change)
	second, changed := classes()
	same(t, "classes with another namespace", second, slices.Insert(slices.Clone(want), 2, visibility.Class{Cluster: hub, Hub: true, Resource: "pods", Namespace: "b"}))
	if changed == number {
		t.Errorf("number of HubClasses() after a class is added = %d, want another number", changed)
	}
	change = delta(t, hub)
	change.Delete = []string{hub + "/e"}
	apply(t, engine, change)
	third, again := classes()
	same(t, "classes without the other namespace", third, want)
	if again == changed {
		t.Errorf("number of HubClasses() after a class is removed = %d, want another number", again)
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

func testPseudoResource(t *testing.T, engine search.Engine) {
	report := full(t, "c", pod("a", "Running"))
	report.Put = append(report.Put, search.Resource{UID: "cluster__c", Properties: decode(t, `{"kind":"Cluster","name":"c"}`)})
	apply(t, engine, report)
	sameWords(t, "found", findAll(t, engine, everything(), parse(t, `kind:Cluster`)), "cluster__c")
	if item := get(t, engine, everything(), "cluster__c"); item == nil || item.Cluster != "c" {
		t.Errorf("Get(cluster__c) = %v, want an item of cluster c", item)
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
