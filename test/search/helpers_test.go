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
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// searchRole lets its holder search, and viewRole view a cluster.
	searchRole = "open-cluster-management:search:use"
	viewRole   = "open-cluster-management:search:view-cluster"
)

// reporter is a cluster whose reports a test makes.
type reporter struct {
	name string
	// agent is the cluster's agent on the hub.
	agent *caller
}

// reporter joins a cluster of the test's own, which reports what the test says.
func (f *fleet) reporter(t *testing.T) *reporter {
	t.Helper()
	return f.reporterFor(t, f.SilentCluster(t))
}

// reporterFor reports for a cluster that has joined.
func (f *fleet) reporterFor(t *testing.T, name string) *reporter {
	t.Helper()
	r := &reporter{name: name, agent: newCaller(t, f.Hub, localhub.AgentUser(name), localhub.AgentGroup(name))}
	r.agent.AwaitAllowed(t, name, rbacv1.PolicyRule{
		APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"inventories/sync"}, Verbs: []string{"create"},
	})
	// The server hears of the ManagedCluster by a watch.
	framework.Eventually(t, "the server knows "+name, func(ctx context.Context) error {
		_, err := r.sync(ctx, inventory.Sync{})
		return err
	})
	return r
}

// hubReporter reports for the hub itself. Tests share it, so that what they report must be in
// namespaces, or have names, of their own; it is forgotten at the end of the test.
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

// syncPath is where a cluster reports.
func syncPath(cluster string) string {
	return "/apis/search.open-cluster-management.io/v1alpha1/namespaces/" + cluster + "/inventories/" + cluster + "/sync"
}

// sync sends changes.
func (r *reporter) sync(ctx context.Context, changes inventory.Sync) (*inventory.Response, error) {
	return postReport(ctx, r.agent.OCM, syncPath(r.name), false, changes)
}

// changes sends changes, which must be taken, all of them.
func (r *reporter) changes(t *testing.T, changes inventory.Sync) *inventory.Response {
	t.Helper()
	return r.taken(t, false, changes)
}

// has sends a report of all that there is.
func (r *reporter) has(t *testing.T, resources []inventory.Resource, edges ...inventory.Edge) *inventory.Response {
	t.Helper()
	return r.taken(t, true, inventory.Sync{AddResources: resources, AddEdges: edges})
}

func (r *reporter) taken(t *testing.T, full bool, report inventory.Sync) *inventory.Response {
	t.Helper()
	var response *inventory.Response
	// One report of a cluster is taken at a time; those of the hub come from several tests.
	framework.Eventually(t, "the report of "+r.name+" is taken", func(ctx context.Context) error {
		var err error
		response, err = postReport(ctx, r.agent.OCM, syncPath(r.name), full, report)
		return err
	})
	for _, refused := range [][]inventory.SyncError{response.AddErrors, response.UpdateErrors, response.DeleteErrors, response.AddEdgeErrors, response.DeleteEdgeErrors} {
		if len(refused) > 0 {
			t.Fatalf("the report of %s is not taken whole: %+v", r.name, refused)
		}
	}
	return response
}

