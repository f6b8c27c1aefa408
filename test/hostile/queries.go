package hostile

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

func get(as Identity, path string, query url.Values) Input {
	return Input{Requests: []Request{{As: as, Method: "GET", Path: path + "?" + query.Encode()}}}
}

func post(as Identity, path string, body any) Input {
	return Input{Requests: []Request{{As: as, Method: "POST", Path: path, Body: encode(body)}}}
}

// queryLength is the maximum length of a query in a URL that the server accepts.
const queryLength = 600_000

func selectorClasses() []Class {
	listed := []string{worksPath, permissionsPath, accountsPath, searchPath + "/fleetresources", searchPath + "/inventories"}
	selector := func(language, parameter, name string, generate func(*Gen) string) Class {
		return Class{language, name, func(g *Gen) Input {
			text := generate(g)
			for len(url.QueryEscape(text)) > queryLength {
				text = text[:len(text)/2]
			}
			query := url.Values{parameter: {text}}
			if g.IntN(4) == 0 {
				query.Set("watch", "true")
				query.Set("timeoutSeconds", "1")
			}
			return get(Tenant, pick(g, listed...), query)
		}}
	}
	return []Class{
		selector("labelselector", "labelSelector", "many requirements", func(g *Gen) string {
			part := pick(g, "k%=v", "k%", "!k%", "k% in (a,b,c)", "k% notin (a)", "k%>1", "k%!=v", "k=v", "")
			return each(g.upTo(1, 50_000), ",", func(i int) string { return fill(part, strconv.Itoa(i)) })
		}),
		selector("labelselector", "labelSelector", "many values", func(g *Gen) string {
			return "k in (" + each(g.upTo(1, 100_000), ",", strconv.Itoa) + ")"
		}),
		selector("labelselector", "labelSelector", "malformed", func(g *Gen) string {
			return strings.Repeat(pick(g, "(", ")", "!", "=", "in ", ",", "a", "/", "a/", " ", "\u0000", "\U0001F600", "k in (", "'"), g.upTo(1, 200_000))
		}),
		selector("fieldselector", "fieldSelector", "many terms", func(g *Gen) string {
			return each(g.upTo(1, 50_000), ",", func(int) string {
				return pick(g, "metadata.name=x", "metadata.namespace!=x", "metadata.name==hostile", "spec.x=1", "metadata.name=a\\,b\\=c\\\\")
			})
		}),
		selector("fieldselector", "fieldSelector", "malformed", func(g *Gen) string {
			return "metadata.name=" + strings.Repeat(pick(g, "\\", "\\\\", "=", ",", "!=", "\\x", "a", "\U0001F600", "\\,"), g.upTo(1, 200_000))
		}),
		{"listoptions", "continue and versions", func(g *Gen) Input {
			text := strings.Repeat(pick(g, "A", "9", "=", "-", "\u0000", "eyJ2Ijoi"), g.upTo(1, 100_000))
			return get(Tenant, pick(g, listed...), url.Values{pick(g, "continue", "resourceVersion", "limit", "timeoutSeconds", "resourceVersionMatch", "sendInitialEvents"): {text}})
		}},
	}
}

