package search

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publicSyncPath returns the path to which public collectors send reports.
func publicSyncPath(cluster string) string {
	return "/apis/proxy.open-cluster-management.io/v1beta1/namespaces/" + cluster + "/clusterstatuses/" + cluster + "/aggregator/sync"
}

// TestSearchReports sends full and delta reports and checks the totals in the responses. Collectors compare them with
// their own totals.
func TestSearchReports(t *testing.T) { onShared(t, searchReports) }

func searchReports(t *testing.T, f *fleet) {
	r := f.reporter(t)
	one, two, three, four := r.resource("ConfigMap", "default", "one", nil), r.resource("ConfigMap", "default", "two", nil), r.resource("Pod", "default", "three", with{"restarts": 1}), r.resource("Node", "", "four", nil)
	totals := func(what string, got *inventory.Response, want inventory.Response) {
		t.Helper()
		for name, pair := range map[string][2]int{
			"added": {got.TotalAdded, want.TotalAdded}, "updated": {got.TotalUpdated, want.TotalUpdated}, "deleted": {got.TotalDeleted, want.TotalDeleted},
			"resources": {got.TotalResources, want.TotalResources}, "edges added": {got.TotalEdgesAdded, want.TotalEdgesAdded},
			"edges deleted": {got.TotalEdgesDeleted, want.TotalEdgesDeleted}, "edges": {got.TotalEdges, want.TotalEdges},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s = %d, want %d", what, name, pair[0], pair[1])
			}
		}
		if got.Version == "" {
			t.Errorf("%s: Version is empty", what)
		}
	}
	query := "kind!=Cluster cluster:" + r.name
	totals("full report", r.has(t, []inventory.Resource{one, two, three}, edge(three, one, "attachedTo")), inventory.Response{TotalAdded: 3, TotalResources: 3, TotalEdgesAdded: 1, TotalEdges: 1})
	// Acknowledged resources must be found immediately.
	if err := same(searched(t, f.OCM, query), []string{"configmap.default.one", "configmap.default.two", "pod.default.three"}); err != nil {
		t.Error(err)
	}
	totals("the same report again", r.has(t, []inventory.Resource{one, two, three}, edge(three, one, "attachedTo")), inventory.Response{TotalResources: 3, TotalEdges: 1})
	three.Properties["restarts"] = json.RawMessage("2")
	totals("delta report", r.changes(t, inventory.Sync{
		AddResources: []inventory.Resource{four}, UpdateResources: []inventory.Resource{three}, DeleteResources: []inventory.Deleted{{UID: two.UID}},
		AddEdges: []inventory.Edge{edge(three, four, "runsOn")}, DeleteEdges: []inventory.Edge{edge(three, one, "attachedTo")},
	}), inventory.Response{TotalAdded: 1, TotalUpdated: 1, TotalDeleted: 1, TotalResources: 3, TotalEdgesAdded: 1, TotalEdgesDeleted: 1, TotalEdges: 1})
	if err := same(searched(t, f.OCM, query+" restarts>1"), []string{"pod.default.three"}); err != nil {
		t.Error(err)
	}
	totals("full report with clearAll", r.changes(t, inventory.Sync{ClearAll: true, AddResources: []inventory.Resource{four}}),
		inventory.Response{TotalDeleted: 2, TotalResources: 1, TotalEdgesDeleted: 1})
	if err := same(searched(t, f.OCM, query), []string{"node.four"}); err != nil {
		t.Error(err)
	}
	state := framework.Must(f.OCM.SearchV1alpha1().Inventories(r.name).Get(t.Context(), r.name, metav1.GetOptions{}))(t).Status
	if state.State != searchv1alpha1.InventoryReporting || state.LastReportTime == nil {
		t.Errorf("status of the Inventory = %+v, want state %s and a LastReportTime", state, searchv1alpha1.InventoryReporting)
	}
	framework.Eventually(t, "the Inventory of "+r.name+" counts one resource and no edges", func(ctx context.Context) error {
		found, err := f.OCM.SearchV1alpha1().Inventories(r.name).Get(ctx, r.name, metav1.GetOptions{})
		if err == nil && (found.Status.Resources != 1 || found.Status.Edges != 0) {
			err = fmt.Errorf("status = %+v", found.Status)
		}
		return err
	})

	t.Run("compressed", func(t *testing.T) {
		var body bytes.Buffer
		writer := gzip.NewWriter(&body)
		if err := errors.Join(json.NewEncoder(writer).Encode(inventory.Sync{AddResources: []inventory.Resource{one}}), writer.Close()); err != nil {
			t.Fatal(err)
		}
		content, err := r.agent.OCM.SearchV1alpha1().RESTClient().Post().AbsPath(syncPath(r.name)).
			SetHeader("Content-Type", "application/json").SetHeader("Content-Encoding", "gzip").Body(body.Bytes()).Do(t.Context()).Raw()
		if err != nil || !strings.Contains(string(content), `"TotalAdded":1`) {
			t.Errorf("response to a compressed report = %s, %v, want TotalAdded 1", content, err)
		}
	})
	t.Run("invalid reports", func(t *testing.T) {
		for _, body := range []string{"", "[]", "{", `{"addResources": 5}`, `{"addResources":[{"uid":7}]}`} {
			_, err := r.agent.OCM.SearchV1alpha1().RESTClient().Post().AbsPath(syncPath(r.name)).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Raw()
			isRefused(t, err, http.StatusBadRequest)
		}
		if err := same(searched(t, f.OCM, query), []string{"node.four", "configmap.default.one"}); err != nil {
			t.Errorf("search after invalid reports: %v", err)
		}
	})
}

