package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// nasty contains texts with a special meaning in SQL, LIKE, arrays, JSON or PostgreSQL.
var nasty = []string{
	`'; DROP SCHEMA hub_search CASCADE; --`, `a'b"c`, `100%`, `under_score`, `back\slash`, `\`, `%`, `_`, `*`,
	"nul\x00inside", "\x00", "\x01", "\x01\x02\x02", "\x02\x03", "tab\tnew\nline", `{a,b}`, `{"a":"b"}`, `$1`, `NULL`,
	"ünïcödé ☃ 𝄞", "İstanbul", "ſ", `a=b=c`, `=`, strings.Repeat("=", 40), strings.Repeat("long", 700), " ", "1e3", "2025-11-01T00:00:00Z", `E'\\x00'`,
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	return ctx
}

func text(name, value string) query.Property {
	return query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: value}}}
}

func resource(cluster, id string, properties ...query.Property) search.Resource {
	slices.SortFunc(properties, func(a, b query.Property) int { return strings.Compare(a.Name, b.Name) })
	return search.Resource{UID: cluster + "/" + id, Properties: properties}
}

func mustApply(t testing.TB, engine search.Engine, report *search.Report) *search.Applied {
	t.Helper()
	applied, err := engine.Apply(within(t), report)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func uids(t testing.TB, engine search.Engine, scope visibility.Scope, q query.Query) []string {
	t.Helper()
	result, err := engine.Search(within(t), scope, &search.Request{Query: q, Items: true, Limit: -1, Now: time.Now()})
	if err != nil {
		t.Fatalf("Search(%s): %v", fmt.Sprint(q), err)
	}
	if result.Count != len(result.Items) {
		t.Errorf("Search(%s): count = %d, want the number of items, %d", fmt.Sprint(q), result.Count, len(result.Items))
	}
	var found []string
	for i := range result.Items {
		found = append(found, result.Items[i].UID)
	}
	slices.Sort(found)
	return found
}

func equals(property, value string) query.Query {
	return query.Query{Filters: []query.Filter{{Property: property, Comparisons: []query.Comparison{query.NewComparison(query.Equal, value)}}}}
}

func TestTextsAreData(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	report := &search.Report{Cluster: "c1", Full: true, Time: time.Now()}
	for i, value := range nasty {
		report.Put = append(report.Put, resource("c1", fmt.Sprint(i),
			text("kind", "Thing"), text("name", value), text("status", value), text("p"+value, "x"),
			query.Property{Name: "label", Type: query.Map, Leaves: []query.Leaf{{Key: value, Type: query.String, Text: value}}},
			query.Property{Name: "port", Type: query.List, Leaves: []query.Leaf{{Type: query.String, Text: value}}}))
	}
	mustApply(t, engine, report)
	everything := visibility.Everything()
	for i, value := range nasty {
		uid := fmt.Sprintf("c1/%d", i)
		queries := []query.Query{
			equals("name", value), equals("status", value), equals("p"+value, "x"), equals("port", value),
			equals("label", value+"="+value),
		}
		for _, operator := range []query.Op{query.Equal, query.NotEqual, query.Less, query.GreaterOrEqual} {
			for _, property := range []string{"name", "status", "label", "port", "created", "_hidden", "namespace"} {
				queries = append(queries,
					query.Query{Filters: []query.Filter{{Property: property, Comparisons: []query.Comparison{query.NewComparison(operator, value)}}}},
					query.Query{Filters: []query.Filter{{Property: property, Comparisons: []query.Comparison{query.NewPattern(operator, "*"+value+"*")}}}})
			}
		}
		queries = append(queries, query.Query{Keywords: []string{value}}, query.Query{Keywords: []string{value, "thing"}})
		for at, q := range queries {
			var want []string
			for _, r := range report.Put {
				if q.Matches("c1", r.Properties, time.Now()) {
					want = append(want, r.UID)
				}
			}
			slices.Sort(want)
			found := uids(t, engine, everything, q)
			if at < 5 && !slices.Contains(found, uid) {
				t.Errorf("Search(%s) = %v, want %s included for value %q", fmt.Sprint(q), found, uid, value)
			}
			if difference := gocmp.Diff(want, found, cmpopts.EquateEmpty()); difference != "" {
				t.Errorf("Search(%s) (-want +got):\n%s", fmt.Sprint(q), difference)
			}
		}
		completion, err := engine.Complete(within(t), everything, &search.CompletionRequest{Property: "status", Prefix: value, Limit: 10})
		if err != nil || !slices.ContainsFunc(completion.Values, func(v search.ValueCount) bool { return v.Value == value }) {
			t.Errorf("completion with prefix %q = %v, %v, want the value included", value, completion, err)
		}
		if item, err := search.Get(within(t), engine, everything, uid+value); err != nil || item != nil {
			t.Errorf("Get(%q) = %v, %v, want nil", uid+value, item, err)
		}
	}
	states, err := engine.Clusters(within(t))
	if err != nil || len(states) != 1 || states[0].Resources != len(nasty) {
		t.Errorf("Clusters() = %v, %v, want one cluster with %d resources", states, err, len(nasty))
	}
}

func TestScopeOfManyNamespaces(t *testing.T) {
	const namespaces = 6000
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	report := &search.Report{Cluster: "local-cluster", Hub: true, Full: true, Time: time.Now()}
	var policy strings.Builder
	want := 0
	for i := range namespaces + 500 {
		namespace := fmt.Sprintf("n%d", i)
		report.Put = append(report.Put, resource("local-cluster", fmt.Sprint(i), text("kind", "Pod"), text("kind_plural", "pods"),
			text("name", "p"), text("namespace", namespace), text("status", []string{"Running", "Failed"}[i%2])))
		if i < namespaces {
			if i%2 == 0 {
				want++
			}
			fmt.Fprintf(&policy, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: b, namespace: %s}\n"+
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pods}\n"+
				"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: caller}]\n", namespace)
		}
	}
	policy.WriteString("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: pods}\n" +
		"rules: [{apiGroups: [\"\"], resources: [pods], verbs: [list]}]\n")
	mustApply(t, engine, report)
	scope := visibilitytest.Scope(t, policy.String(), &user.DefaultInfo{Name: "caller"})
	for text, want := range map[string]int{"kind:Pod": namespaces, "status:Running": want, "status:Running kind:Pod": want, "running": want, "name:p*": namespaces} {
		q, err := query.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if found := uids(t, engine, scope, q); len(found) != want {
			t.Errorf("Search(%s) = %d resources, want %d", text, len(found), want)
		}
	}
}

// TestConcurrentStarts checks that servers that start concurrently create the tables once.
func TestConcurrentStarts(t *testing.T) {
	dsn := postgrestest.Start(t)
	engines := make([]*postgres.Engine, 4)
	errs := make([]error, len(engines))
	var starting sync.WaitGroup
	for i := range engines {
		starting.Go(func() { engines[i], errs[i] = postgres.Open(within(t), postgres.Options{DSN: dsn}) })
	}
	starting.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("server %d: %v", i, err)
		}
		t.Cleanup(func() {
			if err := engines[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	var reporting sync.WaitGroup
	for i, engine := range engines {
		reporting.Go(func() {
			cluster := fmt.Sprintf("c%d", i)
			report := &search.Report{Cluster: cluster, Full: true, Time: time.Now(), Put: []search.Resource{resource(cluster, "a", text("name", "x"))}}
			if _, err := engine.Apply(within(t), report); err != nil {
				t.Error(err)
			}
		})
	}
	reporting.Wait()
	for _, engine := range engines {
		if found := uids(t, engine, visibility.Everything(), query.Query{}); len(found) != len(engines) {
			t.Errorf("search = %v, want %d resources", found, len(engines))
		}
	}
	if version := query1[int](t, dsn, "SELECT count(*) FROM hub_search.migrations"); version != 1 {
		t.Errorf("migrations = %d, want 1", version)
	}
}

func query1[T any](t testing.TB, dsn, statement string) (value T) {
	t.Helper()
	connection, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
	if err := connection.QueryRow(within(t), statement).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

// TestVersionsOfTheSchema checks that a server accepts the tables of version 1 that have all columns, and no others of
// another version.
func TestVersionsOfTheSchema(t *testing.T) {
	dsn := postgrestest.Start(t)
	if err := open(t, postgres.Options{DSN: dsn}).Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		statement string
		want      string
	}{
		{"UPDATE hub_search.migrations SET version = 1", ""},
		{"DROP INDEX hub_search.resources_internal", "they have version 1"},
		{"UPDATE hub_search.migrations SET version = 99", "they have version 99"},
	} {
		execute(t, dsn, test.statement)
		engine, err := postgres.Open(within(t), postgres.Options{DSN: dsn})
		if err == nil {
			mustApply(t, engine, &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{resource("c1", "a", text("kind", "Pod"))}})
			_ = engine.Close()
		}
		if got := fmt.Sprint(err); (test.want == "") != (err == nil) || !strings.Contains(got, test.want) {
			t.Errorf("Open() after %s = %v, want an error with %q", test.statement, err, test.want)
		}
	}
}

func execute(t testing.TB, dsn, statement string) {
	t.Helper()
	connection, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
	if _, err := connection.Exec(within(t), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// TestServersShareWrites checks that one server reads the reports that another server writes, and is notified of them.
func TestServersShareWrites(t *testing.T) {
	options := postgres.Options{DSN: postgrestest.Start(t), PollInterval: time.Hour}
	writer, watcher := open(t, options), open(t, options)
	version, err := watcher.Version(within(t))
	if err != nil {
		t.Fatal(err)
	}
	type changed struct {
		changes []search.Change
		err     error
	}
	result := make(chan changed, 1)
	go func() {
		// The poll interval is an hour, so only a notification ends the wait in time.
		changes, _, err := search.WholeChanges(within(t), watcher, version, 10)
		result <- changed{changes, err}
	}()
	mustApply(t, writer, &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{resource("c1", "a", text("name", "x"))}})
	got := <-result
	if got.err != nil || len(got.changes) != 1 || got.changes[0].UID != "c1/a" {
		t.Errorf("Changes() = %v, %v, want the change of c1/a", got.changes, got.err)
	}
	if found := uids(t, watcher, visibility.Everything(), equals("name", "x")); !slices.Equal(found, []string{"c1/a"}) {
		t.Errorf("search of the watcher = %v, want c1/a", found)
	}
	if err := writer.RemoveCluster(within(t), "c1"); err != nil {
		t.Fatal(err)
	}
	mustApply(t, writer, &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{resource("c1", "b", text("name", "y"))}})
	if found := uids(t, watcher, visibility.Everything(), query.Query{}); !slices.Equal(found, []string{"c1/b"}) {
		t.Errorf("search of the watcher after the cluster reported again = %v, want c1/b", found)
	}
}

func TestOldChangesExpire(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t), KeepChanges: 2, TrimInterval: 10 * time.Millisecond})
	for i := range 6 {
		mustApply(t, engine, &search.Report{Cluster: "c1", Full: true, Time: time.Now(),
			Put: []search.Resource{resource("c1", "a", text("name", fmt.Sprint(i)), text("kind", fmt.Sprint("K", i)))}})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := wait.PollUntilContextCancel(within(t), 10*time.Millisecond, true, func(context.Context) (bool, error) {
		_, _, err := search.WholeChanges(ended, engine, 1, 100)
		if err != nil && !errors.Is(err, search.ErrExpired) {
			return false, err
		}
		return err != nil, nil
	})
	if err != nil {
		t.Fatalf("Changes(1) after trimming: error = %v, want ErrExpired", err)
	}
	version, err := engine.Version(within(t))
	if err != nil {
		t.Fatal(err)
	}
	changes, _, err := search.WholeChanges(ended, engine, version-1, 100)
	if err != nil || len(changes) != 1 {
		t.Errorf("changes of the last version = %v, %v, want one change", changes, err)
	}
	if found := uids(t, engine, visibility.Everything(), equals("name", "5")); len(found) != 1 {
		t.Errorf("search = %v, want one resource", found)
	}
}

// TestKilledConnection checks that a report is not stored partially if its connection is killed.
func TestKilledConnection(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn})
	full := func(status string) *search.Report {
		report := &search.Report{Cluster: "c1", Full: true, Time: time.Now()}
		for i := range 3000 {
			report.Put = append(report.Put, resource("c1", fmt.Sprint(i), text("kind", "Pod"), text("kind_plural", "pods"),
				text("name", fmt.Sprint("pod-", i)), text("namespace", fmt.Sprint("n", i%50)), text("status", status)))
			if i > 0 {
				report.AddEdges = append(report.AddEdges, search.Edge{SourceUID: fmt.Sprint("c1/", i), DestUID: "c1/0", Type: "ownedBy"})
			}
		}
		return report
	}
	mustApply(t, engine, full("Before"))
	// The lock blocks the last statement of a report, so that the test can kill its connection.
	holder, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close(context.WithoutCancel(t.Context())) }()
	tx, err := holder.Begin(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(within(t), "LOCK TABLE hub_search.changes IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := engine.Apply(within(t), full("After"))
		failed <- err
	}()
	err = wait.PollUntilContextCancel(within(t), 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var killed bool
		err := tx.QueryRow(ctx, `SELECT coalesce(bool_or(pg_terminate_backend(l.pid)), false) FROM pg_locks l
			WHERE NOT l.granted AND l.relation = 'hub_search.changes'::regclass`).Scan(&killed)
		return killed, err
	})
	if err != nil {
		t.Fatalf("waiting until the report waits for the lock: %v", err)
	}
	if err := <-failed; err == nil {
		t.Fatal("Apply() with a killed connection succeeds, want an error")
	}
	if err := tx.Rollback(within(t)); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]int{"Before": 3000, "After": 0} {
		if found := uids(t, engine, visibility.Everything(), equals("status", status)); len(found) != want {
			t.Errorf("resources with status %s = %d, want %d", status, len(found), want)
		}
	}
	applied := mustApply(t, engine, full("After"))
	if applied.Updated != 3000 || applied.Added != 0 || applied.Deleted != 0 || applied.EdgesAdded != 0 || applied.Resources != 3000 || applied.Edges != 2999 {
		t.Errorf("Apply() of the repeated report = %+v, want 3000 updated, 3000 resources and 2999 edges", applied)
	}
	completion, err := engine.Complete(within(t), visibility.Everything(), &search.CompletionRequest{Property: "status", Limit: -1})
	if err != nil || len(completion.Values) != 1 || completion.Values[0] != (search.ValueCount{Value: "After", Count: 3000}) {
		t.Errorf("completion of status = %+v, %v, want After with count 3000", completion, err)
	}
}

// TestWithoutTrigrams checks keyword searches on a database without the extension pg_trgm.
func TestWithoutTrigrams(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn})

	connection, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
	// CASCADE also drops the indexes that use the extension.
	if _, err := connection.Exec(within(t), "DROP EXTENSION pg_trgm CASCADE"); err != nil {
		t.Fatal(err)
	}
	mustApply(t, engine, &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{
		resource("c1", "a", text("name", "nginx-proxy")), resource("c1", "b", text("name", "redis")),
	}})
	for _, keyword := range []string{"ginx", "X-PRO", "g"} {
		if found := uids(t, engine, visibility.Everything(), query.Query{Keywords: []string{keyword}}); !slices.Equal(found, []string{"c1/a"}) {
			t.Errorf("search for %s = %v, want c1/a", keyword, found)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, options := range map[string]postgres.Options{
		"NoConnectionString":  {},
		"BadConnectionString": {DSN: "postgres://%zz"},
		"NoServer":            {DSN: "host=/nowhere user=x dbname=x"},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := postgres.Open(within(t), options)
			if err == nil {
				_ = engine.Close()
				t.Fatal("Open() succeeds, want an error")
			}
		})
	}
}

// TestReconnects checks that an engine reconnects after its connections were killed.
func TestReconnects(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn, PollInterval: 20 * time.Millisecond})
	mustApply(t, engine, &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{resource("c1", "a", text("name", "x"))}})
	query1[int](t, dsn, "SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	await.Eventually(t, "a search succeeds after the connections were killed", func(ctx context.Context) error {
		result, err := engine.Search(ctx, visibility.Everything(), &search.Request{})
		if err == nil && result.Count != 1 {
			err = fmt.Errorf("count = %d, want 1", result.Count)
		}
		return err
	})
}
