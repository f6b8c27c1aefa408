package embedded_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// many returns a filter with many comparisons on a property, each with a different text.
func many(property string, op query.Op, pattern string, n int) query.Query {
	f := query.Filter{Property: property}
	for i := range n {
		f.Comparisons = append(f.Comparisons, query.NewPattern(op, strings.ReplaceAll(pattern, "#", fmt.Sprint(i))))
	}
	return query.Query{Filters: []query.Filter{f}}
}

func hostileRequests() map[string]search.Request {
	one := make([]string, query.MaxTerms)
	two := make([]string, query.MaxTerms)
	for i := range one {
		one[i] = string(rune('a' + i%26))
		two[i] = string(rune('a'+i%26)) + string(rune('a'+i/26%26))
	}
	filters := query.Query{}
	for range query.MaxTerms {
		filters.Filters = append(filters.Filters, many("name", query.NotEqual, "*a*", 1).Filters...)
	}
	var orders []search.Order
	for _, name := range []string{"annotation", "label", "created", "name", "_uid", "status", "container", "image", "kind", "namespace", "cluster", "apigroup", "apiversion", "restarts", "podIP", "hostIP"} {
		orders = append(orders, search.Order{Property: name, Descending: true})
	}
	everything := query.Query{}
	return map[string]search.Request{
		"1000 wildcards in the middle": {Query: many("name", query.Equal, "*#a*b*", 1000)},
		"1000 wildcards of one letter": {Query: many("name", query.NotEqual, "*a*#", 1000)},
		"1000 filters of a wildcard":   {Query: filters},
		"1000 ranges of text":          {Query: many("name", query.Greater, "a#", 1000)},
		"1000 prefixes":                {Query: many("name", query.Equal, "#*", 1000)},
		"32768 wildcards":              {Query: many("name", query.Equal, strings.Repeat("*a", 30000), 1)},
		"100 x 300 wildcards":          {Query: many("name", query.Equal, strings.Repeat("*a", 300), 100)},
		"1000 kinds without case":      {Query: many("kind", query.Equal, "pod#*", 1000)},
		"1000 labels":                  {Query: many("label", query.Equal, "*a*=*#*", 1000)},
		"1000 keys of labels":          {Query: many("label", query.Equal, "*#*", 1000)},
		"1000 keywords of a letter":    {Query: query.Query{Keywords: one}},
		"1000 keywords of two letters": {Query: query.Query{Keywords: two}},
		"a keyword of 60 KB":           {Query: query.Query{Keywords: []string{strings.Repeat("a", 60000)}}},
		"16 orders":                    {Query: everything, Items: true, Limit: 1000, OrderBy: orders},
		"16 orders, an offset of all":  {Query: everything, Items: true, Limit: 1000, Offset: 499_000, OrderBy: orders},
		"16 orders, all":               {Query: everything, Items: true, Limit: -1, OrderBy: orders},
		"all":                          {Query: everything, Items: true, Limit: -1},
		"related to Pods":              {Query: many("kind", query.Equal, "Pod", 1), Related: true, RelatedItems: true, RelatedLimit: -1},
		"related to Pods, 3 edges":     {Query: many("kind", query.Equal, "Pod", 1), Related: true, RelatedItems: true, RelatedLimit: -1, RelatedDepth: 3},
		"related to Deployments, 3 edges": {
			Query: many("kind", query.Equal, "Deployment", 1), Related: true, RelatedItems: true, RelatedLimit: 10_000, RelatedDepth: 3,
		},
	}
}

// cpu returns the processor time of the process.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkHostile(b *testing.B) {
	options := fleetOptions(b)
	engine, err := embedded.Open(b.TempDir(), embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close()
	for i := range options.Clusters {
		if _, err := engine.Apply(b.Context(), fleetgen.Cluster(options, i)); err != nil {
			b.Fatal(err)
		}
	}
	scope := visibility.Everything()
	measure := func(name string, ask func(ctx context.Context, scope visibility.Scope) error) {
		before := heap()
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
		defer cancel()
		start := cpu()
		err := ask(ctx, scope)
		took := cpu() - start
		after := residentNow(b)
		fmt.Printf("%-40s %10s  heap before %d MB rss after %d MB err %.150v\n", name, took.Round(time.Millisecond), before>>20, after>>20, err)
	}
	for name, request := range hostileRequests() {
		request.Now = fleetgen.Epoch
		measure(name, func(ctx context.Context, scope visibility.Scope) error {
			_, err := engine.Search(ctx, scope, &request)
			return err
		})
	}
	for _, property := range []string{"name", "label", "annotation", "created", "_uid", "kind"} {
		measure("complete "+property, func(ctx context.Context, scope visibility.Scope) error {
			_, err := engine.Complete(ctx, scope, &search.CompletionRequest{Property: property, Limit: -1, Now: fleetgen.Epoch, Query: many("kind", query.NotEqual, "x", 1)})
			return err
		})
	}
}

