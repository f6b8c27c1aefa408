package graphql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/graphql"
)

// shop returns a server with a small fleet: a hub and two clusters.
func shop(t testing.TB, change ...func(*graphql.Config)) *server {
	t.Helper()
	s := serve(t, change...)
	s.report("east", []search.Edge{
		{SourceUID: "east/p1", DestUID: "east/d1", SourceKind: "Pod", DestKind: "Deployment", Type: "ownedBy"},
		{SourceUID: "east/p2", DestUID: "east/d1", SourceKind: "Pod", DestKind: "Deployment", Type: "ownedBy"},
	},
		`{"uid":"east/d1","kind":"Deployment","kind_plural":"deployments","apigroup":"apps","name":"web","namespace":"shop","ready":2}`,
		`{"uid":"east/p1","kind":"Pod","kind_plural":"pods","name":"web-1","namespace":"shop","status":"Running","restarts":9,
		  "created":"2026-03-01T11:30:00Z","label":{"team":"a","app":"web"},"container":["web","proxy"],"ready":true,"_ownerUID":"east/d1"}`,
		`{"uid":"east/p2","kind":"Pod","kind_plural":"pods","name":"web-2","namespace":"shop","status":"Failed","restarts":10,
		  "created":"2026-01-01T00:00:00Z","label":{"app":"web","note":"say \"hi\""}}`,
		`{"uid":"east/c1","kind":"ConfigMap","kind_plural":"configmaps","name":"web","namespace":"shop"}`,
		`{"uid":"east/s1","kind":"Secret","kind_plural":"secrets","name":"web-token","namespace":"shop"}`,
		`{"uid":"cluster__east","kind":"Cluster","name":"east","kubernetesVersion":"v1.36.3"}`,
	)
	s.report("west", nil,
		`{"uid":"west/p1","kind":"Pod","kind_plural":"pods","name":"db-1","namespace":"shop","status":"Running","restarts":2,"label":{"app":"db"}}`,
	)
	s.report("local-cluster", nil,
		`{"uid":"local-cluster/n1","kind":"Namespace","kind_plural":"namespaces","name":"shop","status":"Active"}`,
	)
	return s
}

