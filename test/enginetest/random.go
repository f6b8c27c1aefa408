package enginetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

var (
	randomClusters   = []string{hub, "c1", "c10", "c_%'x"}
	randomNamespaces = []string{"a", "b", "b-c", "it's"}
	randomPlurals    = map[string]string{
		"Pod": "pods", "pod": "pods", "Deployment": "deployments", "Node": "nodes", "Channel": "channels",
		"Secret": "secrets", "ConfigMap": "configmaps", "Namespace": "namespaces", "Thing": "secrets",
	}
	randomKinds   = []string{"Pod", "Pod", "Pod", "pod", "Deployment", "Node", "Channel", "Secret", "ConfigMap", "Namespace", "Thing"}
	randomNumbers = []string{`0`, `1`, `9`, `10`, `10.0`, `1e1`, `100`, `-1`, `-7.25`, `123456789012`, `"20"`, `"3"`, `0.1`}
	randomTimes   = []string{
		"2025-11-01T11:30:00Z", "2025-11-01T12:30:00+01:00", "2025-10-31T13:00:00Z", "2025-10-01T00:00:00.5Z", "2024-12-01T00:00:00Z",
		"2020-01-01T00:00:00Z", "2025-11-01T12:00:00Z", "2025-10-25T12:00:00Z",
	}
	randomProperties = []string{
		"kind", "kind_plural", "apigroup", "name", "namespace", "status", "restarts", "created", "label", "list", "mixed", "_hidden", "cluster", "nested", "none",
	}
	randomWords = []string{"alpha", "Alpha", "alphabet", "beta", "be", "gamma-1", "gamma-2", "nginx", "nginx-1", "day", "Running"}
)

const idsPerCluster = 24

// random draws the parts of one value.
type random struct{ *rapid.T }

// draw draws a value whose parts are not logged one by one.
func draw[V any](t *rapid.T, what string, of func(random) V) V {
	return rapid.Custom(func(t *rapid.T) V { return of(random{t}) }).Draw(t, what)
}

func choose[V any](r random, from []V) V { return rapid.SampledFrom(from).Draw(r.T, "choice") }

func (r random) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(r.T, "number") }

func (r random) one(in int) bool { return r.IntN(in) == in-1 }

// uid returns one of a few UIDs. Some have the form of Kubernetes UIDs, in upper or lower case, and
// others do not.
func (r random) uid(cluster string) string {
	n := r.IntN(idsPerCluster)
	switch {
	case n == 0:
		return "cluster__" + cluster
	case n < 4:
		return fmt.Sprintf("%s/odd %d'%%_\\", cluster, n)
	case n < 7:
		return fmt.Sprintf("%s/ABCDEF00-0000-4000-8000-%012d", cluster, n)
	case n < 10:
		return fmt.Sprintf("%s/abcdef00-0000-4000-8000-%012d", cluster, n-3)
	default:
		return fmt.Sprintf("%s/01234567-89ab-4cde-8f01-%012d", cluster, n)
	}
}

func (r random) word() string {
	if r.one(3) {
		return choose(r, nastyValues)
	}
	return choose(r, randomWords)
}

func (r random) properties() query.Properties {
	kind := choose(r, randomKinds)
	p := map[string]any{"kind": kind, "name": choose(r, randomWords)}
	add := func(in int, name string, value func() any) {
		if r.one(in) {
			p[name] = value()
		}
	}
	if !r.one(20) {
		p["kind_plural"] = randomPlurals[kind]
	}
	if kind == "Deployment" || r.one(20) {
		p["apigroup"] = "apps"
	}
	if !r.one(4) {
		p["namespace"] = choose(r, randomNamespaces)
	}
	word := func() any { return r.word() }
	number := func() any { return json.RawMessage(choose(r, randomNumbers)) }
	instant := func() any { return choose(r, randomTimes) }
	add(2, "status", word)
	add(2, "restarts", number)
	add(2, "created", instant)
	add(3, "_hidden", word)
	add(8, "cluster", func() any { return choose(r, randomClusters) })
	add(3, "mixed", func() any { return choose(r, []func() any{word, number, instant, func() any { return r.one(2) }})() })
	add(6, "nested", func() any { return map[string]any{"deep": []any{1, r.word()}, "flat": r.word()} })
	add(2, "label", func() any {
		labels := map[string]string{}
		for range r.IntN(4) {
			labels[r.word()] = r.word()
		}
		return labels
	})
	add(3, "list", func() any {
		list := []any{}
		for range r.IntN(4) {
			list = append(list, choose(r, []func() any{word, word, number})())
		}
		return list
	})
	text, err := json.Marshal(p)
	if err != nil {
		r.Fatal(err)
	}
	return decode(r, string(text))
}

