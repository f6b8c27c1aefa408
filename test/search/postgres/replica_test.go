package postgres_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// replicated is an engine with a replica.
type replicated struct {
	*postgres.Engine
	primary, replica *postgrestest.Server
	bound            time.Duration
}

func openReplicated(t *testing.T, bound time.Duration) *replicated {
	t.Helper()
	primary := postgrestest.Own(t, nil)
	open(t, postgres.Options{DSN: primary.DSN})
	replica := primary.Replica(t)
	engine := open(t, postgres.Options{DSN: primary.DSN, ReplicaDSNs: []string{replica.DSN}, MaxStaleness: bound})
	return &replicated{engine, primary, replica, bound}
}

// report stores a resource with a name in cluster c1.
func (r *replicated) report(t *testing.T, name string) {
	t.Helper()
	mustApply(t, r, &search.Report{Cluster: "c1", Time: time.Now(), Put: []search.Resource{resource("c1", name, text("kind", "Pod"), text("name", name))}})
}

// finds reports whether a search, which may be stale, finds a resource.
func (r *replicated) finds(t *testing.T, scope visibility.Scope, name string) bool {
	t.Helper()
	result, err := r.Search(search.AllowStale(within(t)), scope, &search.Request{Query: equals("name", name), Items: true, Limit: 1, Now: time.Now()})
	if err != nil {
		t.Fatalf("search for %s: %v", name, err)
	}
	return result.Count > 0
}

// pause stops the replica from replaying when it contains all earlier reports. It reports a resource, and waits until the
// replica answers, which does not contain it.
func (r *replicated) pause(t *testing.T, name string) {
	t.Helper()
	position := query1[string](t, r.primary.DSN, "SELECT pg_current_wal_lsn()::text")
	await.True(t, "the replica has replayed the earlier reports", func() bool {
		return query1[bool](t, r.replica.DSN, "SELECT pg_last_wal_replay_lsn() >= '"+position+"'::pg_lsn")
	})
	query1[any](t, r.replica.DSN, "SELECT true FROM pg_wal_replay_pause()")
	await.True(t, "the replay is paused", func() bool {
		return query1[string](t, r.replica.DSN, "SELECT pg_get_wal_replay_pause_state()") == "paused"
	})
	r.report(t, name)
	await.True(t, "the replica answers searches", func() bool { return !r.finds(t, visibility.Everything(), name) })
}

// TestReplicaAnswersSearches checks which reads a replica answers, in which scope, and that it is replaced by the
// primary while it is stopped, dead or promoted.
func TestReplicaAnswersSearches(t *testing.T) {
	r := openReplicated(t, time.Hour)
	r.report(t, "a")
	// An engine ignores wrong URLs: of a replica of another database, of a server that is no replica, and of no server.
	other := &replicated{Engine: open(t, postgres.Options{
		DSN: postgrestest.Start(t), ReplicaDSNs: []string{r.replica.DSN, r.primary.DSN, "host=/nowhere user=x dbname=x"}, MaxStaleness: time.Hour,
	})}
	other.report(t, "other")
	ignoresReplicas := func() {
		t.Helper()
		for range 20 {
			if !other.finds(t, visibility.Everything(), "other") {
				t.Fatal("a search does not find the resource of the primary, want no answer from replicas of another database")
			}
		}
	}
	policy := `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules: [{apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: c1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dana}]
`
	dana := visibilitytest.Scope(t, policy, &user.DefaultInfo{Name: "dana"})
	eve := visibilitytest.Scope(t, policy, &user.DefaultInfo{Name: "eve"})
	r.pause(t, "b")
	// The primary answers while a check of the replica takes too long.
	await.True(t, "the paused replica finds only the earlier resource for dana", func() bool {
		return r.finds(t, dana, "a") && !r.finds(t, dana, "b")
	})
	if r.finds(t, eve, "a") || r.finds(t, eve, "b") {
		t.Error("a search finds resources for eve, want none")
	}
	// Reads that may not be stale, such as lists, watches and those of reports, see every report.
	if found := uids(t, r, dana, equals("name", "b")); !slices.Equal(found, []string{"c1/b"}) {
		t.Errorf("search that may not be stale = %v, want c1/b", found)
	}
	if item, err := search.Get(search.AllowStale(within(t)), r, dana, "c1/b"); err != nil || item == nil {
		t.Errorf("Get(c1/b) = %v, %v, want the resource", item, err)
	}
	if version, err := r.Version(search.AllowStale(within(t))); err != nil || version != 2 {
		t.Errorf("Version() = %d, %v, want 2", version, err)
	}
	query1[any](t, r.replica.DSN, "SELECT true FROM pg_wal_replay_resume()")
	await.True(t, "the replica has replayed the report", func() bool { return r.finds(t, dana, "b") })
	ignoresReplicas()

	// Nobody gets an error or an endless search from a replica that stops or dies.
	for what, signal := range map[string]syscall.Signal{"stopped": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		r.pause(t, what)
		if err := r.replica.Signal(signal); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the primary answers for the "+what+" replica", func() bool { return r.finds(t, dana, what) })
		if signal == syscall.SIGSTOP {
			if err := r.replica.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		} else if err := r.replica.Restart(within(t)); err != nil {
			t.Fatal(err)
		}
		query1[any](t, r.replica.DSN, "SELECT true FROM pg_wal_replay_resume()")
		ignoresReplicas()
	}

	// A promoted server is no longer a replica, whatever it contains.
	r.pause(t, "last")
	query1[any](t, r.replica.DSN, "SELECT true FROM pg_wal_replay_resume()")
	query1[bool](t, r.replica.DSN, "SELECT pg_promote()")
	query1[int](t, r.replica.DSN, "WITH gone AS (DELETE FROM hub_search.resources RETURNING 1) SELECT count(*) FROM gone")
	r.report(t, "after")
	await.True(t, "the primary answers for the promoted server", func() bool { return r.finds(t, dana, "after") })
	for range 20 {
		if !r.finds(t, dana, "after") || !r.finds(t, dana, "a") {
			t.Fatal("a search after the promotion does not find the resources of the primary")
		}
	}
	ignoresReplicas()
}

// TestReplicaWithinTheBound checks that a replica answers searches that start within the bound, and that no later search
// misses a report.
func TestReplicaWithinTheBound(t *testing.T) {
	r := openReplicated(t, time.Second)
	ctx := within(t)
	for round, used := 0, 0; used < 2; round++ {
		if ctx.Err() != nil {
			t.Fatalf("the replica answered searches in %d of %d rounds, want 2", used, round)
		}
		name := fmt.Sprint("round-", round)
		query1[any](t, r.replica.DSN, "SELECT true FROM pg_wal_replay_pause()")
		r.report(t, name)
		acknowledged := time.Now()
		missed := false
		for beyond := 0; beyond < 20; {
			started := time.Now()
			found := r.finds(t, visibility.Everything(), name)
			missed = missed || !found
			if late := started.Sub(acknowledged) - r.bound; late > 0 {
				beyond++
				if !found {
					t.Fatalf("a search for %s that started %s after the bound does not find it", name, late)
				}
			}
		}
		query1[any](t, r.replica.DSN, "SELECT true FROM pg_wal_replay_resume()")
		if missed { // only the paused replica misses a report
			used++
		}
	}
}
