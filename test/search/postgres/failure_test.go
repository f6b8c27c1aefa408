package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// reads returns a call of each method of an engine that reads.
func reads(engine search.Engine) map[string]func(context.Context) error {
	scope := visibility.Everything()
	return map[string]func(context.Context) error{
		"Search": func(ctx context.Context) error {
			_, err := engine.Search(ctx, scope, &search.Request{Items: true, Limit: 1, Now: time.Now()})
			return err
		},
		"Complete": func(ctx context.Context) error {
			_, err := engine.Complete(ctx, scope, &search.CompletionRequest{Property: "kind", Limit: 1, Now: time.Now()})
			return err
		},
		"Schema": func(ctx context.Context) error {
			_, err := engine.Schema(ctx, scope, &query.Query{}, time.Now())
			return err
		},
		"Get": func(ctx context.Context) error {
			_, err := search.Get(ctx, engine, scope, "c1/a")
			return err
		},
		"Clusters": func(ctx context.Context) error {
			_, err := engine.Clusters(ctx)
			return err
		},
		"Version": func(ctx context.Context) error {
			_, err := engine.Version(ctx)
			return err
		},
		"HubClasses": func(ctx context.Context) error {
			_, _, err := engine.HubClasses(ctx)
			return err
		},
	}
}

func TestDatabaseUnavailable(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn})
	mustApply(t, engine, &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{resource("c1", "a", text("kind", "Pod"), text("name", "a"))}})

	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	name := config.Database
	config.Database = "postgres"
	admin, err := pgx.ConnectConfig(within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	execute := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(within(t), statement); err != nil {
			t.Fatal(err)
		}
	}
	quoted := pgx.Identifier{name}.Sanitize()
	execute("ALTER DATABASE " + quoted + " ALLOW_CONNECTIONS false")
	execute(fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'", strings.ReplaceAll(name, "'", "''")))

	operations := map[string]func(context.Context) error{
		"Apply": func(ctx context.Context) error {
			_, err := engine.Apply(ctx, &search.Report{Cluster: "c1", Time: time.Now()})
			return err
		},
		"RemoveCluster": func(ctx context.Context) error { return engine.RemoveCluster(ctx, "c1") },
	}
	for what, operation := range reads(engine) {
		operations[what] = operation
	}
	for what, operation := range operations {
		if err := operation(within(t)); !errors.Is(err, search.ErrUnavailable) {
			t.Errorf("%s: error = %v, want ErrUnavailable", what, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := engine.Clusters(ended); !errors.Is(err, context.Canceled) || errors.Is(err, search.ErrUnavailable) {
		t.Errorf("call with a cancelled context: error = %v, want only context.Canceled", err)
	}

	execute("ALTER DATABASE " + quoted + " ALLOW_CONNECTIONS true")
	for what, operation := range reads(engine) {
		if err := operation(within(t)); err != nil {
			t.Errorf("%s after the database is available: error = %v, want none", what, err)
		}
	}
}

// TestCancelledSearch checks that the database does not continue a search after its caller has ended it.
func TestCancelledSearch(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn})
	mustApply(t, engine, &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{resource("c1", "a", text("kind", "Pod"), text("name", "a"))}})
	blocking, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer blocking.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{"BEGIN", "LOCK TABLE hub_search.resources"} {
		if _, err := blocking.Exec(within(t), statement); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Search(ctx, visibility.Everything(), &search.Request{Query: query.Query{Keywords: []string{"a"}}, Items: true, Limit: 1, Now: time.Now()})
		ended <- err
	}()
	blocked(t, dsn, 1)
	cancel()
	if err := <-ended; err == nil || errors.Is(err, search.ErrUnavailable) {
		t.Errorf("Search() with a context that has ended: error = %v, want an error other than ErrUnavailable", err)
	}
	await.True(t, "the database has ended the search", func() bool {
		return query1[int](t, dsn, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'hub-apiserver' AND wait_event_type = 'Lock'`) == 0
	})
}

// TestStatementTimeout checks that a statement timeout is not reported as an unavailable database: its cause is the
// request.
func TestStatementTimeout(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn, StatementTimeout: time.Second})
	blocking, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer blocking.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{"BEGIN", "LOCK TABLE hub_search.clusters"} {
		if _, err := blocking.Exec(within(t), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := engine.Clusters(within(t)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, search.ErrUnavailable) {
		t.Errorf("Clusters() with a blocked statement: error = %v, want only context.DeadlineExceeded", err)
	}
}
