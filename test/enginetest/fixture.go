package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const hub = "local-cluster"

// now is the time of all reports and requests.
var now = time.Date(2025, 11, 1, 12, 0, 0, 0, time.UTC)

// tester is a *testing.T or a *rapid.T.
type tester interface {
	rapid.TB
	Cleanup(func())
	Context() context.Context
}

// object is a resource in a test: the part of its UID after the cluster name, and its properties as
// JSON.
type object struct{ id, properties string }

func deadline(t tester) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	return ctx
}

func decode(t tester, text string) query.Properties {
	t.Helper()
	properties, err := query.DecodeProperties([]byte(text))
	if err != nil {
		t.Fatalf("properties %s: %v", text, err)
	}
	return properties
}

// full returns a full report of a cluster. The cluster is the hub if it has the name of the hub.
func full(t tester, cluster string, objects ...object) *search.Report {
	t.Helper()
	report := delta(t, cluster, objects...)
	report.Full = true
	return report
}

func delta(t tester, cluster string, objects ...object) *search.Report {
	t.Helper()
	report := &search.Report{Cluster: cluster, Hub: cluster == hub, Time: now}
	for _, o := range objects {
		report.Put = append(report.Put, search.Resource{UID: cluster + "/" + o.id, Properties: decode(t, o.properties)})
	}
	return report
}

func apply(t tester, engine search.Engine, report *search.Report) *search.Applied {
	t.Helper()
	applied, err := engine.Apply(deadline(t), report)
	if err != nil {
		t.Fatalf("Apply() of a report of %s: %v", report.Cluster, err)
	}
	return applied
}

func everything() visibility.Scope { return visibility.Everything() }

// scopeOf returns the Scope of the user "caller" in the group "callers" under a policy.
func scopeOf(t tester, policy string) visibility.Scope {
	t.Helper()
	return visibilitytest.Scope(t, policy, &user.DefaultInfo{Name: "caller", Groups: []string{"callers"}})
}

func parse(t tester, text string) query.Query {
	t.Helper()
	q, err := query.Parse(text)
	if err != nil {
		t.Fatalf("query %s: %v", text, err)
	}
	return q
}

func find(t tester, engine search.Engine, scope visibility.Scope, request *search.Request) *search.Result {
	t.Helper()
	if request.Now.IsZero() {
		request.Now = now
	}
	result, err := engine.Search(deadline(t), scope, request)
	if err != nil {
		t.Fatalf("Search(%s): %v", fmt.Sprint(request.Query), err)
	}
	return result
}

// findAll returns the sorted UIDs of the resources that match a query, and checks Count.
func findAll(t tester, engine search.Engine, scope visibility.Scope, q query.Query) []string {
	t.Helper()
	result := find(t, engine, scope, &search.Request{Query: q, Items: true, Limit: -1})
	if result.Count != len(result.Items) {
		t.Errorf("Search(%s) with items: Count = %d, want the number of items, %d", fmt.Sprint(q), result.Count, len(result.Items))
	}
	if counted := find(t, engine, scope, &search.Request{Query: q}); counted.Count != result.Count || len(counted.Items) > 0 {
		t.Errorf("Search(%s) without items: Count = %d and %d items, want Count %d and no items", fmt.Sprint(q), counted.Count, len(counted.Items), result.Count)
	}
	uids := uidsOf(result.Items)
	slices.Sort(uids)
	return uids
}

func uidsOf(items []search.Item) []string {
	var uids []string
	for i := range items {
		uids = append(uids, items[i].UID)
	}
	return uids
}

// Comparing contains the options for comparisons. An empty list equals nil, and objects are equal if
// their JSON is equal.
var Comparing = gocmp.Options{
	cmpopts.EquateEmpty(),
	gocmp.FilterPath(func(path gocmp.Path) bool {
		return path.Last().Type() == reflect.TypeFor[search.Object]()
	}, gocmp.Transformer("JSON", func(object search.Object) string { return string(object.AppendJSON(nil)) })),
}

// same checks that got equals want. An empty list equals nil.
func same(t tester, what string, got, want any) {
	t.Helper()
	if difference := gocmp.Diff(want, got, Comparing); difference != "" {
		t.Errorf("%s (-want +got):\n%s", what, difference)
	}
}

// sameWords checks that got contains the words of want in any order.
func sameWords(t tester, what string, got []string, want string) {
	t.Helper()
	same(t, what, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(strings.Fields(want))))
}

func complete(t tester, engine search.Engine, scope visibility.Scope, request *search.CompletionRequest) *search.Completion {
	t.Helper()
	if request.Now.IsZero() {
		request.Now = now
	}
	completion, err := engine.Complete(deadline(t), scope, request)
	if err != nil {
		t.Fatalf("Complete(%s): %v", request.Property, err)
	}
	return completion
}

// schema returns the schema without the property cluster, which every resource has although no report
// contains it.
func schema(t tester, engine search.Engine, scope visibility.Scope, q query.Query) []search.PropertySchema {
	t.Helper()
	schemas, err := engine.Schema(deadline(t), scope, &q, now)
	if err != nil {
		t.Fatalf("Schema(%s): %v", fmt.Sprint(q), err)
	}
	if !slices.IsSortedFunc(schemas, func(a, b search.PropertySchema) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Errorf("Schema(%s) = %v, want the properties in the order of names", fmt.Sprint(q), schemas)
	}
	return slices.DeleteFunc(schemas, func(s search.PropertySchema) bool { return s.Name == query.Cluster })
}

func get(t tester, engine search.Engine, scope visibility.Scope, uid string) *search.Item {
	t.Helper()
	item, err := search.Get(deadline(t), engine, scope, uid)
	if err != nil {
		t.Fatalf("Get(%s): %v", uid, err)
	}
	return item
}

func version(t tester, engine search.Engine) uint64 {
	t.Helper()
	v, err := engine.Version(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func clusters(t tester, engine search.Engine) []search.ClusterState {
	t.Helper()
	states, err := engine.Clusters(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range states {
		states[i].Reported = states[i].Reported.UTC()
	}
	return states
}

func sorted(texts []string) []string { return slices.Sorted(slices.Values(texts)) }
