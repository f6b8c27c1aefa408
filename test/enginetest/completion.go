package enginetest

import (
	"fmt"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// testCompletion checks a property with more values than an engine counts at a time.
func testCompletion(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	queried(t, engine)
	const count = 300
	report := &search.Report{Cluster: "many", Full: true, Time: now}
	for i := range count {
		report.Put = append(report.Put, delta(t, "many", object{fmt.Sprint(i),
			fmt.Sprintf(`{"kind":"Labelled","label":{"index":"%03d","all":"same","half":"%d"}}`, i, i%2)}).Put...)
	}
	apply(t, engine, report)
	request := &search.CompletionRequest{Property: query.Label, Query: parse(t, `kind:Labelled`), Limit: -1}
	got := complete(t, engine, everything(), request)
	want := []search.ValueCount{{Value: "all=same", Count: count}, {Value: "half=0", Count: count / 2}, {Value: "half=1", Count: count / 2}}
	for i := range count {
		want = append(want, search.ValueCount{Value: fmt.Sprintf("index=%03d", i), Count: 1})
	}
	same(t, "completion without a limit", got, &search.Completion{Values: want})
	request.Limit = 10
	same(t, "completion with limit 10", complete(t, engine, everything(), request), &search.Completion{Values: want[:10], More: true})
	request.Limit = count + 3
	same(t, "completion with a limit equal to the number of values", complete(t, engine, everything(), request), &search.Completion{Values: want})
}
