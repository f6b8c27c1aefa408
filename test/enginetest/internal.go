package enginetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// internal returns the resources of a cluster with internal properties, as texts in the order of UIDs.
func internal(t testing.TB, engine search.Engine, cluster string) []string {
	t.Helper()
	var found []string
	_, err := engine.Internal(deadline(t), cluster, func(r *search.Resource) error {
		found = append(found, r.UID+" "+string(r.Properties.AppendJSON(nil))+" "+string(r.Internal.AppendJSON(nil)))
		return nil
	})
	if err != nil {
		t.Fatalf("Internal(%s): %v", cluster, err)
	}
	slices.Sort(found)
	return found
}

// role returns a resource with an internal property.
func role(t testing.TB, cluster, id, rules string) search.Resource {
	t.Helper()
	return search.Resource{
		UID:        cluster + "/" + id,
		Properties: decode(t, `{"kind":"ClusterRole","kind_plural":"clusterroles","name":"`+id+`"}`),
		Internal:   query.Properties{{Name: "_rules", Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: rules}}}},
	}
}

// roleText is a text that only internal properties contain.
const roleText = `[{"verbs":["needlez"]}]`

func testInternal(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	for _, cluster := range []string{"c1", "c2"} {
		report := full(t, cluster, pod("a", "Running"))
		report.Put = append(report.Put, role(t, cluster, "admin", roleText), role(t, cluster, "view", "[]"))
		apply(t, engine, report)
	}
	begin := version(t, engine)
	t.Run("ReadByCluster", func(t *testing.T) {
		same(t, "Internal(c1)", internal(t, engine, "c1"), []string{
			`c1/admin {"kind":"ClusterRole","kind_plural":"clusterroles","name":"admin"} {"_rules":"[{\"verbs\":[\"needlez\"]}]"}`,
			`c1/view {"kind":"ClusterRole","kind_plural":"clusterroles","name":"view"} {"_rules":"[]"}`,
		})
		same(t, "Internal(unknown)", internal(t, engine, "unknown"), []string(nil))
	})
	t.Run("EndsWithTheErrorOfTheVisitor", func(t *testing.T) {
		stop := errors.New("stop")
		calls := 0
		_, err := engine.Internal(deadline(t), "c1", func(*search.Resource) error { calls++; return stop })
		if !errors.Is(err, stop) || calls != 1 {
			t.Errorf("Internal() = %v after %d calls, want the error of the first call", err, calls)
		}
	})
	t.Run("NoSearchReturnsOrFindsThem", func(t *testing.T) {
		for _, item := range find(t, engine, everything(), &search.Request{Items: true, Limit: -1, OrderBy: []search.Order{{Property: "_rules"}}}).Items {
			if strings.Contains(string(item.JSON()), "_rules") {
				t.Errorf("Search() = %s, want no internal properties", item.JSON())
			}
		}
		if item := get(t, engine, everything(), "c1/admin"); strings.Contains(string(item.JSON()), "_rules") {
			t.Errorf("Get(c1/admin) = %s, want no internal properties", item.JSON())
		}
		for _, text := range []string{"needle", "eedl", "z", "_rules:*", "_rules:[]", `_rules:*needle*`} {
			same(t, "Search("+text+")", findAll(t, engine, everything(), parse(t, text)), []string(nil))
		}
		same(t, "completion", complete(t, engine, everything(), &search.CompletionRequest{Property: "_rules", Limit: -1}).Values, []search.ValueCount(nil))
	})
	t.Run("Changes", func(t *testing.T) {
		report := delta(t, "c1")
		report.Put = []search.Resource{role(t, "c1", "admin", `["changed"]`)}
		report.Delete = []string{"c1/view"}
		applied := apply(t, engine, report)
		if applied.Updated != 1 || applied.Deleted != 1 {
			t.Errorf("Apply() with other internal properties = %+v, want 1 updated and 1 deleted", applied)
		}
		if again := apply(t, engine, &search.Report{Cluster: "c1", Put: report.Put}); again.Updated != 0 {
			t.Errorf("Apply() of equal internal properties = %+v, want nothing updated", again)
		}
		var got []string
		for _, change := range changesSince(t, engine, begin, 100) {
			got = append(got, change.UID+" "+string(change.Internal.AppendJSON(nil)))
		}
		same(t, "changes", sorted(got), []string{`c1/admin {"_rules":"[\"changed\"]"}`, `c1/view {}`})
		same(t, "Internal(c1)", len(internal(t, engine, "c1")), 1)
		same(t, "Internal(c2)", len(internal(t, engine, "c2")), 2)
	})
	t.Run("AfterTheClusterIsRemoved", func(t *testing.T) {
		if err := engine.RemoveCluster(deadline(t), "c2"); err != nil {
			t.Fatal(err)
		}
		same(t, "Internal(c2)", internal(t, engine, "c2"), []string(nil))
	})
}