// TestLongRows checks that a cluster cannot make searches more expensive than estimated: its resources have 2000 labels.
func TestLongRows(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{MaxCost: 500 * time.Microsecond})
	defer closed(t, engine)
	const resources, labels = 10, 2000
	leaves := make([]query.Leaf, labels)
	for i := range leaves {
		leaves[i] = query.Leaf{Key: fmt.Sprintf("k%04d", i), Text: "v"}
	}
	report := &search.Report{Cluster: "hostile", Full: true}
	for i := range resources {
		report.Put = append(report.Put, search.Resource{UID: fmt.Sprintf("hostile/%d", i), Properties: query.Properties{
			{Name: "kind", Type: query.String, Leaves: []query.Leaf{{Text: "Pod"}}},
			{Name: "label", Type: query.Map, Leaves: leaves},
		}})
	}
	apply(t, engine, report)
	for _, test := range []struct {
		text string
		want string
	}{{"q", "too expensive"}, {"label:*q*", "too expensive"}, {"kind:Node", ""}, {"kind:n*", ""}} {
		q := parse(t, test.text)
		_, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{Query: q, Now: fleetgen.Epoch})
		if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(got, test.want) {
			t.Errorf("Search(%q) = %v, want an error with %q", test.text, err, test.want)
		}
	}
}

// TestReadingRows checks filters of a caller who finds so little that the engine reads the resources instead of the
// index.
func TestReadingRows(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	options := fleetgen.Options{Clusters: 4, PerCluster: 2000, Seed: seed.Of(t)}
	mine := fleetgen.Cluster(options, 1)
	some := mine.Put[:0]
	for i := range mine.Put {
		if i%50 == 0 {
			some = append(some, mine.Put[i])
		}
	}
	*mine = search.Report{Cluster: mine.Cluster, Full: true, Put: append(some,
		churnPod(mine.Cluster+"/typed",
			query.Property{Name: "none", Type: query.Map},
			query.Property{Name: "ready", Type: query.Bool, Leaves: []query.Leaf{{Type: query.Bool, Text: "true"}}},
			query.Property{Name: "restarts", Type: query.Number, Leaves: []query.Leaf{{Type: query.Number, Text: "7"}}},
		))}
	apply(t, engine, mine)
	for i := 2; i < options.Clusters; i++ {
		apply(t, engine, fleetgen.Cluster(options, i))
	}
	scope := visibilitytest.Scope(t, fleetgen.Policy(1, 1, 0), &user.DefaultInfo{Name: fleetgen.User})
	found := 0
	for _, text := range []string{
		"name:*a*", "name:*e*,*0*", "name!=*a*", "name>m", "name:n*a,*-1*", "name:*nginx*", "kind:pod", "kind:*o*", "kind!=p*", "restarts>0", "restarts:7", "restarts:*",
		"created>2025-06-01T00:00:00Z", "created:year", "created<month", "label:*a*", "label:app", "label:a*=*", "label:*=*1*", "label!=*team*", "label>m",
		"image:*nginx*", "image!=*:*", "ready:t*", "none:*", "missing:*", "missing!=*", "cluster:*1", "name:*a* label:*e* kind!=Pod", "name:*a*,b* name!=*1*",
	} {
		q := parse(t, text)
		want := 0
		for i := range mine.Put {
			if p := mine.Put[i].Properties; q.Matches(mine.Cluster, p, fleetgen.Epoch) && search.Text(p, query.Kind) != "Secret" {
				want++
			}
		}
		result, err := engine.Search(t.Context(), scope, &search.Request{Query: q, Now: fleetgen.Epoch})
		if err != nil || result.Count != want {
			t.Errorf("Search(%q) = %+v, %v, want %d", text, result, err, want)
		}
		found += want
	}
	if found == 0 {
		t.Error("no search finds anything")
	}
}

