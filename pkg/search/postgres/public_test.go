package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/fleetgen"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres/postgrestest"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// publicTables are those of the public indexer.
const publicTables = `
CREATE SCHEMA search;
CREATE TABLE search.resources (uid TEXT PRIMARY KEY, cluster TEXT, data JSONB);
CREATE TABLE search.edges (sourceid TEXT, sourcekind TEXT, destid TEXT, destkind TEXT, edgetype TEXT, cluster TEXT, PRIMARY KEY (sourceid, destid, edgetype));
CREATE INDEX data_kind_idx ON search.resources USING gin ((data->'kind'));
CREATE INDEX data_namespace_idx ON search.resources USING gin ((data->'namespace'));
CREATE INDEX data_name_idx ON search.resources USING gin ((data->'name'));`

// fillPublic writes reports as the public indexer would.
func fillPublic(t testing.TB, dsn string, reports ...*search.Report) {
	t.Helper()
	connection, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
	if _, err := connection.Exec(within(t), publicTables); err != nil {
		t.Fatal(err)
	}
	for _, report := range reports {
		batch := &pgx.Batch{}
		for _, r := range report.Put {
			data := string(r.Properties.AppendJSON(nil))
			if report.Hub && r.Properties.Get("_hubClusterResource") == nil {
				data = strings.Replace(data, "{", `{"_hubClusterResource":true,`, 1)
			}
			batch.Queue("INSERT INTO search.resources VALUES ($1, $2, $3)", r.UID, report.Cluster, data)
		}
		for _, e := range report.AddEdges {
			batch.Queue("INSERT INTO search.edges VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING", e.SourceUID, e.SourceKind, e.DestUID, e.DestKind, e.Type, report.Cluster)
		}
		if err := connection.SendBatch(within(t), batch).Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func openPublic(t testing.TB, dsn string) *postgres.Public {
	t.Helper()
	engine, err := postgres.OpenPublic(within(t), postgres.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}

// TestPublicDatabase asks the same of a database of the public indexer and of our own tables.
func TestPublicDatabase(t *testing.T) {
	fleet := fleetgen.Options{Clusters: 3, PerCluster: 400}
	var reports []*search.Report
	for i := range fleet.Clusters {
		reports = append(reports, fleetgen.Cluster(fleet, i))
	}
	publicDSN := postgrestest.Start(t)
	fillPublic(t, publicDSN, reports...)
	public, own := openPublic(t, publicDSN), open(t, postgres.Options{DSN: postgrestest.Start(t)})
	for _, report := range reports {
		mustApply(t, own, report)
	}
	publicStates, ownStates := clusterStates(t, public), clusterStates(t, own)
	for i := range ownStates {
		// The indexer does not say when a cluster has reported.
		ownStates[i].Reported = time.Time{}
	}
	if diff := gocmp.Diff(ownStates, publicStates); diff != "" || publicStates[0].Secrets == 0 {
		t.Errorf("the clusters are others: %s", diff)
	}
	scopes := map[string]visibility.Scope{
		"everything": visibilitytest.Everything(),
		"nothing":    {},
		"some":       visibilitytest.Scope(t, fleetgen.Policy(1, 2, 5), &user.DefaultInfo{Name: fleetgen.User}),
	}
	queries := []string{
		"", "kind:Pod", "kind:pod", "kind:Pod,Secret", "kind:Pod namespace:payments status!=Running", "nginx", "nginx web", "label:team=team-07",
		"label:team=team-0*", "name:nginx-*", "restarts>10", "created:year", "kind!=Pod", "cluster:cluster-002 kind:Deployment",
		"cluster:nowhere", "missing:x", "missing!=x", "kind:'Po''d'",
	}
	for _, name := range slices.Sorted(maps.Keys(scopes)) {
		for _, text := range queries {
			q, err := query.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprintf("%s/%s", name, text), func(t *testing.T) { sameAnswers(t, public, own, scopes[name], q) })
		}
	}
}

func clusterStates(t *testing.T, engine search.Engine) []search.ClusterState {
	t.Helper()
	states, err := engine.Clusters(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return states
}

func sameAnswers(t *testing.T, a, b search.Engine, scope visibility.Scope, q query.Query) {
	t.Helper()
	ignored := cmpopts.IgnoreFields(search.Item{}, "Version", "Object")
	compare := func(what string, ask func(search.Engine) (any, error)) {
		t.Helper()
		x, err := ask(a)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		y, err := ask(b)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if difference := gocmp.Diff(y, x, ignored, cmpopts.EquateEmpty()); difference != "" {
			t.Errorf("%s (-own +public):\n%s", what, difference)
		}
	}
	compare("ordered items", func(e search.Engine) (any, error) {
		var items []search.Item
		request := &search.Request{
			Query: q, Now: fleetgen.Epoch, Items: true, Limit: 100,
			OrderBy: []search.Order{{Property: "restarts", Descending: true}, {Property: "name"}},
		}
		for range 3 {
			result, err := e.Search(within(t), scope, request)
			if err != nil {
				return nil, err
			}
			items = append(items, result.Items...)
			if request.Continue = result.Continue; request.Continue == "" {
				break
			}
		}
		return items, nil
	})
	compare("all items", func(e search.Engine) (any, error) { return uids(t, e, scope, q), nil })
	compare("related", func(e search.Engine) (any, error) {
		q := query.Query{Keywords: q.Keywords, Filters: append(slices.Clone(q.Filters), equals("namespace", "payments").Filters...)}
		result, err := e.Search(within(t), scope, &search.Request{Query: q, Now: fleetgen.Epoch, Related: true, RelatedItems: true, RelatedLimit: 5, RelatedDepth: 2})
		if err != nil {
			return nil, err
		}
		return result.Related, nil
	})
	for _, property := range []string{"kind", "label", "restarts", "name", "cluster", "created"} {
		compare("values of "+property, func(e search.Engine) (any, error) {
			return e.Complete(within(t), scope, &search.CompletionRequest{Property: property, Query: q, Now: fleetgen.Epoch, Limit: 50})
		})
	}
	compare("schema", func(e search.Engine) (any, error) { return e.Schema(within(t), scope, &q, fleetgen.Epoch) })
}

func TestPublicDatabaseIsReadOnly(t *testing.T) {
	dsn := postgrestest.Start(t)
	fillPublic(t, dsn, fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 100}, 0), fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 100}, 1))
	engine := openPublic(t, dsn)
	if _, err := engine.Apply(within(t), &search.Report{Cluster: "c"}); !errors.Is(err, search.ErrReadOnly) {
		t.Errorf("apply: %v", err)
	}
	if err := engine.RemoveCluster(within(t), "c"); !errors.Is(err, search.ErrReadOnly) {
		t.Errorf("remove: %v", err)
	}
	states, err := engine.Clusters(within(t))
	if err != nil || len(states) != 2 || states[0].Name != "cluster-001" || states[0].Hub || !states[1].Hub || states[1].Resources == 0 {
		t.Errorf("clusters: %+v, %v", states, err)
	}
	classes, number, err := engine.HubClasses(within(t))
	if err != nil || len(classes) == 0 || number == 0 || !classes[0].Hub {
		t.Errorf("classes of the hub: %v, %d, %v", classes, number, err)
	}
	version, err := engine.Version(within(t))
	if err != nil || version == 0 {
		t.Errorf("version: %d, %v", version, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if changes, upTo, err := engine.Changes(ctx, version, 10); err != nil || len(changes) != 0 || upTo != version {
		t.Errorf("changes: %v up to %d, %v", changes, upTo, err)
	}
	item, err := engine.Get(within(t), visibilitytest.Everything(), "cluster-001/nothing")
	if err != nil || item != nil {
		t.Errorf("get: %v, %v", item, err)
	}
}

func TestPublicTablesMustExist(t *testing.T) {
	engine, err := postgres.OpenPublic(within(t), postgres.Options{DSN: postgrestest.Start(t)})
	if err == nil {
		_ = engine.Close()
		t.Fatal("a database without the tables opens")
	}
}