func TestExchanges(t *testing.T) {
	s := shop(t, func(c *graphql.Config) {
		c.Stale = func(context.Context) ([]string, error) { return []string{"west", "east"}, nil }
	})
	const (
		schemaQuery   = `query searchSchema($query: SearchInput) { searchSchema(query: $query) }`
		completeQuery = `query searchComplete($property: String!, $query: SearchInput, $limit: Int) { searchComplete(property: $property, query: $query, limit: $limit) }`
		itemsQuery    = `query searchResultItems($input: [SearchInput]) { searchResult: search(input: $input) { items __typename } }`
		countQuery    = `query searchResultCount($input: [SearchInput]) { searchResult: search(input: $input) { count } }`
		relatedCount  = `query searchResultRelatedCount($input: [SearchInput]) { searchResult: search(input: $input) { related { kind count } } }`
		relatedItems  = `query searchResultRelatedItems($input: [SearchInput]) { searchResult: search(input: $input) { related { kind items } } }`
		messagesQuery = `query getMessages { messages { id kind description } }`
	)
	tests := []struct{ name, caller, query, variables, want string }{
		{
			"the schema of the caller's resources", "jane", schemaQuery, `{}`,
			`{"data":{"searchSchema":{"allProperties":["cluster","kind","label","name","namespace","status",
			  "apigroup","container","created","kind_plural","kubernetesVersion","ready","restarts"]}}}`,
		},
		{
			"the schema under a filter", "admin", schemaQuery, `{"query":{"filters":[{"property":"kind","values":["ConfigMap"]}]}}`,
			`{"data":{"searchSchema":{"allProperties":["cluster","kind","label","name","namespace","status","kind_plural"]}}}`,
		},
		{
			"completion of texts", "jane", completeQuery, `{"property":"kind"}`,
			`{"data":{"searchComplete":["Cluster","ConfigMap","Deployment","Pod"]}}`,
		},
		{
			"completion under a filter", "admin", completeQuery, `{"property":"status","query":{"filters":[{"property":"cluster","values":["west"]}]}}`,
			`{"data":{"searchComplete":["Running"]}}`,
		},
		{
			"completion of clusters", "admin", completeQuery, `{"property":"cluster"}`,
			`{"data":{"searchComplete":["east","local-cluster","west"]}}`,
		},
		{
			"completion of numbers", "admin", completeQuery, `{"property":"restarts"}`,
			`{"data":{"searchComplete":["isNumber","2","10"]}}`,
		},
		{
			"completion of one number", "admin", completeQuery, `{"property":"restarts","query":{"keywords":["db"]}}`,
			`{"data":{"searchComplete":["isNumber","2"]}}`,
		},
		{
			"completion of times", "admin", completeQuery, `{"property":"created"}`,
			`{"data":{"searchComplete":["isDate"]}}`,
		},
		{
			"completion of labels", "admin", completeQuery, `{"property":"label"}`,
			`{"data":{"searchComplete":["app=db","app=web","note=say \"hi\"","team=a"]}}`,
		},
		{
			"completion with a limit", "admin", completeQuery, `{"property":"label","limit":1}`,
			`{"data":{"searchComplete":["app=db"]}}`,
		},
		{
			"completion of an unknown property", "jane", completeQuery, `{"property":"nothing"}`,
			`{"data":{"searchComplete":[]}}`,
		},
		{
			"items as texts", "jane", itemsQuery, `{"input":[{"filters":[{"property":"kind","values":["Pod"]},{"property":"name","values":["web-1"]}]}]}`,
			`{"data":{"searchResult":[{"items":[{"_uid":"east/p1","cluster":"east","kind":"Pod","kind_plural":"pods","name":"web-1",
			  "namespace":"shop","status":"Running","restarts":"9","created":"2026-03-01T11:30:00Z","label":"app=web; team=a",
			  "container":"proxy; web","ready":"true","_ownerUID":"east/d1"}],"__typename":"SearchResult"}]}}`,
		},
		{
			"quotes in items", "jane", itemsQuery, `{"input":[{"filters":[{"property":"label","values":["note=say \"hi\""]}]}]}`,
			`{"data":{"searchResult":[{"items":[{"_uid":"east/p2","cluster":"east","kind":"Pod","kind_plural":"pods","name":"web-2",
			  "namespace":"shop","status":"Failed","restarts":"10","created":"2026-01-01T00:00:00Z",
			  "label":"app=web; note=say \"hi\""}],"__typename":"SearchResult"}]}}`,
		},
		{
			"items of the hub", "admin", itemsQuery, `{"input":[{"filters":[{"property":"kind","values":["Namespace"]}]}]}`,
			`{"data":{"searchResult":[{"items":[{"_uid":"local-cluster/n1","cluster":"local-cluster","_hubClusterResource":"true",
			  "kind":"Namespace","kind_plural":"namespaces","name":"shop","status":"Active"}],"__typename":"SearchResult"}]}}`,
		},
		{
			"several searches", "admin", countQuery,
			`{"input":[{"filters":[{"property":"kind","values":["Pod","Deployment"]}]},{"keywords":["web"]},{"filters":[{"property":"kind","values":["pod"]}]}]}`,
			`{"data":{"searchResult":[{"count":4},{"count":4},{"count":3}]}}`,
		},
		{
			"one search without a list", "admin", `{ search(input: {keywords: ["db"]}) { count } }`, "",
			`{"data":{"search":[{"count":1}]}}`,
		},
		{
			"Secrets, which the caller cannot list", "jane", countQuery,
			`{"input":[{"keywords":["db"]},{"filters":[{"property":"kind","values":["Secret"]}]},{"filters":[{"property":"cluster","values":["west"]}]}]}`,
			`{"data":{"searchResult":[{"count":0},{"count":0},{"count":0}]}}`,
		},
		{
			"user without permissions", "eve", countQuery, `{"input":[{"filters":[{"property":"kind","values":["!=x"]}]}]}`,
			`{"data":{"searchResult":[{"count":0}]}}`,
		},
		{
			"counts of related resources", "jane", relatedCount, `{"input":[{"filters":[{"property":"kind","values":["Deployment"]}]}]}`,
			`{"data":{"searchResult":[{"related":[{"kind":"Cluster","count":1},{"kind":"Pod","count":2}]}]}}`,
		},
		{
			"kinds of related resources", "jane", relatedCount,
			`{"input":[{"filters":[{"property":"kind","values":["Deployment"]}],"relatedKinds":["pod"]}]}`,
			`{"data":{"searchResult":[{"related":[{"kind":"Pod","count":2}]}]}}`,
		},
		{
			"related resources", "jane", relatedItems,
			`{"input":[{"filters":[{"property":"name","values":["web-2"]}],"relatedKinds":["deployment","cluster"]}]}`,
			`{"data":{"searchResult":[{"related":[
			  {"kind":"Cluster","items":[{"_uid":"cluster__east","cluster":"east","kind":"Cluster","name":"east",
			   "kubernetesVersion":"v1.36.3","_relatedUids":["east/p2"]}]},
			  {"kind":"Deployment","items":[{"_uid":"east/d1","cluster":"east","kind":"Deployment","kind_plural":"deployments",
			   "apigroup":"apps","name":"web","namespace":"shop","ready":"2","_relatedUids":["east/p2"]}]}]}]}}`,
		},
		{
			"the contents of a cluster", "jane", relatedCount, `{"input":[{"filters":[{"property":"kind","values":["cluster"]}]}]}`,
			`{"data":{"searchResult":[{"related":[{"kind":"ConfigMap","count":1},{"kind":"Deployment","count":1},{"kind":"Pod","count":2}]}]}}`,
		},
		{
			"the Deployments of a cluster", "admin", relatedItems,
			`{"input":[{"filters":[{"property":"kind","values":["Cluster"]},{"property":"name","values":["east","west"]}],"relatedKinds":["deployment"]}]}`,
			`{"data":{"searchResult":[{"related":[
			  {"kind":"Deployment","items":[{"_uid":"east/d1","cluster":"east","kind":"Deployment","kind_plural":"deployments",
			   "apigroup":"apps","name":"web","namespace":"shop","ready":"2","_relatedUids":["cluster__east"]}]}]}]}}`,
		},
		{
			"the contents of a cluster of others", "eve", relatedCount, `{"input":[{"filters":[{"property":"kind","values":["Cluster"]}]}]}`,
			`{"data":{"searchResult":[{"related":[]}]}}`,
		},
		{
			"items that are related to the returned items", "jane",
			`query ($input: [SearchInput]) { search(input: $input) { items related { kind count items } } }`,
			`{"input":[{"filters":[{"property":"kind","values":["Pod"]},{"property":"name","values":["web-*"]}],"orderBy":"name desc","limit":1}]}`,
			`{"data":{"search":[{"items":[{"_uid":"east/p2","cluster":"east","kind":"Pod","kind_plural":"pods","name":"web-2","namespace":"shop",
			   "status":"Failed","restarts":"10","created":"2026-01-01T00:00:00Z","label":"app=web; note=say \"hi\""}],
			 "related":[
			  {"kind":"Cluster","count":1,"items":[{"_uid":"cluster__east","cluster":"east","kind":"Cluster","name":"east",
			   "kubernetesVersion":"v1.36.3","_relatedUids":["east/p2"]}]},
			  {"kind":"Deployment","count":1,"items":[{"_uid":"east/d1","cluster":"east","kind":"Deployment","kind_plural":"deployments",
			   "apigroup":"apps","name":"web","namespace":"shop","ready":"2","_relatedUids":["east/p2"]}]}]}]}}`,
		},
		{
			"items that are related to none of the returned items", "jane",
			`query ($input: [SearchInput]) { search(input: $input) { related { kind count items } } }`,
			`{"input":[{"filters":[{"property":"kind","values":["Pod","ConfigMap"]}],"orderBy":"kind","limit":1,"relatedKinds":["deployment"]}]}`,
			`{"data":{"search":[{"related":[{"kind":"Deployment","count":1,"items":[]}]}]}}`,
		},
		{
			"messages about the caller's clusters", "jane", messagesQuery, "",
			`{"data":{"messages":[{"id":"S20","kind":"information",
			  "description":"Search is off on some managed clusters, or they have not reported recently: east."}]}}`,
		},
		{"messages about clusters of others", "eve", messagesQuery, "", `{"data":{"messages":[]}}`},
		{
			"a fragment and a directive", "admin",
			`query($with: Boolean = false) { search(input: [{keywords: ["db"]}]) { ...f items @include(if: $with) } } fragment f on SearchResult { n: count }`, "",
			`{"data":{"search":[{"n":1}]}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			same(t, "answer", s.ask(test.caller, test.query, test.variables), test.want)
		})
	}
}

// TestFlaws checks queries to which the public search service returns wrong results.
func TestFlaws(t *testing.T) {
	s := shop(t)
	tests := []struct{ name, input, field, want string }{
		{"two keywords in two properties", `{"keywords":["web-1","running"]}`, "count", `{"count":1}`},
		{"count of resources, not of values", `{"keywords":["web"]}`, "count", `{"count":4}`},
		{"unequal status matches resources without a status", `{"filters":[{"property":"status","values":["!=Running"]},{"property":"kind","values":["ConfigMap"]}]}`, "count", `{"count":1}`},
		{"several negative values", `{"filters":[{"property":"kind","values":["Pod"]},{"property":"name","values":["!=web-1","!=web-2"]}]}`, "count", `{"count":1}`},
		{"exact count with a limit", `{"limit":1,"filters":[{"property":"kind","values":["Pod"]}]}`, "count", `{"count":3}`},
		{"a label without a value", `{"filters":[{"property":"label","values":["note"]}]}`, "count", `{"count":1}`},
		{"a label with a wildcard", `{"filters":[{"property":"label","values":["app=w*"]}]}`, "count", `{"count":2}`},
		{"wildcards of SQL", `{"filters":[{"property":"name","values":["web_1"]}]}`, "count", `{"count":0}`},
		{"an unknown property", `{"filters":[{"property":"nothing","values":["x"]}]}`, "count", `{"count":0}`},
		{"newer than an hour", `{"filters":[{"property":"created","values":["hour"]}]}`, "count", `{"count":1}`},
		{"comparison of numbers", `{"filters":[{"property":"restarts","values":[">9"]}]}`, "count", `{"count":1}`},
		{
			"related resources with a limit", `{"limit":1,"filters":[{"property":"kind","values":["Deployment","ConfigMap"]}],"relatedKinds":["Pod"]}`,
			"related { kind count }", `{"related":[{"kind":"Pod","count":2}]}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := s.ask("admin", `query($input: [SearchInput]) { search(input: $input) { `+test.field+` } }`, `{"input":[`+test.input+`]}`)
			same(t, "answer", got, `{"data":{"search":[`+test.want+`]}}`)
		})
	}
	t.Run("order of numbers", func(t *testing.T) {
		got := names(t, s.ask("admin", `{ search(input: {filters: [{property: "kind", values: ["Pod"]}], orderBy: "restarts desc"}) { items } }`, ""))
		if want := "web-2 web-1 db-1"; got != want {
			t.Errorf("order = %s, want %s", got, want)
		}
	})
	t.Run("pages", func(t *testing.T) {
		got := names(t, s.ask("admin", `{ search(input: {filters: [{property: "kind", values: ["Pod"]}], orderBy: "name asc", offset: 1, limit: 1}) { items } }`, ""))
		if want := "web-1"; got != want {
			t.Errorf("items of the page = %s, want %s", got, want)
		}
	})
	t.Run("completion of all labels", func(t *testing.T) {
		const pods = 3000
		var resources []string
		for i := range pods {
			resources = append(resources, fmt.Sprintf(`{"uid":"north/%d","kind":"Pod","name":"p-%d","label":{"app":"all","pod":"%d"}}`, i, i, i))
		}
		s.report("north", nil, resources...)
		for limit, want := range map[int]int{-1: pods + 1, 0: 1000, 5: 5} {
			answer := s.ask("admin", `query($limit: Int) { searchComplete(property: "label", limit: $limit, query: {filters: [{property: "cluster", values: ["north"]}]}) }`, fmt.Sprintf(`{"limit":%d}`, limit))
			var got struct {
				Data struct{ SearchComplete []string }
			}
			if err := json.Unmarshal([]byte(answer), &got); err != nil {
				t.Fatal(err)
			}
			if n := len(got.Data.SearchComplete); n != want {
				t.Errorf("searchComplete with limit %d returned %d values, want %d", limit, n, want)
			}
		}
		for limit, want := range map[string]int{"": 1000, "limit: 2000,": 2000, "limit: -1,": pods} {
			answer := s.ask("admin", `{ search(input: {`+limit+` filters: [{property: "cluster", values: ["north"]}]}) { count items } }`, "")
			var got struct {
				Data struct {
					Search []struct {
						Count int
						Items []map[string]string
					}
				}
			}
			if err := json.Unmarshal([]byte(answer), &got); err != nil {
				t.Fatal(err)
			}
			if found := got.Data.Search[0]; len(found.Items) != want || found.Count != pods {
				t.Errorf("search with limit %q returned %d items of %d, want %d of %d", limit, len(found.Items), found.Count, want, pods)
			}
		}
	})
}

