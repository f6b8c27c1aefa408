package enginetest

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	hub = "local-cluster"
	// callTimeout bounds each call of an engine.
	callTimeout = 30 * time.Second
)

// now is when everything happens.
var now = time.Date(2025, 11, 1, 12, 0, 0, 0, time.UTC)

// object is a resource in a test: its name after the cluster in the UID, and its properties as JSON.
type object struct{ id, properties string }

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	t.Cleanup(cancel)
	return ctx
}

func decode(t testing.TB, text string) query.Properties {
	t.Helper()
	properties, err := query.DecodeProperties([]byte(text))
	if err != nil {
		t.Fatalf("properties %s: %v", text, err)
	}
	return properties
}

// full is a full report of a cluster, of the hub if that is its name.
func full(t testing.TB, cluster string, objects ...object) *search.Report {
	t.Helper()
	report := delta(t, cluster, objects...)
	report.Full = true
	return report
}

func delta(t testing.TB, cluster string, objects ...object) *search.Report {
	t.Helper()
	report := &search.Report{Cluster: cluster, Hub: cluster == hub, Time: now}
	for _, o := range objects {
		report.Put = append(report.Put, search.Resource{UID: cluster + "/" + o.id, Properties: decode(t, o.properties)})
	}
	return report
}

func apply(t testing.TB, engine search.Engine, report *search.Report) *search.Applied {
	t.Helper()
	applied, err := engine.Apply(deadline(t), report)
	if err != nil {
		t.Fatalf("report of %s: %v", report.Cluster, err)
	}
	return applied
}

func everything() visibility.Scope { return visibilitytest.Everything() }

// scopeOf is what a user called "caller" in the group "callers" may find.
func scopeOf(t testing.TB, policy string) visibility.Scope {
	t.Helper()
	return visibilitytest.Scope(t, policy, &user.DefaultInfo{Name: "caller", Groups: []string{"callers"}})
}

func parse(t testing.TB, text string) query.Query {
	t.Helper()
	q, err := query.Parse(text)
	if err != nil {
		t.Fatalf("query %s: %v", text, err)
	}
	return q
}

func find(t testing.TB, engine search.Engine, scope visibility.Scope, request *search.Request) *search.Result {
	t.Helper()
	if request.Now.IsZero() {
		request.Now = now
	}
	result, err := engine.Search(deadline(t), scope, request)
	if err != nil {
		t.Fatalf("search for %s: %v", request.Query.String(), err)
	}
	return result
}

// findAll returns what a query finds, as UIDs in order, and checks that the count is theirs.
func findAll(t testing.TB, engine search.Engine, scope visibility.Scope, q query.Query) []string {
	t.Helper()
	result := find(t, engine, scope, &search.Request{Query: q, Items: true, Limit: -1})
	if result.Count != len(result.Items) {
		t.Errorf("%s: counted %d, but %d were found", q.String(), result.Count, len(result.Items))
	}
	if counted := find(t, engine, scope, &search.Request{Query: q}); counted.Count != result.Count || len(counted.Items) > 0 {
		t.Errorf("%s: %d counted and %d items without items, %d with", q.String(), counted.Count, len(counted.Items), result.Count)
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

// Comparing takes an empty list for none, and objects for what they append.
var Comparing = gocmp.Options{
	cmpopts.EquateEmpty(),
	gocmp.FilterPath(func(path gocmp.Path) bool {
		return path.Last().Type() == reflect.TypeFor[search.Object]()
	}, gocmp.Transformer("JSON", func(object search.Object) string { return string(object.AppendJSON(nil)) })),
}

// same fails unless two things are equal; an empty list is like none.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if difference := gocmp.Diff(want, got, Comparing); difference != "" {
		t.Errorf("%s (-want +got):\n%s", what, difference)
	}
}

// sameList compares with the words of a text in their order, sameWords in any.
func sameList(t testing.TB, what string, got []string, want string) {
	t.Helper()
	same(t, what, got, strings.Fields(want))
}

func sameWords(t testing.TB, what string, got []string, want string) {
	t.Helper()
	same(t, what, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(strings.Fields(want))))
}

func complete(t testing.TB, engine search.Engine, scope visibility.Scope, request *search.CompletionRequest) *search.Completion {
	t.Helper()
	if request.Now.IsZero() {
		request.Now = now
	}
	completion, err := engine.Complete(deadline(t), scope, request)
	if err != nil {
		t.Fatalf("completion of %s: %v", request.Property, err)
	}
	return completion
}

// schema leaves the property cluster out, which every resource has and none reports.
func schema(t testing.TB, engine search.Engine, scope visibility.Scope, q query.Query) []search.PropertySchema {
	t.Helper()
	schemas, err := engine.Schema(deadline(t), scope, &q, now)
	if err != nil {
		t.Fatalf("schema of %s: %v", q.String(), err)
	}
	if !slices.IsSortedFunc(schemas, func(a, b search.PropertySchema) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Errorf("the schema is not in the order of names: %v", schemas)
	}
	return slices.DeleteFunc(schemas, func(s search.PropertySchema) bool { return s.Name == query.Cluster })
}

func get(t testing.TB, engine search.Engine, scope visibility.Scope, uid string) *search.Item {
	t.Helper()
	item, err := engine.Get(deadline(t), scope, uid)
	if err != nil {
		t.Fatalf("get %s: %v", uid, err)
	}
	return item
}

func version(t testing.TB, engine search.Engine) uint64 {
	t.Helper()
	v, err := engine.Version(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func clusters(t testing.TB, engine search.Engine) []search.ClusterState {
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

// sorted returns the texts in order.
func sorted(texts []string) []string { return slices.Sorted(slices.Values(texts)) }

func contains(texts []string, text string) bool { return slices.Contains(texts, text) }