func searchClasses() []Class {
	search := func(name string, generate func(*Gen) fields) Class {
		return Class{"search", name, func(g *Gen) Input {
			return post(Tenant, searchPath+"/searches", fields{"apiVersion": "search.open-cluster-management.io/v1alpha1", "kind": "Search", "spec": fields{"searches": []any{generate(g)}}})
		}}
	}
	text := func(name string, generate func(*Gen) string) Class {
		return search(name, func(g *Gen) fields {
			return fields{"query": within(pick(g, 7_900, 200_000), 1, func(int) string { return generate(g) }), "output": pick(g, "Items", "Count", "Related")}
		})
	}
	wildcard := func(g *Gen) string {
		return strings.Repeat(pick(g, "a*", "*", "*a*", "?*", "v*v", "**"), g.upTo(1, 2000))
	}
	return []Class{
		text("many terms", func(g *Gen) string {
			part := pick(g, "a%", "kind:Pod%", "name:*%*", "label:k%=v", "namespace!=n%", "restarts>%", "created:>%", "\"a%\"", "name:a%,b%,c%", "-a%", "!%")
			return each(g.upTo(1, 20_000), " ", func(i int) string { return fill(part, strconv.Itoa(i)) })
		}),
		text("wildcards", func(g *Gen) string { return pick(g, "name:", "label:", "kind:", "", "text:") + wildcard(g) }),
		text("malformed", func(g *Gen) string {
			return "name:" + strings.Repeat(pick(g, "\\", "\"", "'", "!", "=", "<", ":", ",", "\\\"", "'\"", "\U0001F600", "\u3000", "a:", "<>=!"), g.upTo(1, 100_000))
		}),
		text("values that compare", func(g *Gen) string {
			return pick(g, "restarts>", "restarts:<", "created>", "size=", "cpu<=") + strings.Repeat(pick(g, "9", "1e", "0.", "1.", "-", "Ei"), g.upTo(1, 7_000))
		}),
		search("filters", func(g *Gen) fields {
			var filters []any
			for i := range g.upTo(1, 10_000) {
				values := []string{}
				for range 1 + g.IntN(20) {
					values = append(values, pick(g, "Pod", "*", "a*b*c", "!x", ">1", strings.Repeat("v", 1+g.IntN(200)), "year"))
				}
				filters = append(filters, fields{"property": pick(g, "kind", "name", "label", "created", "annotation", "p"+strconv.Itoa(i)), "operator": pick(g, "", "=", "!=", "<", ">="), "values": values})
			}
			return fields{"filters": filters}
		}),
		search("one filter of many wildcards", func(g *Gen) fields {
			values := []string{}
			for i := range g.upTo(1, 5_000) {
				values = append(values, "*"+strconv.Itoa(i)+"*"+pick(g, "a", "v", "x")+"*")
			}
			return fields{"filters": []any{fields{"property": pick(g, "name", "label", "value", "text"), "values": values}}, "output": "Related"}
		}),
		search("keywords", func(g *Gen) fields {
			words := []string{}
			for range g.upTo(1, 20_000) {
				words = append(words, pick(g, "a", "v", "*", strings.Repeat("a", 1+g.IntN(300)), "\U0001F600"))
			}
			return fields{"keywords": words}
		}),
		search("orders and limits", func(g *Gen) fields {
			orders := []string{}
			for range g.upTo(1, 5_000) {
				orders = append(orders, pick(g, "name", "value desc", "text asc", "nothing", strings.Repeat("a", 100)))
			}
			return fields{"orderBy": orders, "limit": pick(g, -1, 0, 2147483647, 1000), "offset": pick(g, 0, 2147483647, 100_000), "output": "Related", "relatedLimit": -1, "relatedKinds": orders}
		}),
		search("everything, ordered", func(g *Gen) fields {
			return fields{"orderBy": []string{pick(g, "name", "value desc", "text", "created desc")}, "limit": pick(g, -1, 1000, 100_000), "output": pick(g, "Items", "Related"), "relatedLimit": pick(g, -1, 1000),
				"countBy": pick(g, "", "kind", "name", "label", "value")}
		}),
		{"search", "many searches", func(g *Gen) Input {
			var searches []any
			for range g.upTo(1, 2_000) {
				searches = append(searches, fields{"query": pick(g, "a", "kind:Pod", "name:*a*", "*v*"), "output": "Related", "limit": pick(g, -1, 1000)})
			}
			return post(Tenant, searchPath+"/searches", fields{"apiVersion": "search.open-cluster-management.io/v1alpha1", "kind": "Search", "spec": fields{"searches": searches}})
		}},
		{"search", "completions", func(g *Gen) Input {
			return post(Tenant, searchPath+"/searchcompletions", fields{"apiVersion": "search.open-cluster-management.io/v1alpha1", "kind": "SearchCompletion", "spec": fields{
				"property": pick(g, "name", "label", "text", strings.Repeat("a", g.upTo(1, 100_000))), "prefix": wildcard(g), "query": "name:" + wildcard(g), "limit": pick(g, -1, 1000, 2147483647),
			}})
		}},
		{"search", "fleetresources", func(g *Gen) Input {
			return get(Tenant, searchPath+"/fleetresources", url.Values{"limit": {pick(g, "0", "1", "500", "9223372036854775807")}, "labelSelector": {pick(g, "", "k=v", "k notin ("+each(g.upTo(1, 10_000), ",", strconv.Itoa)+")")}, "fieldSelector": {pick(g, "", "kind=Pod", "metadata.namespace="+BareCluster)}})
		}},
		{"search", "watch", func(g *Gen) Input {
			return get(Tenant, searchPath+"/fleetresources", url.Values{"watch": {"true"}, "timeoutSeconds": {"1"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}})
		}},
	}
}

