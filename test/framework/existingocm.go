package framework

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// HubThatRunsOCM starts a hub with the CustomResourceDefinitions of ManifestWorks, ManagedClusters
// and their sets, and the server with artifacts/deploy/existing-ocm. The server does not serve
// these API versions, nor the versions in leftAlone.
func HubThatRunsOCM(t *testing.T, leftAlone ...schema.GroupVersion) (*localhub.Cluster, *localhub.APIServer) {
	t.Helper()
	ctx, hub := t.Context(), OwnCluster(t, localhub.ClusterOptions{Name: "ocm-hub"})
	Apply(t, hub, CRD(t, "test", "framework", "testdata", "managedclusters.crd.yaml"),
		CRD(t, "test", "framework", "testdata", "managedclustersets.crd.yaml"), CRD(t, "test", "framework", "testdata", "managedclustersetbindings.crd.yaml"), CRD(t, "test", "agent", "testdata", "manifestworks.crd.yaml"))
	Eventually(t, "the hub serves its own ManifestWorks and ManagedClusters", func(context.Context) error {
		client, err := discovery.NewDiscoveryClientForConfig(hub.AdminConfig())
		if err != nil {
			return err
		}
		for _, version := range []string{workv1.SchemeGroupVersion.String(), clusterv1.SchemeGroupVersion.String(), clusterv1beta2.SchemeGroupVersion.String()} {
			if _, err := client.ServerResourcesForGroupVersion(version); err != nil {
				return err
			}
		}
		return nil
	})
	if err := localhub.JoinAsOCM(ctx, hub, Cluster1); err != nil {
		t.Fatal(err)
	}

	args := overlayArgs(t)
	for i := range args {
		if strings.HasPrefix(args[i], "--runtime-config=") {
			for _, version := range leftAlone {
				args[i] += "," + version.String() + "=false"
			}
		}
	}
	server := NewServer(t, localhub.APIServerOptions{Hub: hub, Dir: filepath.Join(OwnDir(t), "apiserver"), Args: args})
	// The server becomes ready only after the hub grants it all permissions that it needs.
	for _, grant := range Must(localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "deploy", "components", "existing-ocm")))(t) {
		if grant.GroupVersionKind().Group == "rbac.authorization.k8s.io" {
			Apply(t, hub, grant)
		}
	}
	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := server.Register(ctx, rbacv1alpha1.SchemeGroupVersion.String()); err != nil {
		t.Fatal(err)
	}
	return hub, server
}

// overlayArgs returns the arguments of the server that artifacts/deploy/components/existing-ocm adds.
func overlayArgs(t *testing.T) []string {
	t.Helper()
	var overlay struct {
		Patches []struct {
			Target struct{ Kind string }
			Patch  string
		}
	}
	content := Must(os.ReadFile(filepath.Join(localhub.Root(), "artifacts", "deploy", "components", "existing-ocm", "kustomization.yaml")))(t)
	if err := yaml.Unmarshal(content, &overlay); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, patch := range overlay.Patches {
		if patch.Target.Kind != "Deployment" {
			continue
		}
		var operations []struct{ Op, Path, Value string }
		if err := yaml.Unmarshal([]byte(patch.Patch), &operations); err != nil {
			t.Fatal(err)
		}
		for _, operation := range operations {
			if operation.Op == "add" && strings.HasSuffix(operation.Path, "/containers/0/args/-") {
				args = append(args, operation.Value)
			}
		}
	}
	if len(args) == 0 {
		t.Fatal("existing-ocm/kustomization.yaml adds no arguments to the server, want some")
	}
	return args
}

// CRD reads a CustomResourceDefinition from a file of the repository.
func CRD(t *testing.T, path ...string) *unstructured.Unstructured {
	t.Helper()
	content := Must(os.ReadFile(filepath.Join(append([]string{localhub.Root()}, path...)...)))(t)
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// Apply applies objects to a cluster.
func Apply(t testing.TB, cluster *localhub.Cluster, objects ...*unstructured.Unstructured) {
	t.Helper()
	if err := cluster.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}