// internal returns the internal properties of a resource. Some have the names or the values of others.
func (r random) internal() query.Properties {
	var internal query.Properties
	for _, name := range []string{"_rules", "_subjects", "status"} {
		if r.one(4) {
			text := choose(r, []func() string{r.word, func() string { return choose(r, randomTimes) }})()
			internal = append(internal, query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: text}}})
		}
	}
	return internal
}

// report returns a report whose result does not depend on the order of its parts.
func (r random) report(known map[string]*oracleCluster) *search.Report {
	cluster := choose(r, randomClusters)
	before := known[cluster]
	if before == nil {
		before = &oracleCluster{}
	}
	report := &search.Report{Cluster: cluster, Hub: cluster == hub, Full: r.one(6), Time: now.Add(time.Duration(r.IntN(1000)) * time.Second)}
	puts := 1 + r.IntN(6)
	if report.Full {
		puts = r.IntN(2 * idsPerCluster)
	}
	put, gone := map[string]bool{}, map[string]bool{}
	for range puts {
		if uid := r.uid(cluster); !put[uid] {
			put[uid] = true
			resource := search.Resource{UID: uid, Properties: r.properties(), Internal: r.internal()}
			if old, exists := before.resources[uid]; exists && r.one(4) {
				resource.Properties, resource.Internal = old.properties, choose(r, []query.Properties{old.internal, resource.Internal})
			}
			report.Put = append(report.Put, resource)
		}
	}
	if report.Full {
		if r.one(2) {
			report.Keep = r.uid(cluster)
		}
		for uid := range before.resources {
			gone[uid] = !put[uid] && uid != report.Keep
		}
	} else {
		report.Delete = append(report.Delete, cluster+"/nowhere")
		for range r.IntN(3) {
			uid := r.uid(cluster)
			if _, exists := before.resources[uid]; exists && !put[uid] && !gone[uid] {
				gone[uid] = true
				report.Delete = append(report.Delete, uid)
			}
		}
	}
	r.relate(report, before, gone)
	return report
}

// relate adds and deletes edges of resources that are not deleted. Some edges are reported before
// their resources.
func (r random) relate(report *search.Report, before *oracleCluster, gone map[string]bool) {
	deleted := map[edgeKey]bool{}
	if kept := slices.SortedFunc(maps.Keys(before.edges), func(a, b edgeKey) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.dest, b.dest), cmp.Compare(a.relation, b.relation))
	}); len(kept) > 0 && !report.Full {
		for range r.IntN(3) {
			if key := choose(r, kept); !gone[key.source] && !gone[key.dest] {
				deleted[key] = true
				report.DeleteEdges = append(report.DeleteEdges, search.Edge{SourceUID: key.source, DestUID: key.dest, SourceKind: "Pod", DestKind: "Node", Type: key.relation})
			}
		}
	}
	for range r.IntN(24) {
		e := search.Edge{SourceUID: r.uid(report.Cluster), DestUID: r.uid(report.Cluster), SourceKind: "Pod", DestKind: "Node", Type: choose(r, []string{"ownedBy", "runsOn"})}
		if !gone[e.SourceUID] && !gone[e.DestUID] && e.SourceUID != e.DestUID && !deleted[keyOf(e)] {
			report.AddEdges = append(report.AddEdges, e)
		}
	}
}

func (r random) value(property string) string {
	switch property {
	case "kind":
		return choose(r, append([]string{"Pod", "pod", "node", "SECRET"}, randomKinds...))
	case "restarts":
		return strings.Trim(choose(r, randomNumbers), `"`)
	case "created":
		return choose(r, append([]string{"hour", "day", "week", "month", "year", "2025-10-31"}, randomTimes...))
	case "cluster":
		return choose(r, randomClusters)
	case "namespace":
		return choose(r, randomNamespaces)
	case "label":
		return choose(r, []string{r.word(), r.word() + "=" + r.word()})
	case "nested":
		return choose(r, []string{"deep", "flat=" + r.word(), `deep=[1,"alpha"]`})
	}
	return choose(r, []func() string{r.word, r.word, func() string { return choose(r, randomTimes) }, func() string { return strings.Trim(choose(r, randomNumbers), `"`) }})()
}

