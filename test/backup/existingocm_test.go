package backup

import (
	"context"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestRestoreOnHubThatRunsOCM restores the server of a hub that stores its ManagedClusters in a CustomResourceDefinition.
// The server marks them before it serves any object.
func TestRestoreOnHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	hub, server := framework.HubThatRunsOCM(t)
	client := framework.OCMClient(t, hub.AdminConfig(), nil)
	direct := framework.Direct(t, server)
	data, file := framework.Argument(t, server.Args, "--data-dir="), snapshotFile(t, "ocm")
	framework.Must(save(t.Context(), data, file))(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	mark := &etcd.Mark{}
	if err := json.Unmarshal(framework.Must(snapshot(t.Context(), "restore", file, "--data-dir="+data, "--replace", "-o=json"))(t), mark); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the server runs on the restored data", func(ctx context.Context) error {
		if !server.Running() {
			if err := server.Launch(); err != nil {
				return err
			}
		}
		_, err := direct.RbacV1alpha1().ClusterPermissions(framework.Cluster1).List(ctx, metav1.ListOptions{})
		return err
	})
	cluster := framework.Must(client.ClusterV1().ManagedClusters().Get(t.Context(), framework.Cluster1, metav1.GetOptions{}))(t)
	if got := cluster.PendingRestore(); got != mark.ID {
		t.Errorf("restore of the ManagedCluster of the hub = %q, want %q", got, mark.ID)
	}
	framework.Must((&localhub.Clusteradm{}).Run(t.Context(), hub, "restore", "confirm", framework.Cluster1))(t)
	cluster = framework.Must(client.ClusterV1().ManagedClusters().Get(t.Context(), framework.Cluster1, metav1.GetOptions{}))(t)
	if got := cluster.PendingRestore(); got != "" {
		t.Errorf("restore after clusteradm restore confirm = %q, want none", got)
	}
}
