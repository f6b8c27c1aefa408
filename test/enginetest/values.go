package enginetest

import (
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
	const typed = `{"b":false,"deep":{"a":{"b":[1,2]},"n":1},"emptyList":[],"emptyMap":{},"f":1.50,"kind":"Typed","list":["a",1,true,[2],{"c":3}],"n":12345678901234567890}`
	apply(t, engine, delta(t, "c", object{"typed", typed}))
	item := get(t, engine, everything(), "c/typed")
	if item == nil {
		t.Fatal("Get(c/typed) = nil, want an item")
	}
	same(t, "JSON of c/typed", string(item.JSON()), typed)
	for _, value := range nastyValues {
		if item := get(t, engine, everything(), "c/x"+value); item != nil {
			t.Errorf("Get(c/x%s) = %s, want nil", value, item.UID)
		}
		if completion := complete(t, engine, everything(), &search.CompletionRequest{Property: "x" + value, Limit: -1}); len(completion.Values) > 0 {
			t.Errorf("Complete(x%s) = %v, want no values", value, completion.Values)
		}
	}
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
