package embedded

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
)

// reportOf returns a report of resources whose labels and names contain a text.
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

// answers returns all items, all labels, the number of related resources, and the clusters.
func answers(t *testing.T, e *Engine) []any {
	t.Helper()
	scope := visibility.Everything()
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

func TestFailedWriteChangesNothing(t *testing.T) {
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
		// The writer is idle, so this transaction simulates a failed transaction of the writer.
		before := disturbed.current.Load()
		lost := disturbed.writer.begin(before)
		if _, err := lost.apply(reportOf(fmt.Sprintf("lost-%d", i), true, 10*i, 80)); err != nil {
			t.Fatal(err)
		}
		if err := lost.prepare(func() error { return errors.New("the disk is full") }); err == nil {
			t.Fatal("prepare() = nil, want the error of the disk")
		}
		disturbed.rollBack(before, errors.New("the disk is full"))
		if diff := cmp.Diff(answers(t, calm), answers(t, disturbed), enginetest.Comparing); diff != "" {
			t.Fatalf("answers after report %d without and with a failed report (-without +with):\n%s", i, diff)
		}
	}
	if _, _, err := search.WholeChanges(t.Context(), disturbed, 1, 10); !errors.Is(err, search.ErrExpired) {
		t.Errorf("Changes() after a failed report = %v, want ErrExpired", err)
	}
}

// TestRowsThatAnotherClusterReuses removes resources with edges of one cluster and adds resources
// of another cluster in one transaction. In this transaction, the second cluster reuses rows of the
// first cluster.
func TestRowsThatAnotherClusterReuses(t *testing.T) {
	dir := t.TempDir()
	e, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	other := reportOf("one", true, 0, 30)
	other.Cluster = "d"
	for i := range other.Put {
		other.Put[i].UID = "d" + other.Put[i].UID[1:]
		other.AddEdges[i].SourceUID = "d" + other.AddEdges[i].SourceUID[1:]
		other.AddEdges[i].DestUID = "d" + other.AddEdges[i].DestUID[1:]
	}
	if _, err := e.Apply(t.Context(), reportOf("one", true, 0, 50)); err != nil {
		t.Fatal(err)
	}
	// The writer is idle, so these reports are committed like one batch of the writer.
	var batch []*job
	for _, report := range []*search.Report{reportOf("one", true, 40, 3), other} {
		batch = append(batch, &job{report: report, done: make(chan struct{})})
	}
	e.commit(batch)
	for _, o := range batch {
		if o.err != nil {
			t.Fatal(o.err)
		}
	}
	before := answers(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if e, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if diff := cmp.Diff(before, answers(t, e), enginetest.Comparing); diff != "" {
		t.Errorf("answers after a restart (-before +after):\n%s", diff)
	}
}
