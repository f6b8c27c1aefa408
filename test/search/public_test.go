package search

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres/postgrestest"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publicTables are what the public indexer makes.
const publicTables = `
CREATE SCHEMA search;
CREATE TABLE search.resources (uid TEXT PRIMARY KEY, cluster TEXT, data JSONB);
CREATE TABLE search.edges (sourceid TEXT, sourcekind TEXT, destid TEXT, destkind TEXT, edgetype TEXT, cluster TEXT, PRIMARY KEY (sourceid, destid, edgetype));
CREATE INDEX data_kind_idx ON search.resources USING GIN ((data->'kind'));
CREATE INDEX data_namespace_idx ON search.resources USING GIN ((data->'namespace'));
CREATE INDEX data_name_idx ON search.resources USING GIN ((data->'name'));`

// publicDatabase is a database as the public indexer fills it.
type publicDatabase struct{ connection *pgx.Conn }

func newPublicDatabase(t *testing.T, url string) *publicDatabase {
	t.Helper()
	d := &publicDatabase{connection: framework.Must(pgx.Connect(t.Context(), url))(t)}
	t.Cleanup(func() {
		if err := d.connection.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	framework.Must(d.connection.Exec(t.Context(), publicTables))(t)
	return d
}

// has stores what a cluster has.
func (d *publicDatabase) has(t *testing.T, cluster string, resources []inventory.Resource, edges []inventory.Edge) {
	t.Helper()
	batch := &pgx.Batch{}
	for _, resource := range resources {
		properties := maps.Clone(resource.Properties)
		if cluster == localhub.HubClusterName {
			properties["_hubClusterResource"] = json.RawMessage(`"true"`)
		}
		batch.Queue("INSERT INTO search.resources VALUES ($1, $2, $3)", resource.UID, cluster, string(framework.Must(json.Marshal(properties))(t)))
	}
	for _, edge := range edges {
		batch.Queue("INSERT INTO search.edges VALUES ($1, $2, $3, $4, $5, $6)", edge.SourceUID, edge.SourceKind, edge.DestUID, edge.DestKind, edge.EdgeType, cluster)
	}
	if err := d.connection.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
}

// readsPublicDatabase has another server read what the public indexer has written.
func (s *searchServer) readsPublicDatabase(t *testing.T) {
	url := postgrestest.Start(t)
	database := newPublicDatabase(t, url)
	elsewhere, hub := &reporter{name: "elsewhere"}, &reporter{name: localhub.HubClusterName}
	for _, cluster := range []*reporter{s.reporter, elsewhere} {
		resources, edges := cluster.shop()
		database.has(t, cluster.name, resources, edges)
	}
	var own []inventory.Resource
	for _, namespace := range []string{"seen", "unseen"} {
		s.makeNamespace(t, namespace)
		for _, kind := range []string{"Pod", "ConfigMap", "Secret"} {
			own = append(own, hub.resource(kind, namespace, "one", nil), hub.resource(kind, namespace, "two", nil))
		}
	}
	database.has(t, hub.name, own, nil)

	server := s.another(t, "public", "--search-engine=public-postgres", "--search-postgres-url-file="+fileOf(t, "database-url", url))
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	to := func(name string, groups ...string) *versioned.Clientset {
		config, err := server.UserConfig(name, groups...)
		return framework.OCMClient(t, config, err)
	}
	viewer, lister, nothing := s.searcher(t, framework.Unique("viewer")), s.searcher(t, framework.Unique("lister")), s.searcher(t, framework.Unique("nothing"))
	viewer.views(t, framework.Cluster1)
	lister.May(t, "seen", listing("", []string{"pods", "secrets"}))
	lister.May(t, "unseen", listing("", []string{"configmaps"}, "two"))
	pods := []string{"pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"}
	admin, asViewer, asLister := to("admin", "system:masters"), to(viewer.Name), to(lister.Name)

	t.Run("searches", func(t *testing.T) {
		finds(t, asViewer, "kind:Pod", pods...)
		finds(t, asLister, "", "pod.seen.one", "pod.seen.two", "secret.seen.one", "secret.seen.two", "configmap.unseen.two")
		finds(t, to(nothing.Name), "")
		finds(t, admin, "kind:Pod cluster:elsewhere", pods...)
		finds(t, admin, "kind:Pod cluster:"+hub.name, "pod.seen.one", "pod.seen.two", "pod.unseen.one", "pod.unseen.two")
		finds(t, admin, "kind:Secret cluster:elsewhere,"+framework.Cluster1)
		finds(t, asViewer, "kind:pod status!=Running", pods[1:]...)
		finds(t, asViewer, "restarts>8", "pod.payments.web-1-b", "pod.default.job-x")
		finds(t, asViewer, "NGINX running payments", "pod.payments.web-1-a")
		finds(t, asViewer, "label:app=web kind:Pod", pods[:2]...)
		if result := searched(t, asViewer, "kind:Pod"); len(result.Warnings) > 0 {
			t.Errorf("nobody knows when the cluster has reported, but: %v", result.Warnings)
		}
	})
	t.Run("related", func(t *testing.T) {
		request := textQuery("kind:ReplicaSet")
		request.Output = searchv1alpha1.OutputRelated
		related := framework.Must(search(t.Context(), asViewer, request))(t).Related
		if len(related) != 2 || related[0].Kind != "Deployment" || related[1].Kind != "Pod" || !slices.Equal(uids(related[1].Items), pods[:2]) {
			t.Errorf("got %+v", related)
		}
	})
	t.Run("values and properties", func(t *testing.T) {
		values := framework.Must(completed(t.Context(), asViewer, searchv1alpha1.SearchCompletionSpec{Property: "kind"}))(t).Values
		if got, want := counted(values), "ConfigMap:1 Deployment:1 Node:1 Pod:4 ReplicaSet:1"; got != want {
			t.Errorf("kinds are %s, not %s", got, want)
		}
		schema := framework.Must(asViewer.SearchV1alpha1().SearchSchemas().Create(t.Context(), &searchv1alpha1.SearchSchema{}, metav1.CreateOptions{}))(t)
		var names []string
		for _, property := range schema.Status.Properties {
			names = append(names, property.Name)
		}
		if !slices.Contains(names, "restarts") || slices.Contains(names, "onlysecretshave") {
			t.Errorf("properties are %v", names)
		}
	})
	t.Run("objects", func(t *testing.T) {
		objects := asViewer.SearchV1alpha1().FleetResources(metav1.NamespaceAll)
		options := metav1.ListOptions{FieldSelector: "kind=Pod", LabelSelector: "app", Limit: 2}
		first := framework.Must(objects.List(t.Context(), options))(t)
		options.Continue = first.Continue
		second := framework.Must(objects.List(t.Context(), options))(t)
		if got := objectNames(append(first.Items, second.Items...)); len(first.Items) != 2 || !slices.Equal(got, slices.Sorted(slices.Values(pods[:3]))) {
			t.Errorf("the first chunk has %d, and all are %v", len(first.Items), got)
		}
		own := asViewer.SearchV1alpha1().FleetResources(framework.Cluster1)
		if got := framework.Must(own.Get(t.Context(), "deployment.payments.web", metav1.GetOptions{}))(t); got.Resource.APIGroup != "apps" || got.Labels["app"] != "web" {
			t.Errorf("got %+v", got)
		}
		for _, hidden := range []struct{ cluster, name string }{{framework.Cluster1, "secret.default.top"}, {elsewhere.name, "node.node-1"}, {hub.name, "pod.seen.one"}} {
			if _, err := asViewer.SearchV1alpha1().FleetResources(hidden.cluster).Get(t.Context(), hidden.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("%s of %s: %v", hidden.name, hidden.cluster, err)
			}
		}
		watching := framework.Must(own.Watch(t.Context(), metav1.ListOptions{
			FieldSelector: "kind=Pod", SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}))(t)
		defer watching.Stop()
		wantEvents(t, watching, "ADDED", pods...)
	})
	t.Run("graphql", func(t *testing.T) {
		got := framework.Must(graphqlPost(t.Context(), asViewer, consoleQuery, map[string]any{"input": []any{map[string]any{"keywords": []string{"nginx", "crash"}}}}))(t)
		if results := got.Data.Search; len(results) != 1 || results[0].Count != 1 || results[0].Items[0]["name"] != "web-1-b" {
			t.Errorf("got %+v", got)
		}
		if got := framework.Must(graphqlPost(t.Context(), asViewer, "{messages{id description}}", nil))(t); len(got.Errors) > 0 || len(got.Data.Messages) > 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("inventories", func(t *testing.T) {
		got := framework.Must(asViewer.SearchV1alpha1().Inventories(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}))(t).Items
		if len(got) != 1 || got[0].Name != framework.Cluster1 || got[0].Status.State != searchv1alpha1.InventoryReporting || got[0].Status.Resources != 8 || got[0].Status.Edges != 5 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("what the indexer writes is found", func(t *testing.T) {
		database.has(t, framework.Cluster1, []inventory.Resource{s.reporter.resource("Widget", "shop", "late", nil)}, nil)
		if err := same(searched(t, asViewer, "kind:Widget"), []string{"widget.shop.late"}); err != nil {
			t.Error(err)
		}
	})
	t.Run("reports are refused", func(t *testing.T) {
		agent := to(localhub.AgentUser(framework.Cluster1), localhub.AgentGroup(framework.Cluster1))
		for what, report := range map[string]inventory.Sync{"nothing": {}, "a change": {AddResources: []inventory.Resource{s.reporter.resource("Widget", "shop", "reported", nil)}}} {
			for _, full := range []bool{false, true} {
				// Agents take this for a hub that does not serve reports, and ask every few minutes.
				_, err := postReport(t.Context(), agent, syncPath(framework.Cluster1), full, report)
				status := isRefused(t, err, http.StatusMethodNotAllowed)
				for _, text := range []string{"public-postgres", "read-only"} {
					if !strings.Contains(status.Message, text) {
						t.Errorf("%s, full: %t: %q is not in: %s", what, full, text, status.Message)
					}
				}
			}
		}
		finds(t, asViewer, "kind:Widget", "widget.shop.late")
	})
	t.Run("what is revoked is found no more", func(t *testing.T) {
		c := s.searcher(t, framework.Unique("granted"))
		client := to(c.Name)
		revoke := c.views(t, framework.Cluster1)
		finds(t, client, "kind:Pod", pods...)
		revoke()
		finds(t, client, "kind:Pod")
	})
	t.Run("without the tables", func(t *testing.T) {
		empty := s.another(t, "public-empty", "--search-engine=public-postgres", "--search-postgres-url-file="+fileOf(t, "empty-database-url", postgrestest.Start(t)))
		if err := empty.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "public-postgres") || !strings.Contains(err.Error(), "is not there") {
			t.Errorf("it does not say what is missing: %v", err)
		}
	})
}