// names returns the names of the items of the first search.
func names(t testing.TB, answer string) string {
	t.Helper()
	var got struct {
		Data struct {
			Search []struct{ Items []struct{ Name string } }
		}
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Data.Search) == 0 {
		t.Fatalf("%v in response %s, want a result", err, answer)
	}
	var out []string
	for _, item := range got.Data.Search[0].Items {
		out = append(out, item.Name)
	}
	return strings.Join(out, " ")
}

func TestRefusals(t *testing.T) {
	s := shop(t)
	many := strings.Repeat(`{"keywords":["a"]},`, 100) + `{"keywords":["a"]}`
	const ask = `query($input: [SearchInput]) { search(input: $input) { count } }`
	introspection := `{ __schema { types { ` + strings.Repeat(`fields { type { `, 7) + `name` + strings.Repeat(` } }`, 7) + ` } } }`
	tests := []struct {
		name, contentType, body string
		code                    int
		want                    string
	}{
		{"neither keyword nor filter", "", string(operation(t, ask, `{"input":[{}]}`)), 200, "must contain a filter or keyword"},
		{"only a filter without values", "", string(operation(t, ask, `{"input":[{"filters":[{"property":"kind","values":[]}]}]}`)), 200, "must contain a filter or keyword"},
		{"too many searches", "", string(operation(t, ask, `{"input":[`+many+`]}`)), 200, "more than 100"},
		{"a bad order", "", string(operation(t, ask, `{"input":[{"keywords":["a"],"orderBy":"name up"}]}`)), 200, "orderBy"},
		{"an order by no property", "", string(operation(t, ask, `{"input":[{"keywords":["a"],"orderBy":"a,b"}]}`)), 200, `orderBy: "a,b" is not the name of a property`},
		{"an order by a long property", "", string(operation(t, ask, `{"input":[{"keywords":["a"],"orderBy":"`+strings.Repeat("a", 129)+`"}]}`)), 200, "orderBy: must have at most 128 bytes"},
		{"a completion of no property", "", string(operation(t, `{ searchComplete(property: "a b") }`, "")), 200, `property: "a b" is not the name of a property`},
		{"a completion of a long property", "", string(operation(t, `{ searchComplete(property: "`+strings.Repeat("a", 129)+`") }`, "")), 200, "property: must have at most 128 bytes"},
		{"a bad offset", "", string(operation(t, ask, `{"input":[{"keywords":["a"],"offset":-1}]}`)), 200, "offset"},
		{"a syntax error", "", string(operation(t, `{ search`, "")), 422, "syntax error"},
		{"an unknown field", "", string(operation(t, `{ nothing }`, "")), 422, "nothing"},
		{"a mutation", "", string(operation(t, `mutation { search }`, "")), 422, "mutation"},
		{"a subscription", "", string(operation(t, `subscription { watch { uid } }`, "")), 422, "WebSocket"},
		{"endless introspection", "", string(operation(t, introspection, "")), 422, "members of types"},
		{"several operations at once", "", `[{"query":"{messages{id}}"}]`, 400, "batches of operations"},
		{"no query", "", `{}`, 400, "no query"},
		{"no JSON", "", `query`, 400, "decoding"},
		{"a form of a web page", "text/plain", string(operation(t, `{ messages { id } }`, "")), 415, "application/json"},
		{"a large request", "", `{"query":"` + strings.Repeat(" ", 1<<20) + `"}`, 413, "larger"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			contentType := test.contentType
			if contentType == "" {
				contentType = "application/json; charset=utf-8"
			}
			code, answer := s.post("admin", contentType, []byte(test.body))
			var got struct{ Errors []struct{ Message string } }
			if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Errors) == 0 {
				t.Fatalf("%v in response %s, want an error", err, answer)
			}
			if code != test.code || !strings.Contains(got.Errors[0].Message, test.want) {
				t.Errorf("status = %d, error = %q, want %d, %q", code, got.Errors[0].Message, test.code, test.want)
			}
		})
	}
	t.Run("without a user", func(t *testing.T) {
		if code, answer := s.post("", "application/json", operation(t, `{ messages { id } }`, "")); code != http.StatusUnauthorized {
			t.Errorf("status = %d, want 401: %s", code, answer)
		}
	})
	t.Run("another method", func(t *testing.T) {
		asked, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if code, answer := s.do("admin", asked); code != http.StatusMethodNotAllowed {
			t.Errorf("status = %d, want 405: %s", code, answer)
		}
	})
}

