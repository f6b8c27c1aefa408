package enginetest

import (
	"cmp"
	"errors"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func compareClasses(a, b visibility.Class) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace))
}

// changesSince returns all changes after a version. It requires that the current version has a change,
// because Changes waits otherwise.
func changesSince(t tester, engine search.Engine, after uint64, limit int) []search.Change {
	t.Helper()
	var all []search.Change
	for last := version(t, engine); after < last; {
		changes, upTo, err := search.WholeChanges(deadline(t), engine, after, limit)
		if err != nil {
			t.Fatalf("Changes(%d): %v", after, err)
		}
		if upTo <= after {
			t.Fatalf("Changes(%d) returns version %d, want more than %[1]d and at most %[3]d", after, upTo, last)
		}
		checkVersions(t, changes, after, upTo)
		for i := range changes {
			changes[i].Bytes = 0 // depends on the engine
		}
		all, after = append(all, changes...), upTo
	}
	return all
}

// checkVersions checks that changes are in the order of their versions, and that all versions are
// after one version and not after the other.
func checkVersions(t tester, changes []search.Change, after, upTo uint64) {
	t.Helper()
	last := after + 1
	for _, change := range changes {
		if change.Version < last || change.Version > upTo {
			t.Errorf("Changes(%d) returns a change of version %d, want %d to %d", after, change.Version, last, upTo)
		}
		last = change.Version
	}
}

func testChanges(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	apply(t, engine, full(t, "c", pod("a", "One"), pod("b", "One")))
	begin := version(t, engine)
	apply(t, engine, delta(t, "c", pod("a", "Two")))
	apply(t, engine, delta(t, hub, pod("h1", "New"), pod("h2", "New"), pod("h3", "New")))
	gone := delta(t, "c")
	gone.Delete = []string{"c/b"}
	apply(t, engine, gone)
	t.Run("PartsOfAVersion", func(t *testing.T) {
		for _, bound := range []struct{ limit, bytes int }{{1, 1 << 20}, {100, 1}, {2, 1 << 20}, {4, 1 << 20}} {
			var got []string
			position, last := search.Position{Version: begin}, search.Position{Version: version(t, engine)}
			for position != last {
				changes, next, err := engine.Changes(deadline(t), position, bound.limit, bound.bytes)
				if err != nil {
					t.Fatal(err)
				}
				if len(changes) == 0 || len(changes) > bound.limit || bound.bytes == 1 && len(changes) > 1 {
					t.Fatalf("Changes(%v) within %+v = %d changes, want at least one and no more than the bound", position, bound, len(changes))
				}
				for _, change := range changes {
					got = append(got, change.UID)
					if change.Bytes <= 0 {
						t.Errorf("bytes of the change of %s = %d, want more than 0", change.UID, change.Bytes)
					}
				}
				position = next
			}
			sameWords(t, "changes", got, "c/a local-cluster/h1 local-cluster/h2 local-cluster/h3 c/b")
		}
	})
	t.Run("WithoutChangesReturnsWhenTheContextEnds", func(t *testing.T) {
		current := version(t, engine)
		changes, upTo, err := search.WholeChanges(ended(), engine, current, 100)
		if err != nil || len(changes) > 0 || upTo != current {
			t.Errorf("Changes(%d) = %d changes, version %d, error %v, want no changes, the same version and no error", current, len(changes), upTo, err)
		}
	})
	t.Run("WaitsForAChange", func(t *testing.T) {
		type answer struct {
			changes []search.Change
			err     error
		}
		answers := make(chan answer, 1)
		ctx, current := deadline(t), version(t, engine)
		go func() {
			changes, _, err := search.WholeChanges(ctx, engine, current, 100)
			answers <- answer{changes, err}
		}()
		apply(t, engine, delta(t, "c", pod("waited", "New")))
		got := <-answers
		if got.err != nil || len(got.changes) != 1 || got.changes[0].UID != "c/waited" {
			t.Errorf("Changes() = %v, error %v, want the change of c/waited", got.changes, got.err)
		}
	})
	t.Run("UnknownVersion", func(t *testing.T) {
		if _, _, err := search.WholeChanges(deadline(t), engine, version(t, engine)+1000, 100); !errors.Is(err, search.ErrExpired) {
			t.Errorf("Changes() after a future version: error %v, want ErrExpired", err)
		}
	})
}

// testReopen checks that a reopened engine contains all acknowledged writes.
func testReopen(t *testing.T, open func(t *testing.T) search.Engine, reopen func(t *testing.T, engine search.Engine) search.Engine) {
	engine := open(t)
	apply(t, engine, chained(t, "c1"))
	apply(t, engine, chained(t, hub))
	queried(t, engine)
	pending := delta(t, "c1")
	pending.AddEdges = []search.Edge{edge("c1", "pod1", "Pod", "later", "Pod", "ownedBy")}
	pending.Delete = []string{"c1/svc"}
	pending.Put = append(pending.Put, role(t, "c1", "admin", roleText))
	apply(t, engine, pending)
	apply(t, engine, full(t, "gone", pod("a", "Running")))
	if err := engine.RemoveCluster(deadline(t), "gone"); err != nil {
		t.Fatal(err)
	}
	type state struct {
		Found    []search.Item
		Related  []string
		Clusters []search.ClusterState
		Labels   *search.Completion
		Schema   []search.PropertySchema
		Version  uint64
		Internal []string
	}
	read := func() state {
		t.Helper()
		order := []search.Order{{Property: query.Cluster}}
		result := find(t, engine, everything(), &search.Request{Items: true, Limit: -1, OrderBy: order})
		return state{
			Found: result.Items, Related: sorted(related(t, engine, "set,pod1,deploy")), Clusters: clusters(t, engine), Version: version(t, engine),
			Labels: complete(t, engine, everything(), &search.CompletionRequest{Property: query.Label, Limit: -1}),
			Schema: schema(t, engine, everything(), query.Query{}), Internal: internal(t, engine, "c1"),
		}
	}
	before := read()
	engine = reopen(t, engine)
	after := read()
	if after.Version < before.Version {
		t.Errorf("Version() after Reopen = %d, want at least %d", after.Version, before.Version)
	}
	after.Version = before.Version
	same(t, "data after Reopen", after, before)
	if _, _, err := search.WholeChanges(deadline(t), engine, version(t, engine)+1000, 100); !errors.Is(err, search.ErrExpired) {
		t.Errorf("Changes() after a future version: error %v, want ErrExpired", err)
	}
	applied := apply(t, engine, delta(t, "c1", pod("later", "Running")))
	if applied.Version <= before.Version {
		t.Errorf("Apply() after Reopen: version %d, want more than %d", applied.Version, before.Version)
	}
	sameWords(t, "related to a resource that was reported after its edge", related(t, engine, "later"), "c1/pod1")
}
