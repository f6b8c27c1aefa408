package backup

import (
	"context"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/options"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestMarkedEtcd marks the data of an external etcd as docs/backup.md describes. The server serves no
// ManagedCluster without the mark.
func TestMarkedEtcd(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	dir := framework.OwnDir(t) + "-external"
	store := framework.Must(localhub.NewEtcd("external etcd", filepath.Join(dir, "etcd"), localhub.BinDir(), filepath.Join(dir, "etcd.log"), true))(t)
	framework.StopLater(t, store.Stop)
	server := framework.NewServer(t, localhub.APIServerOptions{
		Hub: f.Hub, Name: "external", Dir: filepath.Join(dir, "server"), Granted: true, EtcdServers: []string{store.Endpoint},
		Args: []string{"--search-engine=none", "--leader-elect-resource-name=external"},
	})
	if err := store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	clusters := framework.Direct(t, server).ClusterV1().ManagedClusters()
	framework.Must(clusters.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "marked"}}, metav1.CreateOptions{}))(t)
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := framework.Must(clientv3.New(clientv3.Config{Endpoints: []string{store.Endpoint}}))(t)
	framework.Must(client.Put(t.Context(), etcd.MarkKey(options.EtcdPathPrefix), `{"id":"restore-1","time":"2026-01-01T00:00:00Z"}`))(t)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the server serves the marked ManagedCluster", func(ctx context.Context) error {
		cluster, err := clusters.Get(ctx, "marked", metav1.GetOptions{})
		if err == nil && cluster.PendingRestore() != "restore-1" {
			t.Fatalf("annotations of a served ManagedCluster = %v, want the mark", cluster.Annotations)
		}
		return err
	})
}