func TestGet(t *testing.T) {
	s := shop(t)
	given := url.Values{
		"query":         {`query a { messages { id } } query b($input: [SearchInput]) { search(input: $input) { count } }`},
		"operationName": {"b"}, "variables": {`{"input":[{"keywords":["db"]}]}`},
	}
	asked, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"?"+given.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	code, answer := s.do("admin", asked)
	if code != http.StatusOK {
		t.Errorf("status = %d, want 200", code)
	}
	same(t, "answer", answer, `{"data":{"search":[{"count":1}]}}`)
}

// TestIntrospection sends the queries that tools use to read the schema.
func TestIntrospection(t *testing.T) {
	s := serve(t)
	answer := s.ask("jane", `query IntrospectionQuery { __schema { queryType { name } subscriptionType { name } types { ...FullType } directives { name args { ...InputValue } } } }
fragment FullType on __Type { kind name description fields(includeDeprecated: true) { name args { ...InputValue } type { ...TypeRef } isDeprecated }
  inputFields { ...InputValue } interfaces { ...TypeRef } enumValues(includeDeprecated: true) { name } possibleTypes { ...TypeRef } }
fragment InputValue on __InputValue { name type { ...TypeRef } defaultValue }
fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } }`, "")
	for _, want := range []string{"SearchInput", "SearchRelatedResult", "relatedKinds", "oldData", "searchComplete"} {
		if !strings.Contains(answer, `"`+want+`"`) {
			t.Errorf("introspected schema does not contain %s", want)
		}
	}
}

