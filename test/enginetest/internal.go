package enginetest

import (
	"errors"
	"slices"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// internal returns the resources of a cluster with internal properties, as texts in the order of UIDs.
func internal(t tester, engine search.Engine, cluster string) []string {
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
func role(t tester, cluster, id, rules string) search.Resource {
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
	report := full(t, "c1", pod("a", "Running"))
	report.Put = append(report.Put, role(t, "c1", "admin", roleText), role(t, "c1", "view", "[]"))
	apply(t, engine, report)
	stop := errors.New("stop")
	calls := 0
	_, err := engine.Internal(deadline(t), "c1", func(*search.Resource) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("Internal() = %v after %d calls, want the error of the first call", err, calls)
	}
}