func graphQLClasses() []Class {
	document := func(name string, generate func(*Gen) (string, any)) Class {
		return Class{"graphql", name, func(g *Gen) Input {
			query, variables := generate(g)
			return post(Tenant, searchPath+"/graphql", fields{"query": query, "variables": variables})
		}}
	}
	return []Class{
		document("depth", func(g *Gen) (string, any) {
			n := g.upTo(1, 100_000)
			return pick(g,
				"{ __schema { types "+strings.Repeat("{ fields { type ", n)+"{ name }"+strings.Repeat("} }", n)+" } }",
				"query "+strings.Repeat("{ search ", n)+strings.Repeat("}", n),
				"{ search(input: "+strings.Repeat("[", n)+strings.Repeat("]", n)+") { count } }",
				"{ search(input: "+strings.Repeat("{a:", n)+"1"+strings.Repeat("}", n)+") { count } }",
				"query($a: "+strings.Repeat("[", n)+"Int"+strings.Repeat("]", n)+") { messages { id } }",
				strings.Repeat("{ ... ", n)+"{ messages { id } }"+strings.Repeat("}", n),
			), nil
		}),
		document("aliases", func(g *Gen) (string, any) {
			field := pick(g, "messages { id }", "search(input: [{keywords: [\"a\"]}]) { count items related { kind items } }", "searchSchema", "searchComplete(property: \"name\", limit: 1000)", "__schema { types { name fields { name } } }", "__typename")
			return "{" + each(g.upTo(1, 20_000), " ", func(i int) string { return fmt.Sprintf("a%d: %s", i, field) }) + "}", nil
		}),
		document("fragments", func(g *Gen) (string, any) {
			n := g.upTo(1, 1000)
			spread := pick(g, "...f% ...f%", "a%: messages { id } ...f%", "...f% ...f% ...f%", "... on Query { ...f% ...f% }", "a: __schema { ...s } b: __schema { ...s } ...f%")
			doc := "{ ...f1 } " + each(n, " ", func(i int) string {
				return fmt.Sprintf("fragment f%d on Query { ", i+1) + fill(spread, strconv.Itoa(i+2)) + " }"
			})
			return doc + fmt.Sprintf(" fragment f%d on Query { messages { id } } fragment s on __Schema { types { name } }", n+1), nil
		}),
		document("cycles of fragments", func(g *Gen) (string, any) {
			n := g.upTo(1, 2000)
			return "{ ...f0 } " + each(n, " ", func(i int) string {
				return fmt.Sprintf("fragment f%d on Query { ...f%d ...f%d }", i, (i+1)%n, (i*7+3)%n)
			}), nil
		}),
		document("overlapping fields", func(g *Gen) (string, any) {
			// The validation compares each pair of fields.
			n := g.upTo(1, 5000)
			return "{" + each(n, " ", func(i int) string {
				return pick(g, "x: messages { id }", "x: messages { id kind }", "search(input: []) { count }", "search(input: []) { items }")
			}) + "}", nil
		}),
		document("directives", func(g *Gen) (string, any) {
			return "{ messages " + strings.Repeat(pick(g, "@include(if: true) ", "@skip(if: false) ", "@unknown ", "@a(b: 1) "), g.upTo(1, 20_000)) + "{ id } }", nil
		}),
		document("arguments", func(g *Gen) (string, any) {
			return "{ search(" + each(g.upTo(1, 20_000), ", ", func(i int) string { return pick(g, "input: []", "a"+strconv.Itoa(i)+": 1") }) + ") { count } }", nil
		}),
		document("lexical", func(g *Gen) (string, any) {
			return pick(g, "{ messages { id } } #", "{ a(b: \"", "{ a(b: \"\"\"", "{", "query a") + strings.Repeat(pick(g, "a", "\\u0041", "\\\"\"\"", "\n", ",", "{", "\ufeff", "\U0001F600", "9", "...", "$", "!", "\u0000"), g.upTo(1, 300_000)), nil
		}),
		document("operations", func(g *Gen) (string, any) {
			return each(g.upTo(1, 20_000), " ", func(i int) string { return fmt.Sprintf("query q%d($a: Int) { messages { id } }", i) }), nil
		}),
		document("variables", func(g *Gen) (string, any) {
			n := g.upTo(1, 100_000)
			return "query($input: [SearchInput]) { search(input: $input) { count items related { kind items } } }", fields{"input": pick[any](g,
				many(n, fields{"keywords": []string{"a"}}), any([]any{fields{"keywords": manyStrings(n, "a")}}), any([]any{fields{"filters": many(n/10+1, fields{"property": "name", "values": []string{"*a*b*"}})}}), nested(min(n, 9000), "keywords"),
				any([]any{fields{"limit": 1e308}}), any([]any{fields{"relatedKinds": manyStrings(n, "Pod"), "limit": -1}}))}
		}),
		document("unused variables", func(g *Gen) (string, any) {
			return "query(" + each(g.upTo(1, 10_000), ", ", func(i int) string { return fmt.Sprintf("$v%d: String = \"a\"", i) }) + ") { messages { id } }", nil
		}),
		document("subscriptions over HTTP", func(g *Gen) (string, any) {
			return "subscription { " + each(g.upTo(1, 1000), " ", func(i int) string { return fmt.Sprintf("a%d: watch(input: {keywords: [\"a\"]}) { uid }", i) }) + "}", nil
		}),
	}
}

func many(n int, value any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = value
	}
	return out
}

func manyStrings(n int, value string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = value
	}
	return out
}

// nested returns a value within n objects, or within n lists if key is empty.
func nested(n int, key string) any {
	var out any = 1
	for range n {
		if key == "" {
			out = []any{out}
		} else {
			out = fields{key: out}
		}
	}
	return out
}