// TestItemsOfOneRequestAreBounded checks a short document that runs many searches with aliases.
// Their items are in memory at the same time.
func TestItemsOfOneRequestAreBounded(t *testing.T) {
	s := serve(t)
	var pods []string
	for i := range 10_100 {
		pods = append(pods, fmt.Sprintf(`{"uid":"east/%d","kind":"Pod","name":"pod-%d"}`, i, i))
	}
	s.report("east", nil, pods...)
	document := func(searches int, fields string) string {
		var b strings.Builder
		b.WriteString(`query($input: [SearchInput]) {`)
		for i := range searches {
			fmt.Fprintf(&b, ` s%d: search(input: $input) { %s }`, i, fields)
		}
		return b.String() + ` }`
	}
	const input = `{"input":[{"keywords":["pod"],"limit":-1}]}`
	for _, test := range []struct {
		name, document string
		refused        bool
	}{
		{"one", document(1, "items"), false},
		{"a hundred", document(100, "items"), true},
		{"a hundred that only count", document(100, "count"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer := s.ask("admin", test.document, input)
			if got := strings.Contains(answer, "the search is too expensive"); got != test.refused {
				t.Errorf("rejected = %v, want %v; %d bytes: %.300s", got, test.refused, len(answer), answer)
			}
		})
	}
}

