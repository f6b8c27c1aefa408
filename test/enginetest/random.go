package enginetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
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

// model generates random reports and requests. It records the existing resources, so that the result
// of a report does not depend on the order of its parts.
type model struct {
	*rand.Rand
	exists map[string]map[string]bool
	edges  map[string][]search.Edge
}

func newModel(seed uint64) *model {
	return &model{Rand: rand.New(rand.NewPCG(seed, seed)), exists: map[string]map[string]bool{}, edges: map[string][]search.Edge{}}
}

func choose[T any](m *model, from []T) T { return from[m.IntN(len(from))] }

func (m *model) one(in int) bool { return m.IntN(in) == 0 }

// uid returns one of a few UIDs. Some have the form of Kubernetes UIDs, in upper or lower case, and
// others do not.
func (m *model) uid(cluster string) string {
	n := m.IntN(idsPerCluster)
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

func (m *model) word() string {
	for {
		if m.one(3) {
			if value := choose(m, nastyValues); value != "" && len(value) < 100 {
				return value
			}
			continue
		}
		return choose(m, randomWords)
	}
}

func (m *model) properties(t testing.TB) query.Properties {
	kind := choose(m, randomKinds)
	p := map[string]any{"kind": kind, "name": choose(m, randomWords)}
	add := func(in int, name string, value func() any) {
		if m.one(in) {
			p[name] = value()
		}
	}
	if !m.one(20) {
		p["kind_plural"] = randomPlurals[kind]
	}
	if kind == "Deployment" || m.one(20) {
		p["apigroup"] = "apps"
	}
	if !m.one(4) {
		p["namespace"] = choose(m, randomNamespaces)
	}
	word := func() any { return m.word() }
	number := func() any { return json.RawMessage(choose(m, randomNumbers)) }
	instant := func() any { return choose(m, randomTimes) }
	add(2, "status", word)
	add(2, "restarts", number)
	add(2, "created", instant)
	add(3, "_hidden", word)
	add(8, "cluster", func() any { return choose(m, randomClusters) })
	add(3, "mixed", func() any { return choose(m, []func() any{word, number, instant, func() any { return m.one(2) }})() })
	add(6, "nested", func() any { return map[string]any{"deep": []any{1, m.word()}, "flat": m.word()} })
	add(2, "label", func() any {
		labels := map[string]string{}
		for range m.IntN(4) {
			labels[m.word()] = m.word()
		}
		return labels
	})
	add(3, "list", func() any {
		list := []any{}
		for range m.IntN(4) {
			list = append(list, choose(m, []func() any{word, word, number})())
		}
		return list
	})
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(text))
}

// report returns a report whose result does not depend on the order of its parts.
func (m *model) report(t testing.TB) *search.Report {
	cluster := choose(m, randomClusters)
	exists := m.exists[cluster]
	if exists == nil {
		exists = map[string]bool{}
		m.exists[cluster] = exists
	}
	report := &search.Report{Cluster: cluster, Hub: cluster == hub, Full: m.one(6), Time: now.Add(time.Duration(m.IntN(1000)) * time.Second)}
	puts := 1 + m.IntN(6)
	if report.Full {
		puts = m.IntN(2 * idsPerCluster)
	}
	put := map[string]bool{}
	for range puts {
		if uid := m.uid(cluster); !put[uid] {
			put[uid] = true
			report.Put = append(report.Put, search.Resource{UID: uid, Properties: m.properties(t), Internal: m.internal()})
		}
	}
	gone := map[string]bool{}
	if report.Full {
		if m.one(2) {
			report.Keep = m.uid(cluster)
		}
		kept := exists[report.Keep]
		for uid := range exists {
			gone[uid] = !put[uid] && uid != report.Keep
		}
		clear(exists)
		if kept {
			exists[report.Keep] = true
		}
		m.edges[cluster] = nil
	} else {
		report.Delete = append(report.Delete, cluster+"/nowhere")
		for range m.IntN(3) {
			if uid := m.uid(cluster); exists[uid] && !put[uid] && !gone[uid] {
				gone[uid] = true
				report.Delete = append(report.Delete, uid)
				delete(exists, uid)
			}
		}
	}
	m.relate(report, gone)
	for uid := range put {
		exists[uid] = true
	}
	return report
}

// relate adds and deletes edges of resources that are not deleted. Some edges are reported before
// their resources.
func (m *model) relate(report *search.Report, gone map[string]bool) {
	kept := slices.DeleteFunc(m.edges[report.Cluster], func(e search.Edge) bool { return gone[e.SourceUID] || gone[e.DestUID] })
	deleted := map[edgeKey]bool{}
	if !report.Full {
		for range m.IntN(3) {
			if len(kept) > 0 {
				at := m.IntN(len(kept))
				report.DeleteEdges = append(report.DeleteEdges, kept[at])
				deleted[keyOf(kept[at])] = true
				kept = slices.Delete(kept, at, at+1)
			}
		}
	}
	for range m.IntN(24) {
		e := search.Edge{SourceUID: m.uid(report.Cluster), DestUID: m.uid(report.Cluster), SourceKind: "Pod", DestKind: "Node", Type: choose(m, []string{"ownedBy", "runsOn"})}
		if gone[e.SourceUID] || gone[e.DestUID] || e.SourceUID == e.DestUID || deleted[keyOf(e)] {
			continue
		}
		report.AddEdges = append(report.AddEdges, e)
		kept = append(kept, e)
	}
	m.edges[report.Cluster] = kept
}