// TestSearchReportsOfPublicCollectors checks that the path of public collectors accepts the same reports.
func TestSearchReportsOfPublicCollectors(t *testing.T) {
	t.Parallel()
	f := shared(t)
	r := f.reporter(t)
	_, err := postReport(t.Context(), r.agent.OCM, publicSyncPath(r.name), true, inventory.Sync{})
	isRefused(t, err, http.StatusForbidden)
	collector := newCaller(t, f.Hub, framework.Unique("collector"))
	collector.May(t, r.name, rbacv1.PolicyRule{APIGroups: []string{"proxy.open-cluster-management.io"}, Resources: []string{"clusterstatuses/aggregator"}, Verbs: []string{"create"}})
	resources, edges := r.shop()
	got := framework.Must(postReport(t.Context(), collector.OCM, publicSyncPath(r.name), true, inventory.Sync{AddResources: resources, AddEdges: edges}))(t)
	if got.TotalResources != len(resources) || got.TotalEdges != len(edges) {
		t.Errorf("response to the full report = %+v, want %d resources and %d edges", got, len(resources), len(edges))
	}
	got = framework.Must(postReport(t.Context(), collector.OCM, publicSyncPath(r.name), false, inventory.Sync{DeleteResources: []inventory.Deleted{{UID: r.name + "/node.node-1"}}}))(t)
	if got.TotalDeleted != 1 || got.TotalResources != len(resources)-1 {
		t.Errorf("response to the deletion of a resource = %+v, want 1 deleted and %d resources", got, len(resources)-1)
	}
	finds(t, f.OCM, "kind:Deployment cluster:"+r.name, "deployment.payments.web")
	// Only sync is served below aggregator.
	_, err = postReport(t.Context(), collector.OCM, strings.TrimSuffix(publicSyncPath(r.name), "/sync")+"/status", true, inventory.Sync{})
	isRefused(t, err, http.StatusBadRequest)
}

// TestSearchClusters checks that the ManagedClusters are resources of kind Cluster for those who may view them, whether
// or not the clusters report.
func TestSearchClusters(t *testing.T) { onShared(t, searchClusters) }

func searchClusters(t *testing.T, f *fleet) {
	silent, other := f.SilentCluster(t), f.SilentCluster(t)
	viewer := f.searcher(t, framework.Unique("clusters"))
	viewer.views(t, silent)
	finds(t, viewer.OCM, "kind:Cluster", clusterItself)
	finds(t, f.OCM, "kind:Cluster cluster:"+other, clusterItself)
	mark := framework.Unique("mark")
	patch := fmt.Sprintf(`{"metadata":{"labels":{"mark":%q}}}`, mark)
	framework.Must(f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), silent, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	finds(t, viewer.OCM, "kind:Cluster label:mark="+mark, clusterItself)
	state := framework.Must(f.OCM.SearchV1alpha1().Inventories(silent).Get(t.Context(), silent, metav1.GetOptions{}))(t).Status
	if state.State != searchv1alpha1.InventoryAbsent || state.Resources != 0 {
		t.Errorf("status of the Inventory of a cluster that has not reported = %+v, want state %s and no resources", state, searchv1alpha1.InventoryAbsent)
	}
	if err := f.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), other, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	finds(t, f.OCM, "kind:Cluster cluster:"+other)
}

// TestSearchReportsOfOtherClusters checks that a cluster can report neither for another cluster nor for the hub.
func TestSearchReportsOfOtherClusters(t *testing.T) { onShared(t, searchReportsOfOtherClusters) }

