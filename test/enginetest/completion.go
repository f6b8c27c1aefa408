package enginetest

import (
	"fmt"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func textOf(values []search.ValueCount) string {
	text := ""
	for _, v := range values {
		text += fmt.Sprintf("%s %d; ", v.Value, v.Count)
	}
	return text
}

func testCompletion(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	queried(t, engine)
	values := func(request *search.CompletionRequest) string {
		return textOf(complete(t, engine, everything(), request).Values)
	}
	for _, test := range []struct{ name, property, prefix, query, want string }{
		{"ValuesByBytes", "kind", "", "", "ConfigMap 1; Deployment 1; Namespace 1; Pod 4; pod 1; "},
		{"WithQuery", "kind", "", "cluster:alpha namespace!=web", "ConfigMap 1; Deployment 1; Pod 1; "},
		{"WithKeyword", "namespace", "", "nginx", "blue 1; data 1; web 2; "},
		{"PrefixIgnoresCase", "name", "NGI", "", "Nginx-UPPER 1; nginx 1; nginx-1 1; nginx-config 1; "},
		{"Cluster", "cluster", "", "kind:Pod", "alpha 3; beta 1; "},
		{"Labels", "label", "", "", "app=api 1; app=nginx 2; app=redis 1; team=blue 1; team=red 2; "},
		{"LabelsWithPrefix", "label", "TEAM=b", "", "team=blue 1; "},
		{"ListElements", "container", "", "", "nginx 2; redis 1; sidecar 1; "},
		{"Numbers", "restarts", "", "kind:Pod", "0 1; 9 1; 10 1; 100 1; "},
		{"NumbersAndNumericStrings", "restarts", "", "", "0 1; 9 1; 10 1; 20 1; 100 1; "},
		{"Unknown", "nothing", "", "", ""},
		{"NothingMatches", "kind", "", "name:none", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := &search.CompletionRequest{Property: test.property, Prefix: test.prefix, Query: parse(t, test.query), Limit: -1}
			same(t, "values", values(request), test.want)
		})
	}
	t.Run("RangeOfNumbers", func(t *testing.T) {
		got := complete(t, engine, everything(), &search.CompletionRequest{Property: "restarts", Query: parse(t, `kind:Pod`), Limit: 1})
		same(t, "completion", got, &search.Completion{Values: []search.ValueCount{{Value: "0", Count: 1}}, More: true, Numbers: true, Min: "0", Max: "100"})
	})
	t.Run("RangeOfTimes", func(t *testing.T) {
		got := complete(t, engine, everything(), &search.CompletionRequest{Property: "created", Query: parse(t, `kind:Pod`), Limit: 1})
		same(t, "completion", got, &search.Completion{Values: []search.ValueCount{{Value: "2025-10-20T00:00:00Z", Count: 1}}, More: true, Times: true,
			Min: "2025-10-20T00:00:00Z", Max: "2025-11-01T11:30:00Z"})
	})
	t.Run("AllLabels", func(t *testing.T) {
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
	})
}

func testSchema(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	apply(t, engine, full(t, "c",
		object{"a", `{"kind":"A","created":"2025-01-01T00:00:00Z","n":1,"b":true,"map":{"x":"y"},"list":["x"],"_hidden":"x","mixed":1,"halftime":"2025-01-01T00:00:00Z"}`},
		object{"b", `{"kind":"B","mixed":"text","halftime":"soon","only":1}`},
	))
	t.Run("Types", func(t *testing.T) {
		same(t, "schema", schema(t, engine, everything(), query.Query{}), []search.PropertySchema{
			{Name: "b", Type: query.Bool}, {Name: "created", Type: query.String, Time: true}, {Name: "halftime", Type: query.String},
			{Name: "kind", Type: query.String}, {Name: "list", Type: query.List}, {Name: "map", Type: query.Map},
			{Name: "mixed", Type: query.String}, {Name: "n", Type: query.Number}, {Name: "only", Type: query.Number},
		})
	})
}
