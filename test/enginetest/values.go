package enginetest

import (
	"encoding/json"
	"fmt"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// nastyValues contains texts with a special meaning in SQL, JSON, patterns or shells. An engine must
// treat them as data.
var nastyValues = []string{
	`it's`, `say "hi"`, `100%`, `a_b`, `a*b`, `*`, `%`, `_`, `back\slash`, `\`, `\*`, `{"a":1}`, `[1]`, `null`, `true`, `1`, `1.0`, `1e3`, `-0`,
	`a=b`, `=`, `a,b`, `a;b`, `<&>`, `$1`, `'; DROP TABLE resources; --`, ` lead and trail `, "tab\there", "new\nline", "nul\x00byte", "bell\x07",
	`ünïcödé`, `日本語`, `😀`, "\u2028", `ÅNGSTRÖM`, ``, `a-very-long-value-` + long,
}

var long = func() string {
	text := make([]byte, 3000)
	for i := range text {
		text[i] = 'a' + byte(i*i%26)
	}
	return string(text)
}()

func testValues(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	report := &search.Report{Cluster: "c", Full: true, Time: now}
	for i, value := range nastyValues {
		properties, err := json.Marshal(map[string]any{
			"kind": "Thing", "name": fmt.Sprintf("thing-%d", i), "value": value, "list": []string{"first", value},
			"label": map[string]string{"key": value, "k" + value: "x"},
		})
		if err != nil {
			t.Fatal(err)
		}
		report.Put = append(report.Put, search.Resource{UID: fmt.Sprintf("c/%d", i), Properties: decode(t, string(properties))})
	}
	apply(t, engine, report)
	for i, value := range nastyValues {
		for _, f := range []struct{ name, property, text string }{
			{"Value", "value", value}, {"ListElement", "list", value}, {"Label", "label", "key=" + value}, {"LabelKey", "label", "k" + value},
		} {
			t.Run(fmt.Sprintf("%s/%.20q", f.name, value), func(t *testing.T) {
				q := query.Query{Filters: []query.Filter{{Property: f.property, Comparisons: []query.Comparison{query.NewComparison(query.Equal, f.text)}}}}
				found := findAll(t, engine, everything(), q)
				same(t, "found with "+f.text, found, matching(report, &q))
				if own := fmt.Sprintf("c/%d", i); !contains(found, own) && !keyIsPair(f.name, value) {
					t.Errorf("Search(%s = %q) = %v, want %s included", f.property, f.text, found, own)
				}
			})
		}
		if value == "" {
			continue
		}
		t.Run(fmt.Sprintf("Keyword/%.20q", value), func(t *testing.T) {
			q := query.Query{Keywords: []string{value}}
			same(t, "found with the keyword "+value, findAll(t, engine, everything(), q), matching(report, &q))
		})
		t.Run(fmt.Sprintf("Pattern/%.20q", value), func(t *testing.T) {
			q := query.Query{Filters: []query.Filter{{Property: "value", Comparisons: []query.Comparison{query.NewPattern(query.Equal, value+"*")}}}}
			same(t, "found with the pattern "+value+"*", findAll(t, engine, everything(), q), matching(report, &q))
		})
	}
	t.Run("ItemsAreAsReported", func(t *testing.T) {
		for i := range report.Put {
			resource := &report.Put[i]
			item := get(t, engine, everything(), resource.UID)
			if item == nil {
				t.Errorf("Get(%s) = nil, want an item", resource.UID)
				continue
			}
			same(t, resource.UID, string(item.JSON()), string(resource.Properties.AppendJSON(nil)))
		}
	})
	t.Run("UnknownUIDsReturnNil", func(t *testing.T) {
		for _, value := range nastyValues {
			if item := get(t, engine, everything(), "c/x"+value); item != nil {
				t.Errorf("Get(c/x%s) = %s, want nil", value, item.UID)
			}
		}
	})
	t.Run("PropertyNamesAreData", func(t *testing.T) {
		for _, value := range nastyValues {
			q := query.Query{Filters: []query.Filter{{Property: "x" + value, Comparisons: []query.Comparison{query.NewComparison(query.Equal, "x")}}}}
			same(t, "property x"+value, findAll(t, engine, everything(), q), []string(nil))
			if completion := complete(t, engine, everything(), &search.CompletionRequest{Property: "x" + value, Limit: -1}); len(completion.Values) > 0 {
				t.Errorf("Complete(x%s) = %v, want no values", value, completion.Values)
			}
		}
	})
	t.Run("Types", func(t *testing.T) {
		const typed = `{"b":false,"deep":{"a":{"b":[1,2]},"n":1},"emptyList":[],"emptyMap":{},"f":1.50,"kind":"Typed","list":["a",1,true,[2],{"c":3}],"n":12345678901234567890}`
		apply(t, engine, delta(t, "c", object{"typed", typed}))
		item := get(t, engine, everything(), "c/typed")
		if item == nil {
			t.Fatal("Get(c/typed) = nil, want an item")
		}
		same(t, "JSON of c/typed", string(item.JSON()), typed)
	})
}

// keyIsPair reports whether an engine interprets a query for a key as a query for a key and a value.
func keyIsPair(name, value string) bool {
	return name == "LabelKey" && (value == "=" || value == "a=b")
}

// matching returns the sorted UIDs of the resources that match a query.
func matching(report *search.Report, q *query.Query) []string {
	var uids []string
	for i := range report.Put {
		if q.Matches(report.Cluster, report.Put[i].Properties, now) {
			uids = append(uids, report.Put[i].UID)
		}
	}
	return sorted(uids)
}