func searchReportsOfOtherClusters(t *testing.T, f *fleet) {
	victim, attacker := f.reporter(t), f.reporter(t)
	theirs := victim.resource("ConfigMap", "default", "theirs", with{"mark": "genuine"})
	victim.has(t, []inventory.Resource{theirs})
	for what, path := range map[string]string{
		"for another cluster": syncPath(victim.name), "for the hub": syncPath(localhub.HubClusterName), "for another cluster, with the public path": publicSyncPath(victim.name),
		"for another cluster, in the own namespace": strings.Replace(syncPath(victim.name), "namespaces/"+victim.name, "namespaces/"+attacker.name, 1),
	} {
		t.Run(what, func(t *testing.T) {
			_, err := postReport(t.Context(), attacker.agent.OCM, path, true, inventory.Sync{})
			code := int32(http.StatusForbidden)
			if strings.Contains(path, "namespaces/"+attacker.name) {
				code = http.StatusBadRequest
			}
			isRefused(t, err, code)
		})
	}

	forged := victim.resource("ConfigMap", "default", "theirs", with{"mark": "forged"})
	own := attacker.resource("ConfigMap", "default", "own", with{"cluster": victim.name, "_hubClusterResource": "true", "_uid": theirs.UID})
	got := framework.Must(attacker.sync(t.Context(), inventory.Sync{
		AddResources: []inventory.Resource{forged, own}, UpdateResources: []inventory.Resource{forged},
		DeleteResources: []inventory.Deleted{{UID: theirs.UID}}, AddEdges: []inventory.Edge{edge(own, theirs, "ownedBy")},
	}))(t)
	if len(got.AddErrors) != 1 || got.AddErrors[0].ResourceUID != theirs.UID || len(got.UpdateErrors) != 1 || len(got.DeleteErrors) != 1 || len(got.AddEdgeErrors) != 1 || got.TotalResources != 1 || got.TotalEdges != 0 {
		t.Errorf("response to forged resources = %+v, want one error of each kind, 1 resource and no edges", got)
	}
	_, err := postReport(t.Context(), attacker.agent.OCM, syncPath(attacker.name), true, inventory.Sync{AddResources: []inventory.Resource{forged}})
	isRefused(t, err, http.StatusUnprocessableEntity)
	finds(t, f.OCM, "cluster:"+victim.name+" mark:genuine", "configmap.default.theirs")
	finds(t, f.OCM, "cluster:"+victim.name, "configmap.default.theirs", clusterItself)
	finds(t, f.OCM, "cluster:"+attacker.name, "configmap.default.own", clusterItself)

	// A user with permission to list all resources of the hub, but not to view clusters, finds no resource of a cluster.
	hubOnly := f.searcher(t, framework.Unique("hub-only"))
	hubOnly.mayEverywhere(t, listing("*", []string{"*"}))
	one, _, _ := f.hubResources(t)
	finds(t, hubOnly.OCM, "kind:Pod name:p1 namespace:"+one, uidOf("Pod", one, "p1"))
	for _, query := range []string{"cluster:" + attacker.name, "name:own _hubClusterResource:true", "cluster:" + victim.name} {
		if result := searched(t, hubOnly.OCM, query); result.Count != 0 {
			t.Errorf("search for %s = %+v, want nothing", query, result.Items)
		}
	}
}

// TestSearchFindsReportedObjects checks that searches find objects of a managed cluster that an agent reports, until
// they are deleted.
func TestSearchFindsReportedObjects(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, name := t.Context(), framework.Unique("reported")
	labels := map[string]string{"search-test": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}},
		}},
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"key": "value-of-" + name}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, StringData: map[string]string{"key": "value-of-" + name}}
	core := f.ManagedClient.CoreV1()
	configMap = framework.Must(core.ConfigMaps("default").Create(ctx, configMap, metav1.CreateOptions{}))(t)
	secret = framework.Must(core.Secrets("default").Create(ctx, secret, metav1.CreateOptions{}))(t)
	deployment = framework.Must(f.ManagedClient.AppsV1().Deployments("default").Create(ctx, deployment, metav1.CreateOptions{}))(t)
	remove := func() error {
		ctx := context.WithoutCancel(t.Context())
		return errors.Join(
			core.ConfigMaps("default").Delete(ctx, name, metav1.DeleteOptions{}), core.Secrets("default").Delete(ctx, name, metav1.DeleteOptions{}),
			f.ManagedClient.AppsV1().Deployments("default").Delete(ctx, name, metav1.DeleteOptions{}))
	}
	viewer := f.searcher(t, framework.Unique("agents-viewer"))
	viewer.views(t, framework.Cluster1)
	finds(t, viewer.OCM, "cluster:"+framework.Cluster1+" kind:ConfigMap,Secret,Deployment name:"+name, string(configMap.UID), string(deployment.UID))
	finds(t, viewer.OCM, "kind:Deployment desired:2 label:search-test="+name, string(deployment.UID))
	got := framework.Must(viewer.OCM.SearchV1alpha1().FleetResources(framework.Cluster1).Get(ctx, string(configMap.UID), metav1.GetOptions{}))(t)
	if got.Resource.Kind != "ConfigMap" || got.Resource.Name != name || got.Labels["search-test"] != name || !got.CreationTimestamp.Equal(&configMap.CreationTimestamp) {
		t.Errorf("FleetResource = %+v, want ConfigMap %s with its label and creation timestamp", got, name)
	}
	// Not even an administrator finds the data of a ConfigMap or a Secret.
	if result := searched(t, f.OCM, "value-of-"+name); result.Count != 0 {
		t.Errorf("search for the data of a ConfigMap and a Secret = %+v, want nothing", result.Items)
	}
	if result := searched(t, f.OCM, "cluster:"+framework.Cluster1+" kind:Secret"); result.Count != 0 {
		t.Errorf("Secrets found on %s = %d, want 0 although Secret %s exists", framework.Cluster1, result.Count, secret.Name)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	finds(t, viewer.OCM, "name:"+name)
}