// exist records the resources of a report that the model did not generate.
func (m *model) exist(report *search.Report) {
	if m.exists[report.Cluster] == nil {
		m.exists[report.Cluster] = map[string]bool{}
	}
	for _, r := range report.Put {
		m.exists[report.Cluster][r.UID] = true
	}
}

func (m *model) forget(cluster string) {
	delete(m.exists, cluster)
	delete(m.edges, cluster)
}

func (m *model) value(property string) string {
	switch property {
	case "kind":
		return choose(m, append([]string{"Pod", "pod", "node", "SECRET"}, randomKinds...))
	case "restarts":
		return strings.Trim(choose(m, randomNumbers), `"`)
	case "created":
		return choose(m, append([]string{"hour", "day", "week", "month", "year", "2025-10-31"}, randomTimes...))
	case "cluster":
		return choose(m, randomClusters)
	case "namespace":
		return choose(m, randomNamespaces)
	case "label":
		return choose(m, []string{m.word(), m.word() + "=" + m.word()})
	case "nested":
		return choose(m, []string{"deep", "flat=" + m.word(), `deep=[1,"alpha"]`})
	}
	return choose(m, []func() string{m.word, m.word, func() string { return choose(m, randomTimes) }, func() string { return strings.Trim(choose(m, randomNumbers), `"`) }})()
}

func (m *model) comparison(property string) query.Comparison {
	op, text := query.Equal, m.value(property)
	switch {
	case m.one(4):
		op = query.NotEqual
	case m.one(4):
		op = choose(m, []query.Op{query.Less, query.LessOrEqual, query.Greater, query.GreaterOrEqual})
	}
	if op != query.Equal && op != query.NotEqual || !m.one(3) {
		return query.NewComparison(op, text)
	}
	at := m.IntN(len(text) + 1)
	return query.NewPattern(op, choose(m, []string{"*" + text, text + "*", text[:at] + "*", "*" + text[at:], text[:at] + "*" + text[at:], "*" + text[:at] + "*"}))
}

func (m *model) query() query.Query {
	var q query.Query
	for range m.IntN(3) {
		f := query.Filter{Property: choose(m, randomProperties)}
		for range 1 + m.IntN(2) {
			f.Comparisons = append(f.Comparisons, m.comparison(f.Property))
		}
		q.Filters = append(q.Filters, f)
	}
	if m.one(3) {
		for range 1 + m.IntN(2) {
			if word := m.word(); m.one(2) {
				q.Keywords = append(q.Keywords, word)
			} else {
				// Only substrings of ASCII text are certain to be valid UTF-8.
				q.Keywords = append(q.Keywords, choose(m, []string{"a", "T", "0", "_", "AL", "mm", "=", "inx", "-", "c1", "1", "pha"}))
			}
		}
	}
	return q
}

func (m *model) scope(t testing.TB) visibility.Scope {
	switch m.IntN(8) {
	case 0:
		return visibility.Scope{}
	case 1, 2:
		return everything()
	}
	policy := clusterRole("see", seeRule)
	for _, cluster := range randomClusters[:3] {
		if m.one(3) {
			policy += bind("see", cluster)
		}
	}
	if m.one(6) {
		policy += bindCluster("see")
	}
	for i := range m.IntN(4) {
		names := ""
		if m.one(3) {
			names = fmt.Sprintf("resourceNames: [%q, %q], ", choose(m, randomWords), choose(m, randomWords))
		}
		role := fmt.Sprintf("role-%d", i)
		policy += clusterRole(role, fmt.Sprintf("{apiGroups: [%q], resources: [%s], %sverbs: [list]}",
			choose(m, []string{"", "", "apps", "*"}), choose(m, []string{"pods", "secrets", "configmaps, nodes", `"*"`, "deployments"}), names))
		if m.one(3) {
			policy += bindCluster(role)
		} else {
			policy += bind(role, choose(m, []string{"a", "b", "b-c"}))
		}
	}
	return scopeOf(t, policy)
}

func (m *model) request() *search.Request {
	request := &search.Request{Query: m.query(), Now: now, Items: !m.one(4), Limit: -1}
	if m.one(2) {
		request.Limit, request.Offset = m.IntN(20), m.IntN(8)
	}
	for range m.IntN(3) {
		request.OrderBy = append(request.OrderBy, search.Order{Property: choose(m, randomProperties), Descending: m.one(2)})
	}
	if m.one(2) {
		request.CountBy, request.CountLimit = choose(m, randomProperties[:11]), choose(m, []int{-1, 0, 1, 5})
	}
	if m.one(2) {
		request.Related, request.RelatedDepth = true, m.IntN(4)
		if !m.one(3) {
			// Matches of a simple query have related resources more often.
			request.Query = query.Query{Filters: []query.Filter{{Property: query.Kind, Comparisons: []query.Comparison{query.NewComparison(query.Equal, choose(m, randomKinds))}}}}
		}
		request.RelatedItems, request.RelatedLimit = !m.one(3), choose(m, []int{-1, -1, 0, 2})
		if m.one(2) {
			request.RelatedKinds = []string{choose(m, randomKinds), "CHANNEL"}
		}
	}
	return request
}

// internal returns the internal properties of a resource. Some have the names or the values of others.
func (m *model) internal() query.Properties {
	var internal query.Properties
	for _, name := range []string{"_rules", "_subjects", "status"} {
		if m.one(4) {
			text := m.word()
			if m.one(3) {
				text = choose(m, randomTimes)
			}
			internal = append(internal, query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: text}}})
		}
	}
	return internal
}
