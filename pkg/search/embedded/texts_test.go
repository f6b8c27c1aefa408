package embedded_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
)

const (
	changingResources = 1000
	changingRounds    = 40
	// keptText and changingText are the approximate lengths of the two texts of each resource.
	keptText     = 100
	changingText = 400
)

// changing returns a report of resources with one text that stays the same and one text that
// changes each round. Some texts are very long or empty.
func changing(n int) *search.Report {
	report := &search.Report{Cluster: "a", Full: n == 0}
	text := func(name string, length int) query.Property {
		return query.Property{Name: name, Leaves: []query.Leaf{{Text: strings.Repeat("x", length)}}}
	}
	for i := range changingResources {
		kept, now := text("kept", keptText), text("now", changingText)
		kept.Leaves[0].Text += fmt.Sprintf("-kept-%d", i)
		switch i % 100 {
		case 98:
			now = text("now", 20_000)
		case 99:
			now = text("now", 0)
		}
		if i%100 != 99 || n%2 == 0 {
			now.Leaves[0].Text += fmt.Sprintf("-%d-in-%d", i, n)
		}
		report.Put = append(report.Put, search.Resource{
			UID: fmt.Sprintf("a/00000000-0000-4000-8000-%012d", i), Properties: query.Properties{kept, now},
		})
	}
	return report
}

// TestMemoryOfRemovedTexts checks that the memory of removed texts is freed, and that other texts
// stay the same.
func TestMemoryOfRemovedTexts(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{ChangeLog: 1})
	written := 0
	for n := range changingRounds {
		report := changing(n)
		for i := range report.Put {
			written += len(report.Put[i].Properties[1].Leaves[0].Text)
		}
		apply(t, engine, report)
	}
	// Changes refer to the texts of at least two rounds, so these are kept. Small amounts are not
	// freed.
	if limit, size := written/4, engine.TextBytes(); size > limit {
		t.Errorf("TextBytes() after %d bytes were written = %d, want at most %d", written, size, limit)
	}
	for text, count := range map[string]int{
		fmt.Sprintf("now:*-in-%d", changingRounds-1): changingResources - changingResources/100,
		fmt.Sprintf("now:*-in-%d", changingRounds-2): 0,
		"kept:*-kept-*": changingResources,
	} {
		result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{Query: parse(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		if result.Count != count {
			t.Errorf("Search(%s): Count = %d, want %d", text, result.Count, count)
		}
	}
	before := everything(t, engine)
	closed(t, engine)
	engine = open(t, dir, embedded.Options{})
	defer closed(t, engine)
	if diff := cmp.Diff(before, everything(t, engine), enginetest.Comparing); diff != "" {
		t.Errorf("answers after a restart (-before +after):\n%s", diff)
	}
}