func (r random) comparison(property string) query.Comparison {
	op, text := query.Equal, r.value(property)
	switch {
	case r.one(4):
		op = query.NotEqual
	case r.one(4):
		op = choose(r, []query.Op{query.Less, query.LessOrEqual, query.Greater, query.GreaterOrEqual})
	}
	if op != query.Equal && op != query.NotEqual || !r.one(3) {
		return query.NewComparison(op, text)
	}
	at := r.IntN(len(text) + 1)
	return query.NewPattern(op, choose(r, []string{"*" + text, text + "*", text[:at] + "*", "*" + text[at:], text[:at] + "*" + text[at:], "*" + text[:at] + "*"}))
}

func (r random) query() query.Query {
	var q query.Query
	for range r.IntN(3) {
		f := query.Filter{Property: choose(r, randomProperties)}
		if r.one(20) {
			f.Property = "x" + r.word()
		}
		for range 1 + r.IntN(2) {
			f.Comparisons = append(f.Comparisons, r.comparison(f.Property))
		}
		q.Filters = append(q.Filters, f)
	}
	if r.one(3) {
		for range 1 + r.IntN(2) {
			if word := r.word(); word != "" && r.one(2) {
				q.Keywords = append(q.Keywords, word)
			} else {
				// Only substrings of ASCII text are certain to be valid UTF-8.
				q.Keywords = append(q.Keywords, choose(r, []string{"a", "T", "0", "_", "AL", "mm", "=", "inx", "-", "c1", "1", "pha"}))
			}
		}
	}
	return q
}

// policy returns the RBAC objects of the caller.
func (r random) policy() string {
	policy := clusterRole("see", seeRule)
	for _, cluster := range randomClusters[:3] {
		if r.one(3) {
			policy += bind("see", cluster)
		}
	}
	if r.one(6) {
		policy += bindCluster("see")
	}
	for i := range r.IntN(4) {
		names := ""
		if r.one(3) {
			names = fmt.Sprintf("resourceNames: [%q, %q], ", choose(r, randomWords), choose(r, randomWords))
		}
		role := fmt.Sprintf("role-%d", i)
		policy += clusterRole(role, fmt.Sprintf("{apiGroups: [%q], resources: [%s], %sverbs: [list]}",
			choose(r, []string{"", "", "apps", "*"}), choose(r, []string{"pods", "secrets", "configmaps, nodes", `"*"`, "deployments"}), names))
		if r.one(3) {
			policy += bindCluster(role)
		} else {
			policy += bind(role, choose(r, []string{"a", "b", "b-c"}))
		}
	}
	return policy
}

func (r random) orders() []search.Order {
	var orders []search.Order
	for range r.IntN(3) {
		orders = append(orders, search.Order{Property: choose(r, randomProperties), Descending: r.one(2)})
	}
	return orders
}

func (r random) request() *search.Request {
	request := &search.Request{Query: r.query(), Now: now, Items: !r.one(4), Limit: -1, OrderBy: r.orders()}
	if r.one(2) {
		request.Limit, request.Offset = 1+r.IntN(20), r.IntN(8)
	}
	if r.one(2) {
		request.CountBy, request.CountLimit = choose(r, randomProperties[:11]), choose(r, []int{-1, 0, 1, 5})
	}
	if r.one(2) {
		request.Related, request.RelatedDepth = true, r.IntN(4)
		if !r.one(3) {
			// Matches of a simple query have related resources more often.
			request.Query = query.Query{Filters: []query.Filter{{Property: query.Kind, Comparisons: []query.Comparison{query.NewComparison(query.Equal, choose(r, randomKinds))}}}}
		}
		request.RelatedItems, request.RelatedLimit = !r.one(3), choose(r, []int{-1, -1, 0, 2})
		if r.one(2) {
			request.RelatedKinds = []string{choose(r, randomKinds), "CHANNEL"}
		}
	}
	return request
}

func (r random) completion() *search.CompletionRequest {
	request := &search.CompletionRequest{Property: choose(r, randomProperties[:11]), Query: r.query(), Now: now, Limit: choose(r, []int{-1, 0, 1, 5})}
	if r.one(3) {
		request.Prefix = choose(r, []string{"A", "be", "NG", "1", "2", "", "alpha="})
	}
	return request
}
