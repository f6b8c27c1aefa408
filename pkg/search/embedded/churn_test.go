package embedded_test

import (
	"fmt"
	"runtime"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// churned is the number of keys, namespaces or edges of a report. A report that copies all others for each of them
// allocates about a gigabyte or more.
const (
	churned      = 30_000
	churnedBytes = 500 << 20
)

// allocated returns the bytes that a call allocates.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func churnUID(i int) string { return fmt.Sprintf("hostile/%d", i) }

func churnPod(uid string, more ...query.Property) search.Resource {
	return search.Resource{UID: uid, Properties: append(query.Properties{
		{Name: "kind", Type: query.String, Leaves: []query.Leaf{{Text: "Pod"}}},
	}, more...)}
}

// manyKeys returns a report with resources that have distinct keys of labels.
func manyKeys(prefix string) *search.Report {
	const resources = 30
	report := &search.Report{Cluster: "hostile", Full: true}
	for i := range resources {
		leaves := make([]query.Leaf, churned/resources)
		for j := range leaves {
			leaves[j] = query.Leaf{Key: fmt.Sprintf("%s%02d-%05d", prefix, i, j)}
		}
		report.Put = append(report.Put, churnPod(churnUID(i), query.Property{Name: "label", Type: query.Map, Leaves: leaves}))
	}
	return report
}

// manyNamespaces returns a report with resources in distinct namespaces.
func manyNamespaces(prefix string) *search.Report {
	report := &search.Report{Cluster: "hostile", Full: true}
	for i := range churned {
		report.Put = append(report.Put, churnPod(churnUID(i), query.Property{
			Name: "namespace", Type: query.String, Leaves: []query.Leaf{{Text: fmt.Sprintf("%s%05d", prefix, i)}},
		}))
	}
	return report
}

// manyEdges returns a report with edges between one resource and all others. Only every nth edge is reported.
func manyEdges(nth int) *search.Report {
	report := &search.Report{Cluster: "hostile", Full: true, Put: []search.Resource{churnPod(churnUID(0), query.Property{
		Name: "name", Type: query.String, Leaves: []query.Leaf{{Text: "hub"}},
	})}}
	for i := 1; i <= churned; i++ {
		report.Put = append(report.Put, churnPod(churnUID(i)))
		if nth > 0 && i%nth == 0 {
			report.AddEdges = append(report.AddEdges, search.Edge{SourceUID: churnUID(i), DestUID: churnUID(0), Type: "runsOn"})
		}
	}
	return report
}

// TestChurn checks that the memory that a report allocates is proportional to its size, whatever it adds and removes, and
// that the engine then finds what the last report contains.
func TestChurn(t *testing.T) {
	for name, test := range map[string]struct {
		reports []*search.Report
		// found is a query and the number of its results after the last report.
		found string
		count int
	}{
		"keys":       {[]*search.Report{manyKeys("a"), manyKeys("b"), manyKeys("a")}, "label:a07-00011", 1},
		"old keys":   {[]*search.Report{manyKeys("a"), manyKeys("b")}, "label:a*", 0},
		"namespaces": {[]*search.Report{manyNamespaces("a"), manyNamespaces("b"), manyNamespaces("a")}, "namespace:a00100", 1},
		"edges":      {[]*search.Report{manyEdges(1), manyEdges(0), manyEdges(2)}, "kind:Pod", churned + 1},
		"few edges":  {[]*search.Report{manyEdges(1), manyEdges(10), manyEdges(15)}, "kind:Pod", churned + 1},
		"removal":    {[]*search.Report{manyNamespaces("a"), {Cluster: "hostile", Full: true}}, "kind:Pod", 0},
	} {
		t.Run(name, func(t *testing.T) {
			engine := open(t, t.TempDir(), embedded.Options{})
			defer closed(t, engine)
			for i, report := range test.reports {
				var applied *search.Applied
				if got := allocated(func() { applied = apply(t, engine, report) }); got > churnedBytes {
					t.Errorf("report %d allocated %d MB, want less than %d", i, got>>20, churnedBytes>>20)
				}
				if applied.Resources != len(report.Put) || applied.Edges != len(report.AddEdges) {
					t.Errorf("report %d = %+v, want %d resources and %d edges", i, applied, len(report.Put), len(report.AddEdges))
				}
			}
			result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{Query: parse(t, test.found), Now: fleetgen.Epoch})
			if err != nil || result.Count != test.count {
				t.Errorf("Search(%q) = %+v, %v, want %d", test.found, result, err, test.count)
			}
		})
	}
}

