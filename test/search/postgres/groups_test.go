package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// hold executes a statement in a transaction, which the returned function ends.
func hold(t *testing.T, dsn, statement string) (release func()) {
	t.Helper()
	connection, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
	for _, one := range []string{"BEGIN", statement} {
		if _, err := connection.Exec(within(t), one); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		if _, err := connection.Exec(within(t), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
}

// blocked waits until as many connections of an engine wait for a lock.
func blocked(t *testing.T, dsn string, connections int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d connections wait for a lock", connections), func() bool {
		return query1[int](t, dsn, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'hub-apiserver' AND wait_event_type = 'Lock'`) >= connections
	})
}

func small(cluster string) *search.Report {
	return &search.Report{Cluster: cluster, Time: time.Now(), Put: []search.Resource{resource(cluster, "a", text("kind", "Pod"), text("name", cluster))}}
}

// TestReportsInGroups checks that waiting reports share transactions, and that a report that PostgreSQL rejects does
// not make others fail.
func TestReportsInGroups(t *testing.T) {
	const clusters, rejected = 20, "c13"
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn})
	for _, statement := range []string{
		`CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''rejected''; END'`,
		`CREATE TRIGGER reject BEFORE INSERT ON hub_search.changes FOR EACH ROW WHEN (NEW.cluster = '` + rejected + `') EXECUTE FUNCTION reject()`,
	} {
		connection, err := pgx.Connect(within(t), dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Exec(within(t), statement); err != nil {
			t.Fatal(err)
		}
		if err := connection.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	// All reports wait behind the first ones.
	release := hold(t, dsn, "LOCK TABLE hub_search.meta IN ACCESS EXCLUSIVE MODE")
	applied, errs := make([]*search.Applied, clusters), make([]error, clusters)
	var reporting sync.WaitGroup
	for i := range clusters {
		reporting.Go(func() { applied[i], errs[i] = engine.Apply(within(t), small(fmt.Sprint("c", i))) })
		if i == 1 {
			blocked(t, dsn, 2)
		}
	}
	release()
	reporting.Wait()
	versions := map[uint64]bool{}
	for i := range clusters {
		cluster := fmt.Sprint("c", i)
		if (errs[i] != nil) != (cluster == rejected) {
			t.Errorf("Apply() of %s: error = %v, want an error of %s only", cluster, errs[i], rejected)
		}
		if errs[i] != nil {
			continue
		}
		if a := applied[i]; a.Added != 1 || a.Resources != 1 || versions[a.Version] {
			t.Errorf("Apply() of %s = %+v, want one added resource and a version of its own", cluster, a)
		}
		versions[applied[i].Version] = true
	}
	if found := uids(t, engine, visibility.Everything(), query.Query{}); len(found) != clusters-1 {
		t.Errorf("search = %d resources, want %d", len(found), clusters-1)
	}
	changes, _, err := search.WholeChanges(within(t), engine, 0, 1000)
	if err != nil || len(changes) != clusters-1 {
		t.Errorf("Changes(0) = %d changes, %v, want %d", len(changes), err, clusters-1)
	}
}

// TestReportsShareTransactions checks that reports that wait at the same time are applied in fewer transactions.
func TestReportsShareTransactions(t *testing.T) {
	const clusters = 20
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn})
	release := hold(t, dsn, "LOCK TABLE hub_search.meta IN ACCESS EXCLUSIVE MODE")
	waiting, stop := context.WithCancel(t.Context())
	var reporting sync.WaitGroup
	for i := range clusters {
		reporting.Go(func() {
			if _, err := engine.Apply(within(t), small(fmt.Sprint("c", i))); err != nil {
				t.Error(err)
			}
		})
	}
	blocked(t, dsn, 2)
	// A caller that leaves while its report waits takes the report back.
	left := make(chan error, 1)
	go func() {
		_, err := engine.Apply(waiting, small("left"))
		left <- err
	}()
	stop()
	if err := <-left; err == nil {
		t.Error("Apply() with a cancelled context succeeds, want an error")
	}
	release()
	reporting.Wait()
	if transactions := query1[int](t, dsn, "SELECT count(DISTINCT xmin::text) FROM hub_search.changes"); transactions > clusters/2 {
		t.Errorf("%d reports took %d transactions, want at most %d", clusters, transactions, clusters/2)
	}
	if stored := query1[int](t, dsn, "SELECT count(*) FROM hub_search.clusters WHERE name = 'left'"); stored != 0 {
		t.Error("the report of the caller that left is stored, want it dropped")
	}
}

// TestReportsDoNotWaitForAnotherServer checks that small and full reports proceed while another server changes a cluster,
// and that reports of this cluster are applied afterwards.
func TestReportsDoNotWaitForAnotherServer(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine, other := open(t, postgres.Options{DSN: dsn}), open(t, postgres.Options{DSN: dsn})
	mustApply(t, engine, small("busy"))
	// The lock blocks the report of the other server while it holds the lock of its cluster.
	release := hold(t, dsn, "SELECT 1 FROM hub_search.resources FOR UPDATE")
	const waiting = 8
	results := make(chan error, 1+waiting)
	report := func(engine *postgres.Engine, name string) {
		r := small("busy")
		r.Put[0].Properties = append(r.Put[0].Properties, text("status", name))
		_, err := engine.Apply(within(t), r)
		results <- err
	}
	go report(other, "first")
	blocked(t, dsn, 1)
	for range waiting {
		go report(engine, "second")
	}
	for range 10 {
		mustApply(t, engine, small("free"))
		full := small("free")
		full.Full = true
		mustApply(t, engine, full)
	}
	release()
	for range 1 + waiting {
		if err := <-results; err != nil {
			t.Errorf("Apply() of a cluster that another server changes: %v", err)
		}
	}
	if found := uids(t, engine, visibility.Everything(), equals("status", "second")); len(found) != 1 {
		t.Errorf("search for the second status = %v, want the resource", found)
	}
}
