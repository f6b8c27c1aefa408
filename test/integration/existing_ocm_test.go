package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// hubThatRunsOCM starts a hub that keeps ManifestWorks, ManagedClusters and their
// sets in its own CustomResourceDefinitions, and the server with
// artifacts/deploy/existing-ocm, which leaves these groups alone, and others to be left.
func hubThatRunsOCM(t *testing.T, leftAlone ...schema.GroupVersion) *localhub.Cluster {
	t.Helper()
	hub, _ := serverOfHubThatRunsOCM(t, leftAlone...)
	return hub
}

// serverOfHubThatRunsOCM is hubThatRunsOCM with its server.
func serverOfHubThatRunsOCM(t *testing.T, leftAlone ...schema.GroupVersion) (*localhub.Cluster, *localhub.APIServer) {
	t.Helper()
	ctx, dir := t.Context(), ownDir(t)
	hub, err := localhub.NewCluster(localhub.ClusterOptions{Name: "ocm-hub", Dir: filepath.Join(dir, "hub"), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stopLater(t, hub.Stop)
	apply(t, hub, crd(t, "test", "integration", "testdata", "managedclusters.crd.yaml"),
		crd(t, "test", "integration", "testdata", "managedclustersets.crd.yaml"), crd(t, "test", "integration", "testdata", "managedclustersetbindings.crd.yaml"), crd(t, "pkg", "agent", "testdata", "manifestworks.crd.yaml"))
	eventually(t, "the hub serves works and clusters of its own", func(context.Context) error {
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
	if err := localhub.JoinAsOCM(ctx, hub, cluster1); err != nil {
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
	server, err := localhub.NewAPIServer(localhub.APIServerOptions{Hub: hub, Dir: filepath.Join(dir, "apiserver"), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	// The server is not ready before it may do all it needs to do there.
	grants, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "deploy", "existing-ocm"))
	if err != nil {
		t.Fatal(err)
	}
	for _, grant := range grants {
		if grant.GroupVersionKind().Group == "rbac.authorization.k8s.io" {
			apply(t, hub, grant)
		}
	}
	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stopLater(t, server.Stop)
	if err := server.Register(ctx, rbacv1alpha1.GroupName); err != nil {
		t.Fatal(err)
	}
	return hub, server
}

// overlayArgs are the arguments that artifacts/deploy/existing-ocm adds to the server's.
func overlayArgs(t *testing.T) []string {
	t.Helper()
	var overlay struct {
		Patches []struct {
			Target struct{ Kind string }
			Patch  string
		}
	}
	content := must(os.ReadFile(filepath.Join(localhub.Root(), "artifacts", "deploy", "existing-ocm", "kustomization.yaml")))(t)
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
		t.Fatal("the overlay adds no arguments")
	}
	return args
}

// ManifestWorks of ClusterPermissions go where the hub keeps ManifestWorks.
func TestHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	ctx, hub := t.Context(), hubThatRunsOCM(t)
	ocm := ocmClient(t, hub.AdminConfig(), nil)
	cp := create(t, ocm, permission("on-an-ocm-hub"))
	var work *workv1.ManifestWork
	eventually(t, "its work is in the hub's own store", func(ctx context.Context) error {
		works, err := worksOf(ctx, ocm, cp.Name)
		if err != nil {
			return err
		}
		if len(works) != 1 {
			return fmt.Errorf("there are %d works", len(works))
		}
		work = &works[0]
		return nil
	})

	// What OCM's own agent reports there reaches the ClusterPermission.
	work.Status.Conditions = []metav1.Condition{{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete,
		LastTransitionTime: metav1.Now(), ObservedGeneration: work.Generation,
	}}
	if _, err := ocm.WorkV1().ManifestWorks(cluster1).UpdateStatus(ctx, work, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ClusterPermission says that it is applied", func(ctx context.Context) error {
		cp, err := ocm.RbacV1alpha1().ClusterPermissions(cluster1).Get(ctx, cp.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return hasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
	})

	// Nothing is written again and again: the hub's store keeps keys in another order than we render them.
	settled := must(ocm.WorkV1().ManifestWorks(cluster1).Get(ctx, work.Name, metav1.GetOptions{}))(t)
	if settled.Generation != work.Generation {
		t.Errorf("the work was written again: its generation went from %d to %d", work.Generation, settled.Generation)
	}
	if err := ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(ctx, cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the work is gone", func(ctx context.Context) error {
		_, err := ocm.WorkV1().ManifestWorks(cluster1).Get(ctx, work.Name, metav1.GetOptions{})
		return isGone(err)
	})
}

func crd(t *testing.T, path ...string) *unstructured.Unstructured {
	t.Helper()
	content := must(os.ReadFile(filepath.Join(append([]string{localhub.Root()}, path...)...)))(t)
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func apply(t *testing.T, cluster *localhub.Cluster, objects ...*unstructured.Unstructured) {
	t.Helper()
	if err := cluster.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}
