package embedded

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/enginetest"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// reportOf has resources with a label each, in which the text differs.
func reportOf(text string, full bool, first, count int) *search.Report {
	report := &search.Report{Cluster: "c", Full: full}
	for i := first; i < first+count; i++ {
		uid := fmt.Sprintf("c/%d", i)
		report.Put = append(report.Put, search.Resource{UID: uid, Properties: query.Properties{
			{Name: "kind", Leaves: []query.Leaf{{Text: "Thing"}}},
			{Name: "label", Type: query.Map, Leaves: []query.Leaf{{Key: text, Text: fmt.Sprint(i % 7)}, {Key: "z", Text: text}}},
			{Name: "name", Leaves: []query.Leaf{{Text: fmt.Sprintf("%s-%d", text, i)}}},
		}})
		report.AddEdges = append(report.AddEdges, search.Edge{SourceUID: uid, DestUID: fmt.Sprintf("c/%d", i+1), Type: text})
	}
	return report
}

// answers are all items, all labels and how many are related.
func answers(t *testing.T, e *Engine) []any {
	t.Helper()
	scope := visibilitytest.Everything()
	keyword := query.Query{Keywords: []string{"-1"}}
	result, err := e.Search(t.Context(), scope, &search.Request{Query: keyword, Items: true, Limit: -1, OrderBy: []search.Order{{Property: "name"}}, Related: true})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := e.Complete(t.Context(), scope, &search.CompletionRequest{Property: query.Label, Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	clusters, err := e.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return []any{result, labels, clusters}
}

func TestReportsThatAreNotWrittenChangeNothing(t *testing.T) {
	open := func() *Engine {
		e, err := Open(t.TempDir(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	disturbed, calm := open(), open()
	for i, report := range []*search.Report{
		reportOf("one", true, 0, 100), reportOf("two", false, 50, 100), reportOf("three", true, 20, 150), reportOf("one", false, 0, 30),
	} {
		for _, e := range []*Engine{disturbed, calm} {
			if _, err := e.Apply(t.Context(), report); err != nil {
				t.Fatal(err)
			}
		}
		// The writer has nothing to do now, so this stands for a transaction that fails in it.
		before := disturbed.current.Load()
		lost := disturbed.writer.begin(before)
		if _, err := lost.apply(reportOf(fmt.Sprintf("lost-%d", i), true, 10*i, 80)); err != nil {
			t.Fatal(err)
		}
		if err := lost.prepare(func() error { return errors.New("the disk is full") }); err == nil {
			t.Fatal("the error of the disk is lost")
		}
		disturbed.giveUp(before, errors.New("the disk is full"))
		if diff := cmp.Diff(answers(t, calm), answers(t, disturbed), enginetest.Comparing); diff != "" {
			t.Fatalf("after report %d and one that failed (-without +with):\n%s", i, diff)
		}
	}
	if _, _, err := disturbed.Changes(t.Context(), 1, 10); !errors.Is(err, search.ErrExpired) {
		t.Errorf("watchers go on after a report that failed: %v", err)
	}
}