// TestRelatedOfApplications checks that searches that concern applications follow three edges, but not beyond Nodes.
func TestRelatedOfApplications(t *testing.T) {
	s := serve(t)
	edge := func(source, dest string) search.Edge {
		return search.Edge{SourceUID: "east/" + source, DestUID: "east/" + dest, Type: "attachedTo"}
	}
	s.report("east", []search.Edge{edge("a", "s"), edge("d", "s"), edge("p", "d"), edge("p", "n"), edge("q", "n"), edge("d", "x")},
		`{"uid":"east/a","kind":"Application","name":"shop"}`, `{"uid":"east/s","kind":"Subscription","name":"shop"}`,
		`{"uid":"east/d","kind":"Deployment","name":"web"}`, `{"uid":"east/p","kind":"Pod","name":"web-1"}`,
		`{"uid":"east/n","kind":"Node","name":"n1"}`, `{"uid":"east/q","kind":"Job","name":"other"}`, `{"uid":"east/x","kind":"Service","name":"web"}`,
	)
	const items = `query($input: [SearchInput]) { search(input: $input) { related { kind items } } }`
	item := func(kind, uid, name, origin string) string {
		return fmt.Sprintf(`{"kind":%[1]q,"items":[{"_uid":"east/%[2]s","cluster":"east","kind":%[1]q,"name":%[3]q,"_relatedUids":["east/%[4]s"]}]}`, kind, uid, name, origin)
	}
	for _, test := range []struct {
		name, input string
		want        []string
	}{
		{"of an application", `{"filters":[{"property":"kind","values":["application"]}]}`, []string{
			item("Deployment", "d", "web", "a"), item("Pod", "p", "web-1", "a"), item("Service", "x", "web", "a"), item("Subscription", "s", "shop", "a"),
		}},
		{"applications of a Pod", `{"filters":[{"property":"kind","values":["Pod"]}],"relatedKinds":["Application"]}`, []string{item("Application", "a", "shop", "p")}},
		{"of a Deployment", `{"filters":[{"property":"kind","values":["Deployment"]}]}`, []string{
			item("Pod", "p", "web-1", "d"), item("Service", "x", "web", "d"), item("Subscription", "s", "shop", "d"),
		}},
		{"a Job on the Node of a Pod", `{"filters":[{"property":"kind","values":["Pod"]}],"relatedKinds":["Application","Job"]}`, []string{
			item("Application", "a", "shop", "p"),
		}},
	} {
		_, got := s.post("admin", "application/json", operation(t, items, `{"input":[`+test.input+`]}`))
		same(t, test.name, got, `{"data":{"search":[{"related":[`+strings.Join(test.want, ",")+`]}]}}`)
	}
}
