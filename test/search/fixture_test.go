package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// searchRole is the ClusterRole that allows searches, and viewRole the one that allows viewing a cluster.
	searchRole = "open-cluster-management:search:use"
	viewRole   = "open-cluster-management:search:view-cluster"
)

// reporter is a cluster for which the test sends reports.
type reporter struct {
	name string
	// agent is the cluster's agent on the hub.
	agent *caller
}

// reporter joins a new cluster and returns its reporter.
func (f *fleet) reporter(t *testing.T) *reporter {
	t.Helper()
	return f.reporterFor(t, f.SilentCluster(t))
}

// reporterFor returns the reporter for a cluster that has joined.
func (f *fleet) reporterFor(t *testing.T, name string) *reporter {
	t.Helper()
	r := &reporter{name: name, agent: newCaller(t, f.Hub, localhub.AgentUser(name), localhub.AgentGroup(name))}
	r.agent.AwaitAllowed(t, name, rbacv1.PolicyRule{
		APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"inventories/sync"}, Verbs: []string{"create"},
	})
	// The server receives the ManagedCluster through a watch.
	framework.Eventually(t, "the server accepts reports of "+name, func(ctx context.Context) error {
		_, err := r.sync(ctx, inventory.Sync{})
		return err
	})
	return r
}

// hubReporter returns a reporter for the hub itself. Tests share the hub, so the resources need unique namespaces or
// names, and each test deletes its own (see forgets).
func (f *fleet) hubReporter(t *testing.T) *reporter {
	t.Helper()
	ctx, name := t.Context(), localhub.HubClusterName
	f.makeNamespace(t, name)
	bindings := f.HubClient.RbacV1().RoleBindings(name)
	_, err := bindings.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "inventory"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "open-cluster-management:managedcluster:inventory"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: localhub.AgentGroup(name)}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return f.reporterFor(t, name)
}

func (f *fleet) makeNamespace(t *testing.T, name string) {
	t.Helper()
	if err := framework.MakeNamespace(t.Context(), f.HubClient, name); err != nil {
		t.Fatal(err)
	}
}

// syncPath returns the path to which a cluster reports.
func syncPath(cluster string) string {
	return "/apis/search.open-cluster-management.io/v1alpha1/namespaces/" + cluster + "/inventories/" + cluster + "/sync"
}

// sync sends a delta report.
func (r *reporter) sync(ctx context.Context, changes inventory.Sync) (*inventory.Response, error) {
	return postReport(ctx, r.agent.OCM, syncPath(r.name), false, changes)
}

// changes sends a delta report, and checks that the server accepts all of it.
func (r *reporter) changes(t *testing.T, changes inventory.Sync) *inventory.Response {
	t.Helper()
	return r.taken(t, false, changes)
}

// has sends a full report, and checks that the server accepts all of it.
func (r *reporter) has(t *testing.T, resources []inventory.Resource, edges ...inventory.Edge) *inventory.Response {
	t.Helper()
	return r.taken(t, true, inventory.Sync{AddResources: resources, AddEdges: edges})
}

func (r *reporter) taken(t *testing.T, full bool, report inventory.Sync) *inventory.Response {
	t.Helper()
	var response *inventory.Response
	// The server accepts only one report of a cluster at a time, and several tests report for the hub.
	framework.Eventually(t, "the report of "+r.name+" is accepted", func(ctx context.Context) error {
		var err error
		response, err = postReport(ctx, r.agent.OCM, syncPath(r.name), full, report)
		return err
	})
	for _, refused := range [][]inventory.SyncError{response.AddErrors, response.UpdateErrors, response.DeleteErrors, response.AddEdgeErrors, response.DeleteEdgeErrors} {
		if len(refused) > 0 {
			t.Fatalf("errors of the report of %s = %+v, want none", r.name, refused)
		}
	}
	return response
}