// TestRelatedThroughOneResource checks that many items that are related through one resource, such as a ConfigMap that all
// Pods of a namespace mount, stay within the default budget.
func TestRelatedThroughOneResource(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	const pods = 3000
	kind := func(text string) query.Properties {
		return query.Properties{{Name: "kind", Type: query.String, Leaves: []query.Leaf{{Text: text}}}}
	}
	report := &search.Report{Cluster: "hostile", Full: true, Put: []search.Resource{
		{UID: "hostile/app", Properties: kind("Application")}, {UID: "hostile/config", Properties: kind("ConfigMap")},
	}}
	for i := range pods {
		report.Put = append(report.Put, churnPod(churnUID(i)))
		report.AddEdges = append(report.AddEdges, search.Edge{SourceUID: churnUID(i), DestUID: "hostile/config", Type: "attachedTo"})
	}
	report.AddEdges = append(report.AddEdges, search.Edge{SourceUID: churnUID(0), DestUID: "hostile/app", Type: "deployedBy"})
	apply(t, engine, report)
	result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{
		Query: parse(t, "kind:Application"), Related: true, RelatedItems: true, RelatedLimit: -1, RelatedDepth: 3,
	})
	if err != nil || len(result.Related) != 2 {
		t.Fatalf("Search() = %+v, %v, want ConfigMaps and Pods", result, err)
	}
	for i, want := range []int{1, pods} {
		related := result.Related[i]
		if related.Count != want || len(related.Items) != want {
			t.Errorf("related resources of kind %s: count = %d, %d items, want %d", related.Kind, related.Count, len(related.Items), want)
		}
		for _, item := range related.Items {
			if len(item.RelatedTo) != 1 || item.RelatedTo[0] != "hostile/app" {
				t.Fatalf("%s is related to %v, want the Application", item.UID, item.RelatedTo)
			}
		}
	}
}

// TestManyNames checks that the properties and labels that one cluster reports do not make searches of others too
// expensive, including those of an administrator who finds all of them.
func TestManyNames(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	apply(t, engine, &search.Report{Cluster: fleetgen.ClusterName(1), Full: true, Put: []search.Resource{
		churnPod(fleetgen.ClusterName(1)+"/1", query.Property{Name: "label", Type: query.Map, Leaves: []query.Leaf{{Key: "app", Text: "web"}}}),
	}})
	const resources, properties, labels = 400, 200, 300
	report := &search.Report{Cluster: "hostile", Full: true}
	for i := range resources {
		resource := search.Resource{UID: churnUID(i)}
		for j := range properties {
			resource.Properties = append(resource.Properties, query.Property{Name: fmt.Sprintf("P%04d-%04d", i, j), Type: query.String, Leaves: []query.Leaf{{Text: "x"}}})
		}
		leaves := make([]query.Leaf, labels)
		for j := range leaves {
			leaves[j] = query.Leaf{Key: fmt.Sprintf("k%04d-%04d", i, j), Text: "v"}
		}
		resource.Properties = append(resource.Properties,
			query.Property{Name: "kind", Type: query.String, Leaves: []query.Leaf{{Text: "Pod"}}},
			query.Property{Name: "label", Type: query.Map, Leaves: leaves})
		report.Put = append(report.Put, resource)
	}
	apply(t, engine, report)
	for name, test := range map[string]struct {
		scope      visibility.Scope
		properties int
	}{
		"the other cluster": {visibilitytest.Scope(t, fleetgen.Policy(1, 1, 0), &user.DefaultInfo{Name: fleetgen.User}), 2},
		"everything":        {visibility.Everything(), resources*properties + 2},
	} {
		ctx := search.WithBudget(t.Context())
		for range 3 {
			schema, err := engine.Schema(ctx, test.scope, &query.Query{}, fleetgen.Epoch)
			if err != nil || len(schema) != test.properties {
				t.Errorf("Schema() of a caller who finds %s = %d properties, %v, want %d", name, len(schema), err, test.properties)
			}
			for text, want := range map[string]int{"label:app": 1, "label:missing": 0, "webb": 0, "name:missing": 0} {
				result, err := engine.Search(ctx, test.scope, &search.Request{Query: parse(t, text), Now: fleetgen.Epoch})
				if err != nil || result.Count != want {
					t.Errorf("Search(%q) of a caller who finds %s = %+v, %v, want %d", text, name, result, err, want)
				}
			}
		}
	}
}

// TestLongTextsAreNotCached checks that caches do not keep long texts of callers.
func TestLongTextsAreNotCached(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	apply(t, engine, fleetgen.Cluster(fleetgen.Options{Clusters: 1, PerCluster: 100, Seed: 1}, 0))
	ask := func(text string) int {
		t.Helper()
		scope := visibility.Everything()
		for _, request := range []*search.CompletionRequest{{Property: query.Kind, Prefix: text, Limit: 10}, {Property: text, Limit: 10}} {
			if _, err := engine.Complete(t.Context(), scope, request); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := engine.Search(t.Context(), scope, &search.Request{Query: query.Query{Keywords: []string{text}}}); err != nil {
			t.Fatal(err)
		}
		return engine.Cached()
	}
	const long = 2000
	if got := ask(strings.Repeat("a", long)); got != 0 {
		t.Errorf("%d answers are cached after requests with texts of %d bytes, want none", got, long)
	}
	if got := ask("a"); got == 0 {
		t.Error("no answers are cached after requests with short texts, want some")
	}
}