// forgets removes what was reported when the test ends.
func (r *reporter) forgets(t *testing.T, resources []inventory.Resource) {
	t.Helper()
	t.Cleanup(func() {
		var gone []inventory.Deleted
		for _, resource := range resources {
			gone = append(gone, inventory.Deleted{UID: resource.UID})
		}
		err := framework.Poll(context.WithoutCancel(t.Context()), func(ctx context.Context) error {
			_, err := r.sync(ctx, inventory.Sync{DeleteResources: gone})
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// postReport sends a report as a collector does.
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
	// The server's own Status, which Raw does not return.
	if err := result.Error(); err != nil {
		return nil, err
	}
	content, err := result.Raw()
	if err != nil {
		return nil, err
	}
	response := &inventory.Response{}
	if err := json.Unmarshal(content, response); err != nil {
		return nil, fmt.Errorf("the answer %q: %w", content, err)
	}
	return response, nil
}

// plurals are the plural names and API groups of the kinds that tests report.
var plurals = map[string][2]string{
	"Pod": {"pods", ""}, "ConfigMap": {"configmaps", ""}, "Secret": {"secrets", ""}, "Node": {"nodes", ""}, "Namespace": {"namespaces", ""},
	"Deployment": {"deployments", "apps"}, "ReplicaSet": {"replicasets", "apps"}, "Widget": {"widgets", "example.com"},
}

// with are further properties of a resource.
type with map[string]any

// resource is what a cluster reports of an object. Its UID there is its kind, namespace and name.
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
			panic(err) // a test's own literal
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

// edge relates two resources of a report.
func edge(from, to inventory.Resource, relation string) inventory.Edge {
	return inventory.Edge{SourceUID: from.UID, DestUID: to.UID, SourceKind: from.Kind, DestKind: to.Kind, EdgeType: relation}
}

// searcher is somebody who may search and, so far, finds nothing.
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

// views lets the caller view a managed cluster, and returns what takes that away again.
func (c *caller) views(t *testing.T, cluster string) func() {
	t.Helper()
	return c.Bind(t, cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
}

// bindEverywhere binds a ClusterRole on the whole hub until the end of the test, or
// until what it returns is called.
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

// onShared runs a test, beside others, on the fleet of all, which has the embedded engine. A
// test that it runs is in testsOfEngines, too, unless it needs an agent or kubectl.
func onShared(t *testing.T, test func(*testing.T, *fleet)) {
	t.Helper()
	t.Parallel()
	test(t, shared(t))
}

// search asks one question.
func search(ctx context.Context, client versioned.Interface, request searchv1alpha1.SearchRequest) (*searchv1alpha1.SearchStatus, error) {
	found, err := client.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{
		Spec: searchv1alpha1.SearchSpec{SearchRequest: request},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &found.Status, nil
}

// textQuery is a search by its text, for all items.
func textQuery(text string) searchv1alpha1.SearchRequest {
	return searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: text}, Limit: ptr.To[int32](-1)}
}

func searched(t *testing.T, client versioned.Interface, text string) *searchv1alpha1.SearchStatus {
	t.Helper()
	return framework.Must(search(t.Context(), client, textQuery(text)))(t)
}

// uids are the UIDs of items within their clusters, in order.
func uids(items []searchv1alpha1.SearchItem) []string {
	out := []string{}
	for _, item := range items {
		_, uid, _ := strings.Cut(item.UID, "/")
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// finds waits until a search finds exactly these, and as many.
func finds(t *testing.T, client versioned.Interface, text string, want ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%q finds %v", text, want), func(ctx context.Context) error {
		result, err := search(ctx, client, textQuery(text))
		if err != nil {
			return err
		}
		return same(result, want)
	})
}

// same tells whether a search has found exactly these, and as many.
func same(result *searchv1alpha1.SearchStatus, want []string) error {
	want = append([]string{}, want...)
	slices.Sort(want)
	if got := uids(result.Items); !slices.Equal(got, want) || int(result.Count) != len(want) {
		return fmt.Errorf("it finds %v, and counts %d", got, result.Count)
	}
	return nil
}

// answersAre asks all that can be asked about the resources with a label, and tells by what
// the answers differ from these: kinds by the UID within the cluster.
func answersAre(ctx context.Context, client versioned.Interface, key, value string, want map[string]string) error {
	terms := searchv1alpha1.SearchTerms{Query: fmt.Sprintf("label:%s=%s", key, value)}
	items, err := search(ctx, client, textQuery(terms.Query))
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(want))
	if err := same(items, names); err != nil {
		return fmt.Errorf("the search for %v: %w", want, err)
	}
	count, err := search(ctx, client, searchv1alpha1.SearchRequest{SearchTerms: terms, Output: searchv1alpha1.OutputCount})
	if err != nil {
		return err
	}
	if int(count.Count) != len(want) {
		return fmt.Errorf("%d are counted, not %d", count.Count, len(want))
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
		got[value.Value] = int64(value.Count)
	}
	if !maps.Equal(got, kinds) {
		return fmt.Errorf("kinds are completed as %v, not %v", got, kinds)
	}
	schema, err := client.SearchV1alpha1().SearchSchemas().Create(ctx, &searchv1alpha1.SearchSchema{Spec: terms}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if (len(schema.Status.Properties) > 0) != (len(want) > 0) {
		return fmt.Errorf("%d are found, and the schema has %v", len(want), schema.Status.Properties)
	}
	objects, err := client.SearchV1alpha1().FleetResources(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: key + "=" + value})
	if err != nil {
		return err
	}
	if got := objectNames(objects.Items); !slices.Equal(got, names) {
		return fmt.Errorf("the objects are %v, not %v", got, names)
	}
	return nil
}

// isRefused checks that an answer has a code, and returns its Status.
func isRefused(t *testing.T, err error, code int32) *metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		t.Fatalf("got %v, not %d (%s)", err, code, http.StatusText(int(code)))
	}
	out := status.Status()
	return &out
}

// impersonating is an administrator's client that acts as somebody else.
func (f *fleet) impersonating(t *testing.T, user rest.ImpersonationConfig) *versioned.Clientset {
	t.Helper()
	config := f.Hub.AdminConfig()
	config.Impersonate = user
	return framework.OCMClient(t, config, nil)
}
