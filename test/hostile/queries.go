package hostile

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// queryLength is the maximum length of a query in a URL that the server accepts.
const queryLength = 600_000

func get(as Identity, path string, query url.Values) Input {
	return once(as, http.MethodGet, path+"?"+query.Encode(), nil)
}

func selectorClasses() []Class {
	listed := []string{worksPath, permissionsPath, accountsPath, searchPath + "/fleetresources", searchPath + "/inventories"}
	selector := func(parameter, name string, generate func(*Gen) string) Class {
		return Class{strings.ToLower(parameter), name, func(g *Gen) Input {
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
		selector("labelSelector", "many requirements", func(g *Gen) string {
			return g.list(50_000, ",", "k%=v", "k%", "!k%", "k% in (a,b,c)", "k% notin (a)", "k%>1", "k%!=v", "k=v", "")
		}),
		selector("labelSelector", "many values", func(g *Gen) string { return "k in (" + g.list(100_000, ",", "%") + ")" }),
		selector("labelSelector", "malformed", func(g *Gen) string {
			return g.long(200_000, "(", ")", "!", "=", "in ", ",", "a", "/", "a/", " ", "\u0000", "\U0001F600", "k in (", "'")
		}),
		selector("fieldSelector", "many terms", func(g *Gen) string {
			return g.mix(50_000, ",", "metadata.name=x", "metadata.namespace!=x", "metadata.name==hostile", "spec.x=1", "metadata.name=a\\,b\\=c\\\\")
		}),
		selector("fieldSelector", "malformed", func(g *Gen) string {
			return "metadata.name=" + g.long(200_000, "\\", "\\\\", "=", ",", "!=", "\\x", "a", "\U0001F600", "\\,")
		}),
		{"listoptions", "continue and versions", func(g *Gen) Input {
			return get(Tenant, pick(g, listed...), url.Values{pick(g, "continue", "resourceVersion", "limit", "timeoutSeconds", "resourceVersionMatch", "sendInitialEvents"): {
				g.long(100_000, "A", "9", "=", "-", "\u0000", "eyJ2Ijoi"),
			}})
		}},
	}
}

// searching returns a request of the tenant to the search service.
func searching(path, kind string, of fields) Input {
	return once(Tenant, http.MethodPost, searchPath+path, encode(fields{"apiVersion": "search.open-cluster-management.io/v1alpha1", "kind": kind, "spec": of}))
}

func searchClasses() []Class {
	search := func(name string, generate func(*Gen) fields) Class {
		return Class{"search", name, func(g *Gen) Input { return searching("/searches", "Search", fields{"searches": []any{generate(g)}}) }}
	}
	text := func(name string, generate func(*Gen) string) Class {
		return search(name, func(g *Gen) fields {
			return fields{"query": generate(g), "output": pick(g, "Items", "Count", "Related")}
		})
	}
	wildcard := func(g *Gen) string { return g.long(2000, "a*", "*", "*a*", "?*", "v*v", "**") }
	return []Class{
		text("many terms", func(g *Gen) string {
			return g.list(20_000, " ", "a%", "kind:Pod%", "name:*%*", "label:k%=v", "namespace!=n%", "restarts>%", "created:>%", "\"a%\"", "name:a%,b%,c%", "-a%", "!%")
		}),
		text("wildcards", func(g *Gen) string { return pick(g, "name:", "label:", "kind:", "", "text:") + wildcard(g) }),
		text("malformed", func(g *Gen) string {
			return "name:" + g.long(100_000, "\\", "\"", "'", "!", "=", "<", ":", ",", "\\\"", "'\"", "\U0001F600", "\u3000", "a:", "<>=!")
		}),
		text("values that compare", func(g *Gen) string {
			return pick(g, "restarts>", "restarts:<", "created>", "size=", "cpu<=") + g.long(7_000, "9", "1e", "0.", "1.", "-", "Ei")
		}),
		search("filters", func(g *Gen) fields {
			var filters []any
			for i := range g.upTo(1, 10_000) {
				values := make([]string, 1+g.IntN(20))
				for j := range values {
					values[j] = pick(g, "Pod", "*", "a*b*c", "!x", ">1", strings.Repeat("v", 1+g.IntN(200)), "year")
				}
				filters = append(filters, fields{"property": pick(g, "kind", "name", "label", "created", "annotation", "p"+strconv.Itoa(i)), "operator": pick(g, "", "=", "!=", "<", ">="), "values": values})
			}
			return fields{"filters": filters}
		}),
		search("one filter of many wildcards", func(g *Gen) fields {
			return fields{"filters": []any{fields{"property": pick(g, "name", "label", "value", "text"), "values": g.many(5_000, "*%*a*", "*%*v*", "*%*x*")}}, "output": "Related"}
		}),
		search("keywords", func(g *Gen) fields {
			return fields{"keywords": g.many(20_000, "a", "v", "*", strings.Repeat("a", 1+g.IntN(300)), "\U0001F600")}
		}),
		search("orders and limits", func(g *Gen) fields {
			orders := g.many(5_000, "name", "value desc", "text asc", "nothing", strings.Repeat("a", 100))
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
			return searching("/searches", "Search", fields{"searches": searches})
		}},
		{"search", "completions", func(g *Gen) Input {
			return searching("/searchcompletions", "SearchCompletion", fields{
				"property": pick(g, "name", "label", "text", g.long(100_000, "a")), "prefix": wildcard(g), "query": "name:" + wildcard(g), "limit": pick(g, -1, 1000, 2147483647),
			})
		}},
		{"search", "fleetresources", func(g *Gen) Input {
			return get(Tenant, searchPath+"/fleetresources", url.Values{"limit": {pick(g, "0", "1", "500", "9223372036854775807")}, "labelSelector": {pick(g, "", "k=v", "k notin ("+g.list(10_000, ",", "%")+")")}, "fieldSelector": {pick(g, "", "kind=Pod", "metadata.namespace="+BareCluster)}})
		}},
		{"search", "watch", func(*Gen) Input {
			return get(Tenant, searchPath+"/fleetresources", url.Values{"watch": {"true"}, "timeoutSeconds": {"1"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}})
		}},
	}
}

// graphQL returns a GraphQL request of the tenant.
func graphQL(query string, variables any) Input {
	return once(Tenant, http.MethodPost, searchPath+"/graphql", encode(fields{"query": query, "variables": variables}))
}

func graphQLClasses() []Class {
	document := func(name string, generate func(*Gen) string) Class {
		return Class{"graphql", name, func(g *Gen) Input { return graphQL(generate(g), nil) }}
	}
	return []Class{
		document("depth", func(g *Gen) string {
			before, text, _ := strings.Cut(pick(g, "{ __schema { types §{ fields { type ¦{ name }¦} }¦ } }", "query §{ search ¦¦}", "{ search(input: §[¦¦]¦) { count } }",
				"{ search(input: §{a:¦1¦}¦) { count } }", "query($a: §[¦Int¦]¦) { messages { id } }", "§{ ... ¦{ messages { id } }¦}"), "§")
			return before + around(g.upTo(1, 100_000), text)
		}),
		document("aliases", func(g *Gen) string {
			return "{" + g.list(20_000, " ", "a%: messages { id }", "a%: search(input: [{keywords: [\"a\"]}]) { count items related { kind items } }", "a%: searchSchema", "a%: searchComplete(property: \"name\", limit: 1000)", "a%: __schema { types { name fields { name } } }", "a%: __typename") + "}"
		}),
		document("fragments", func(g *Gen) string {
			n, spread := g.upTo(1, 1000), pick(g, "...f% ...f%", "a%: messages { id } ...f%", "...f% ...f% ...f%", "... on Query { ...f% ...f% }", "a: __schema { ...s } b: __schema { ...s } ...f%")
			return "{ ...f1 } " + each(n, " ", func(i int) string {
				return fmt.Sprintf("fragment f%d on Query { ", i+1) + fill(spread, strconv.Itoa(i+2)) + " }"
			}) + fmt.Sprintf(" fragment f%d on Query { messages { id } } fragment s on __Schema { types { name } }", n+1)
		}),
		document("cycles of fragments", func(g *Gen) string {
			n := g.upTo(1, 2000)
			return "{ ...f0 } " + each(n, " ", func(i int) string {
				return fmt.Sprintf("fragment f%d on Query { ...f%d ...f%d }", i, (i+1)%n, (i*7+3)%n)
			})
		}),
		// The validation compares each pair of fields.
		document("overlapping fields", func(g *Gen) string {
			return "{" + g.mix(5000, " ", "x: messages { id }", "x: messages { id kind }", "search(input: []) { count }", "search(input: []) { items }") + "}"
		}),
		document("directives", func(g *Gen) string {
			return "{ messages " + g.long(20_000, "@include(if: true) ", "@skip(if: false) ", "@unknown ", "@a(b: 1) ") + "{ id } }"
		}),
		document("arguments", func(g *Gen) string { return "{ search(" + g.mix(20_000, ", ", "input: []", "a%: 1") + ") { count } }" }),
		document("lexical", func(g *Gen) string {
			return pick(g, "{ messages { id } } #", "{ a(b: \"", "{ a(b: \"\"\"", "{", "query a") + g.long(300_000, "a", "\\u0041", "\\\"\"\"", "\n", ",", "{", "\ufeff", "\U0001F600", "9", "...", "$", "!", "\u0000")
		}),
		document("operations", func(g *Gen) string { return g.list(20_000, " ", "query q%($a: Int) { messages { id } }") }),
		document("unused variables", func(g *Gen) string {
			return "query(" + g.list(10_000, ", ", "$v%: String = \"a\"") + ") { messages { id } }"
		}),
		document("subscriptions over HTTP", func(g *Gen) string {
			return "subscription { " + g.list(1000, " ", "a%: watch(input: {keywords: [\"a\"]}) { uid }") + "}"
		}),
		{"graphql", "variables", func(g *Gen) Input {
			n := g.upTo(1, 100_000)
			var nested any = 1
			for range min(n, 9000) {
				nested = fields{"keywords": nested}
			}
			return graphQL("query($input: [SearchInput]) { search(input: $input) { count items related { kind items } } }", fields{"input": pick[any](g,
				slices.Repeat([]any{fields{"keywords": []string{"a"}}}, n), []any{fields{"keywords": slices.Repeat([]string{"a"}, n)}}, nested,
				[]any{fields{"filters": slices.Repeat([]any{fields{"property": "name", "values": []string{"*a*b*"}}}, n/10+1)}},
				[]any{fields{"limit": 1e308}}, []any{fields{"relatedKinds": slices.Repeat([]string{"Pod"}, n), "limit": -1}})})
		}},
	}
}
