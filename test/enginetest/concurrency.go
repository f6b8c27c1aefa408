package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	generations   = 15
	perGeneration = 40
)

// generation returns a report in which every resource contains the number of the report. Consecutive
// reports differ in the number of resources, the UIDs and the edges.
func generation(t tester, cluster string, n int) *search.Report {
	t.Helper()
	report := &search.Report{Cluster: cluster, Full: true, Hub: cluster == hub, Time: now}
	for i := range perGeneration + n%3 {
		o := object{fmt.Sprintf("%d-%d", n%2, i), fmt.Sprintf(
			`{"kind":"Pod","kind_plural":"pods","name":"p%d","namespace":"a","generation":%d,"size":%d}`, i, n, perGeneration+n%3)}
		report.Put = append(report.Put, delta(t, cluster, o).Put...)
	}
	node := object{fmt.Sprintf("node-%d", n%2), fmt.Sprintf(`{"kind":"Node","kind_plural":"nodes","name":"n","generation":%d}`, n)}
	report.Put = append(report.Put, delta(t, cluster, node).Put...)
	for i := range report.Put[:len(report.Put)-1] {
		report.AddEdges = append(report.AddEdges, search.Edge{
			SourceUID: report.Put[i].UID, SourceKind: "Pod", DestUID: cluster + "/" + node.id, DestKind: "Node", Type: "runsOn",
		})
	}
	return report
}

// testConcurrency reads while clusters report. For each cluster, every answer must contain the
// resources of exactly one report.
func testConcurrency(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	names := []string{hub, "c1", "c2"}
	var reports [][]*search.Report
	for _, cluster := range names {
		var all []*search.Report
		for n := range generations {
			all = append(all, generation(t, cluster, n))
		}
		apply(t, engine, all[0])
		reports = append(reports, all)
	}
	ctx := deadline(t)
	scope := everything()
	done, stop := context.WithCancel(ctx)
	defer stop()
	var readers, writers sync.WaitGroup
	for _, all := range reports {
		writers.Go(func() {
			last := uint64(0)
			for _, report := range all[1:] {
				applied, err := engine.Apply(ctx, report)
				if err != nil {
					t.Errorf("Apply() of a report of %s: %v", report.Cluster, err)
					return
				}
				if applied.Version <= last {
					t.Errorf("Apply() of a report of %s: version %d, want more than %d", report.Cluster, applied.Version, last)
				}
				last = applied.Version
				// A read that starts after Apply returns must include the report.
				if seen, err := engine.Version(ctx); err != nil || seen < applied.Version {
					t.Errorf("Version() after a report of %s = %d, %v, want at least %d", report.Cluster, seen, err, applied.Version)
				}
			}
		})
	}
	for _, name := range names {
		q := parse(t, "kind:Pod cluster:"+name)
		readers.Go(func() {
			last := uint64(0)
			for {
				result, err := engine.Search(ctx, scope, &search.Request{
					Query: q, Items: true, Limit: -1, Now: now, Related: true, RelatedItems: true, RelatedLimit: -1,
				})
				if err != nil {
					t.Errorf("Search() in %s: %v", name, err)
					return
				}
				if result.Version < last {
					t.Errorf("Search(): version %d, want at least %d", result.Version, last)
				}
				last = result.Version
				if !checkGeneration(t, name, result) {
					return
				}
				values, err := engine.Complete(ctx, scope, &search.CompletionRequest{Property: "generation", Query: q, Now: now, Limit: -1})
				if err != nil || len(values.Values) != 1 {
					t.Errorf("Complete(generation) in %s = %+v, %v, want the value of one report", name, values, err)
					return
				}
				if done.Err() != nil {
					return
				}
			}
		})
		readers.Go(func() { followChanges(done, t, engine, q, name) })
	}
	writers.Wait()
	stop()
	readers.Wait()
	for i, name := range names {
		want := reports[i][generations-1]
		found := findAll(t, engine, scope, parse(t, "cluster:"+name))
		same(t, "resources after all reports", found, matching(want, &query.Query{}))
	}
}

// checkGeneration checks that all resources of an answer are from the same report.
func checkGeneration(t *testing.T, cluster string, result *search.Result) bool {
	t.Helper()
	type content struct{ Generation, Size int }
	var first content
	items := result.Items
	for _, related := range result.Related {
		items = append(items[:len(items):len(items)], related.Items...)
	}
	for i := range items {
		var one content
		if err := json.Unmarshal(items[i].JSON(), &one); err != nil {
			t.Errorf("%s: %v in %s", items[i].UID, err, items[i].JSON())
			return false
		}
		if i == 0 {
			first = one
		}
		if one.Generation != first.Generation {
			t.Errorf("Search() in %s returns resources of reports %d and %d, want resources of one report", cluster, first.Generation, one.Generation)
			return false
		}
	}
	if result.Count != first.Size || len(result.Items) != first.Size || len(result.Related) != 1 || result.Related[0].Count != 1 {
		t.Errorf("Search() in %s: Count %d, %d items, related %v, want %d items and one related Node", cluster, result.Count, len(result.Items), result.Related, first.Size)
		return false
	}
	return true
}

// followChanges counts the Pods of a cluster from its changes. When the changes stop, it compares the
// count with the result of a search.
func followChanges(done context.Context, t *testing.T, engine search.Engine, q query.Query, cluster string) {
	ctx := deadline(t)
	result, err := engine.Search(ctx, everything(), &search.Request{Query: q, Now: now})
	if err != nil {
		t.Error(err)
		return
	}
	count, after := result.Count, result.Version
	follow := func(ctx context.Context) bool {
		changes, upTo, err := search.WholeChanges(ctx, engine, after, 50)
		if err != nil {
			t.Errorf("Changes(%d): %v", after, err)
			return false
		}
		for _, change := range changes {
			if change.Before != nil && q.Matches(change.Cluster, change.Before, now) {
				count--
			}
			if change.After != nil && q.Matches(change.Cluster, change.After, now) {
				count++
			}
		}
		after = upTo
		return true
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(done, stop)
	for watching.Err() == nil {
		if !follow(watching) {
			return
		}
	}
	last, err := engine.Search(ctx, everything(), &search.Request{Query: q, Now: now})
	if err != nil {
		t.Error(err)
		return
	}
	for after < last.Version {
		if before := after; !follow(ctx) || after == before {
			break
		}
	}
	if count != last.Count || after != last.Version {
		t.Errorf("number of Pods of %s from changes up to version %d = %d, want %d as in Search() at version %d", cluster, after, count, last.Count, last.Version)
	}
}