// TestChangedEdges checks the edges of a resource with many edges after several kinds of changes in one report.
func TestChangedEdges(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	apply(t, engine, manyEdges(1))
	edge := func(i int) search.Edge {
		return search.Edge{SourceUID: churnUID(i), DestUID: churnUID(0), Type: "runsOn"}
	}
	report := &search.Report{Cluster: "hostile"}
	// The resources 1 to 1000 lose their edges, 501 to 1000 get them again, and 1001 to 2000 are deleted, of which
	// 1001 to 1200 also lose their edges explicitly. Half of the changes are reported twice.
	for i := 1; i <= 1200; i++ {
		report.DeleteEdges = append(report.DeleteEdges, edge(i))
		if i%2 == 0 {
			report.DeleteEdges = append(report.DeleteEdges, edge(i))
		}
	}
	for i := 501; i <= 1000; i++ {
		report.AddEdges = append(report.AddEdges, edge(i), edge(i+10_000))
	}
	for i := 1001; i <= 2000; i++ {
		report.Delete = append(report.Delete, churnUID(i))
	}
	const want = churned - 500 - 1000
	applied := apply(t, engine, report)
	if applied.Edges != want || applied.EdgesAdded != 0 || applied.EdgesDeleted != 1500 {
		t.Errorf("Apply() = %+v, want %d edges, 0 added and 1500 deleted", applied, want)
	}
	related := func() int {
		t.Helper()
		result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{Query: parse(t, "name:hub"), Now: fleetgen.Epoch, Related: true})
		if err != nil || result.Count != 1 || len(result.Related) != 1 {
			t.Fatalf("Search() = %+v, %v, want one resource with related Pods", result, err)
		}
		return result.Related[0].Count
	}
	if got := related(); got != want {
		t.Errorf("%d related resources, want %d", got, want)
	}
	closed(t, engine)
	engine = open(t, dir, embedded.Options{})
	defer closed(t, engine)
	if got := related(); got != want {
		t.Errorf("%d related resources after a restart, want %d", got, want)
	}
}

// TestRelations checks that types of edges do not stay in memory when no edge has them, and that their numbers
// are reused correctly, also after a restart.
func TestRelations(t *testing.T) {
	for name, closing := range map[string]func(*testing.T, *embedded.Engine){"files": func(*testing.T, *embedded.Engine) {}, "checkpoint": checkpoint} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			engine := open(t, dir, embedded.Options{})
			defer func() { closed(t, engine) }()
			put := []search.Resource{churnPod(churnUID(0)), churnPod(churnUID(1)), churnPod(churnUID(2))}
			kept := search.Edge{SourceUID: churnUID(1), DestUID: churnUID(2), Type: "kept"}
			const rounds, types = 50, 100
			var last search.Edge
			for i := range rounds {
				report := &search.Report{Cluster: "hostile", Full: true, Put: put, AddEdges: []search.Edge{kept}}
				for j := range types {
					last = search.Edge{SourceUID: churnUID(0), DestUID: churnUID(1), Type: fmt.Sprintf("type-%d-%d", i, j)}
					report.AddEdges = append(report.AddEdges, last)
				}
				applied := apply(t, engine, report)
				if again := apply(t, engine, report); applied.Edges != types+1 || again.EdgesAdded+again.EdgesDeleted > 0 {
					t.Fatalf("report %d = %+v, then %+v, want %d edges and then no change", i, applied, again, types+1)
				}
			}
			if got := engine.Relations(); got > 3*types {
				t.Errorf("%d types of edges have a number, want at most those of two reports", got)
			}
			closing(t, engine)
			closed(t, engine)
			engine = open(t, dir, embedded.Options{})
			applied := apply(t, engine, &search.Report{
				Cluster: "hostile", DeleteEdges: []search.Edge{kept, last, {SourceUID: kept.SourceUID, DestUID: kept.DestUID, Type: last.Type}},
				AddEdges: []search.Edge{{SourceUID: kept.SourceUID, DestUID: kept.DestUID, Type: "new"}},
			})
			if applied.EdgesDeleted != 2 || applied.EdgesAdded != 1 || applied.Edges != types {
				t.Errorf("Apply() after a restart = %+v, want 2 deleted, 1 added and %d edges", applied, types)
			}
		})
	}
}