// forgets deletes reported resources at the end of the test.
func (r *reporter) forgets(t *testing.T, resources []inventory.Resource) {
	t.Helper()
	t.Cleanup(func() {
		var gone []inventory.Deleted
		for _, resource := range resources {
			gone = append(gone, inventory.Deleted{UID: resource.UID})
		}
		err := await.Poll(context.WithoutCancel(t.Context()), func(ctx context.Context) error {
			_, err := r.sync(ctx, inventory.Sync{DeleteResources: gone})
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// postReport sends a report like a collector.
func postReport(ctx context.Context, client versioned.Interface, path string, full bool, report any) (*inventory.Response, error) {
	body, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	request := client.SearchV1alpha1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body)
	if full {
		request.SetHeader(inventory.OverwriteHeader, "true")
	}
	result := request.Do(ctx)
	// The error of Raw does not contain the Status of the server.
	if err := result.Error(); err != nil {
		return nil, err
	}
	content, err := result.Raw()
	if err != nil {
		return nil, err
	}
	response := &inventory.Response{}
	if err := json.Unmarshal(content, response); err != nil {
		return nil, fmt.Errorf("response %q: %w", content, err)
	}
	return response, nil
}

// plurals contains the plural names and API groups of reported kinds.
var plurals = map[string][2]string{
	"Pod": {"pods", ""}, "ConfigMap": {"configmaps", ""}, "Secret": {"secrets", ""}, "Node": {"nodes", ""}, "Namespace": {"namespaces", ""},
	"Deployment": {"deployments", "apps"}, "ReplicaSet": {"replicasets", "apps"}, "Widget": {"widgets", "example.com"},
}

// with contains additional properties of a resource.
type with map[string]any

// resource returns a reported resource. Its UID consists of kind, namespace and name.
func (r *reporter) resource(kind, namespace, name string, more with) inventory.Resource {
	properties := with{"kind": kind, "kind_plural": plurals[kind][0], "apiversion": "v1", "name": name, "created": "2020-02-02T02:02:02Z"}
	if group := plurals[kind][1]; group != "" {
		properties["apigroup"] = group
	}
	if namespace != "" {
		properties["namespace"] = namespace
	}
	for key, value := range more {
		properties[key] = value
	}
	encoded := make(map[string]json.RawMessage, len(properties))
	for key, value := range properties {
		content, err := json.Marshal(value)
		if err != nil {
			panic(err) // the values are literals in tests
		}
		encoded[key] = content
	}
	return inventory.Resource{Kind: kind, ResourceString: plurals[kind][0], UID: r.name + "/" + uidOf(kind, namespace, name), Properties: encoded}
}

func uidOf(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "." + name
	}
	return strings.ToLower(kind) + "." + name
}

// edge returns an edge between two resources.
func edge(from, to inventory.Resource, relation string) inventory.Edge {
	return inventory.Edge{SourceUID: from.UID, DestUID: to.UID, SourceKind: from.Kind, DestKind: to.Kind, EdgeType: relation}
}

// searcher returns a caller with permission to search, but without permission to view any resources.
func (f *fleet) searcher(t *testing.T, name string, groups ...string) *caller {
	t.Helper()
	c := newCaller(t, f.Hub, name, groups...)
	c.maySearch(t)
	return c
}

func (c *caller) maySearch(t *testing.T) func() {
	t.Helper()
	revoke := c.bindEverywhere(t, searchRole)
	for _, rule := range []rbacv1.PolicyRule{
		{APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"searches"}, Verbs: []string{"create"}},
		{APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"fleetresources"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"graphql"}, Verbs: []string{"create", "list"}},
	} {
		c.AwaitAllowed(t, "", rule)
	}
	return revoke
}

// views allows the caller to view a managed cluster, and returns a function that revokes the permission.
func (c *caller) views(t *testing.T, cluster string) func() {
	t.Helper()
	return c.Bind(t, cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
}

// bindEverywhere creates a ClusterRoleBinding for the caller. It is deleted at the end of the test, or by the returned
// function.
func (c *caller) bindEverywhere(t *testing.T, clusterRole string) func() {
	t.Helper()
	bindings := c.HubClient.RbacV1().ClusterRoleBindings()
	binding := framework.Must(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Subjects: []rbacv1.Subject{c.Subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
	}, metav1.CreateOptions{}))(t)
	unbind := func() {
		err := bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	t.Cleanup(unbind)
	return unbind
}

// onShared runs a test in parallel on the shared fleet, which has the embedded engine. The test can also be in
// smokeTests.
func onShared(t *testing.T, test func(*testing.T, *fleet)) {
	t.Helper()
	t.Parallel()
	test(t, shared(t))
}

// search creates a Search with one request.
func search(ctx context.Context, client versioned.Interface, request searchv1alpha1.SearchRequest) (*searchv1alpha1.SearchStatus, error) {
	found, err := client.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{
		Spec: searchv1alpha1.SearchSpec{SearchRequest: request},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &found.Status, nil
}

// textQuery returns a search for all items that match a text.
func textQuery(text string) searchv1alpha1.SearchRequest {
	return searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: text}, Limit: ptr.To[int32](-1)}
}

func searched(t *testing.T, client versioned.Interface, text string) *searchv1alpha1.SearchStatus {
	t.Helper()
	return framework.Must(search(t.Context(), client, textQuery(text)))(t)
}

// clusterItself is the UID, within the cluster, that uids returns for the resource of kind Cluster.
const clusterItself = "cluster"

// uids returns the UIDs of items within their clusters, in order.
func uids(items []searchv1alpha1.SearchItem) []string {
	out := []string{}
	for _, item := range items {
		_, uid, found := strings.Cut(item.UID, "/")
		if !found && item.UID == "cluster__"+item.Cluster {
			uid = clusterItself
		}
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// finds waits until a search returns exactly these items and their count.
func finds(t *testing.T, client versioned.Interface, text string, want ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("search for %q returns %v", text, want), func(ctx context.Context) error {
		result, err := search(ctx, client, textQuery(text))
		if err != nil {
			return err
		}
		return same(result, want)
	})
}

// same returns an error unless a search returned exactly these items and their count.
func same(result *searchv1alpha1.SearchStatus, want []string) error {
	want = append([]string{}, want...)
	slices.Sort(want)
	if got := uids(result.Items); !slices.Equal(got, want) || int(result.Count) != len(want) {
		return fmt.Errorf("items = %v, count = %d, want %v", got, result.Count, want)
	}
	return nil
}

// answersAre returns an error unless every endpoint returns exactly the wanted resources with a label. want contains
// the kind of each resource by its UID within the cluster.
func answersAre(ctx context.Context, client versioned.Interface, key, value string, want map[string]string) error {
	terms := searchv1alpha1.SearchTerms{Query: fmt.Sprintf("label:%s=%s", key, value)}
	items, err := search(ctx, client, textQuery(terms.Query))
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(want))
	if err := same(items, names); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	count, err := search(ctx, client, searchv1alpha1.SearchRequest{SearchTerms: terms, Output: searchv1alpha1.OutputCount})
	if err != nil {
		return err
	}
	if int(count.Count) != len(want) {
		return fmt.Errorf("count = %d, want %d", count.Count, len(want))
	}
	kinds, got := map[string]int64{}, map[string]int64{}
	for _, kind := range want {
		kinds[kind]++
	}
	values, err := completed(ctx, client, searchv1alpha1.SearchCompletionSpec{Property: "kind", SearchTerms: terms})
	if err != nil {
		return err
	}
	for _, value := range values.Values {
		got[value.Value] = value.Count
	}
	if !maps.Equal(got, kinds) {
		return fmt.Errorf("completed kinds = %v, want %v", got, kinds)
	}
	schema, err := client.SearchV1alpha1().SearchSchemas().Create(ctx, &searchv1alpha1.SearchSchema{Spec: terms}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if (len(schema.Status.Properties) > 0) != (len(want) > 0) {
		return fmt.Errorf("schema of %d matches = %v, want properties only if there are matches", len(want), schema.Status.Properties)
	}
	objects, err := client.SearchV1alpha1().FleetResources(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: key + "=" + value})
	if err != nil {
		return err
	}
	if got := objectNames(objects.Items); !slices.Equal(got, names) {
		return fmt.Errorf("FleetResources = %v, want %v", got, names)
	}
	return nil
}

// isRefused checks that a request failed with a status code, and returns its Status.
func isRefused(t *testing.T, err error, code int32) *metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		t.Fatalf("error = %v, want %d (%s)", err, code, http.StatusText(int(code)))
	}
	out := status.Status()
	return &out
}

// impersonating returns a client of an administrator that impersonates another user.
func (f *fleet) impersonating(t *testing.T, user rest.ImpersonationConfig) *versioned.Clientset {
	t.Helper()
	config := f.Hub.AdminConfig()
	config.Impersonate = user
	return framework.OCMClient(t, config, nil)
}
