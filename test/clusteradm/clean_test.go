package clusteradm_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestCleanRemovesAHub checks that clean deletes everything that init has installed, with the namespaces, but not while
// they contain objects of others. No server runs, so the command cannot count what it stores, and needs --yes.
func TestCleanRemovesAHub(t *testing.T) {
	t.Parallel()
	hub := clusters.clusterWith(t, "cleaned", localhub.ClusterOptions{Controllers: []string{"persistentvolumeclaim-protection-controller"}})
	kube := kubeOf(t, hub)
	run(t, hub, "init", "--image=registry.example.com/hub:v1", "--storage-size=2Gi").done(t)
	run(t, hub, joinArgs("https://127.0.0.1:1", "token", base64.StdEncoding.EncodeToString(hub.AdminConfig().CAData), "local-cluster", "--dry-run")...).done(t).
		shows(t, "Warning: this cluster is a hub", "--works=false")
	if err := hub.Apply(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "of-others", "namespace": hubNamespace},
	}}); err != nil {
		t.Fatal(err)
	}
	run(t, hub, "clean", "--dry-run", "--yes").done(t).shows(t, "deployment.apps/hub-apiserver in "+hubNamespace+" would be deleted",
		"persistentvolumeclaim/hub-apiserver in "+hubNamespace+" would be deleted", "namespace/"+hubNamespace+" would be deleted")
	if _, err := kube.AppsV1().Deployments(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{}); err != nil {
		t.Fatalf("Get(Deployment of the server) after a dry run = %v, want no error", err)
	}

	got := run(t, hub, "clean", "--yes").done(t)
	got.shows(t, "namespace/"+hubNamespace+" stays: it contains configmap/of-others in "+hubNamespace)
	if services, deployment := strings.Index(got.out, "apiservice.apiregistration.k8s.io/"), strings.Index(got.out, "deployment.apps/"); services < 0 || deployment < services {
		t.Errorf("clean printed\n%s\nwant the APIServices first", got.out)
	}
	if err := kube.CoreV1().ConfigMaps(hubNamespace).Delete(t.Context(), "of-others", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, hub, "clean", "--yes").done(t).shows(t, "namespace/"+hubNamespace+" deleted")
	await.Eventually(t, "the namespaces are gone", func(ctx context.Context) error {
		for _, name := range []string{hubNamespace, "open-cluster-management"} {
			if namespace, err := kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("Get(Namespace %s) = %v, %w, want NotFound", name, namespace.Status.Conditions, err)
			}
		}
		return nil
	})
	if _, services := servedByHubAPIServer(t, hub.AdminConfig()); len(services) > 0 {
		t.Errorf("%d APIServices of servers after clean, want none", len(services))
	}
	roles, err := kube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range roles.Items {
		if strings.Contains(role.Name, "open-cluster-management") {
			t.Errorf("ClusterRole %s exists after clean, want it deleted", role.Name)
		}
	}
	run(t, hub, "init", "--image=registry.example.com/hub:v1").done(t)
}

// TestCleanOnAHubThatRunsOCM checks that clean keeps what OCM uses: its namespace, its roles and its objects.
func TestCleanOnAHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "cleaned-ocm", false)
	kube := kubeOf(t, hub)
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	const role = "open-cluster-management:managedcluster:work"
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": hubNamespace}},
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": role},
			"rules": []any{map[string]any{"apiGroups": []any{"work.open-cluster-management.io"}, "resources": []any{"manifestworks"}, "verbs": []any{"get"}}},
		},
	} {
		if err := hub.Apply(t.Context(), &unstructured.Unstructured{Object: object}); err != nil {
			t.Fatal(err)
		}
	}
	client, err := dynamic.NewForConfig(hub.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	managed := client.Resource(clusterv1.SchemeGroupVersion.WithResource("managedclusters"))
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(clusterv1.SchemeGroupVersion.WithKind("ManagedCluster"))
	await.Eventually(t, "OCM stores a ManagedCluster", func(ctx context.Context) error {
		_, err := managed.Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	run(t, hub, "init", "--image=registry.example.com/hub:v1", "--yes").done(t).shows(t, "the hub runs OCM")

	got := run(t, hub, "clean", "--yes").done(t)
	got.shows(t, "namespace/"+hubNamespace+" stays: clusteradm did not create it",
		"clusterrole.rbac.authorization.k8s.io/"+role+" stays: OCM needs it", "deployment.apps/hub-apiserver in "+hubNamespace+" deleted")
	if _, services := servedByHubAPIServer(t, hub.AdminConfig()); len(services) > 0 {
		t.Errorf("%d APIServices of servers after clean, want none", len(services))
	}
	if _, err := managed.Get(t.Context(), "c1", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(ManagedCluster) after clean = %v, want that of OCM", err)
	}
	if _, err := kube.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{}); err != nil {
		t.Errorf("Get(ClusterRole %s) after clean = %v, want no error", role, err)
	}
	namespace, err := kube.CoreV1().Namespaces().Get(t.Context(), hubNamespace, metav1.GetOptions{})
	if err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("Get(Namespace %s) after clean = %v, %v, want it not deleted", hubNamespace, namespace, err)
	}
	again := run(t, hub, "clean", "--yes").done(t)
	if slices.ContainsFunc(strings.Split(again.out, "\n"), func(line string) bool { return strings.HasSuffix(line, " deleted") }) {
		t.Errorf("clean printed\n%s\nfor a hub without a server, want no deletions", again.out)
	}
}
