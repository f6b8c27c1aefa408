package backup

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	clientsnapshot "go.etcd.io/etcd/client/v3/snapshot"
	utilsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/options"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestRestoreEtcdCluster restores an etcd cluster of three members as docs/backup.md describes, with the packages that
// etcdctl snapshot save and etcdutl snapshot restore run.
func TestRestoreEtcdCluster(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	dir := framework.OwnDir(t) + "-members"
	members := framework.Must(localhub.NewEtcdCluster(localhub.EtcdClusterOptions{Dir: filepath.Join(dir, "etcd")}))(t)
	framework.StopLater(t, members.Stop)
	certificates := filepath.Join(dir, "client")
	if err := members.IssueClient(certificates, time.Time{}); err != nil {
		t.Fatal(err)
	}
	server := framework.NewServer(t, localhub.APIServerOptions{
		Hub: f.Hub, Name: "members", Dir: filepath.Join(dir, "server"), Granted: true, EtcdServers: members.Endpoints,
		Args: append(members.ServerArgs(certificates)[1:], "--search-engine=none", "--leader-elect-resource-name=members"),
	})
	start := func() {
		t.Helper()
		if err := members.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	withClient := func(use func(*clientv3.Client) error) {
		t.Helper()
		client := framework.Must(members.Client())(t)
		if err := use(client); err != nil {
			t.Fatal(err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	start()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	clusters := framework.Direct(t, server).ClusterV1().ManagedClusters()
	create := func(name string) *clusterv1.ManagedCluster {
		t.Helper()
		return framework.Must(clusters.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	create("kept")
	file := snapshotFile(t, "members")
	withClient(func(client *clientv3.Client) error {
		_, err := clientsnapshot.SaveWithVersion(t.Context(), zap.NewNop(), clientv3.Config{Endpoints: members.Endpoints[:1], TLS: members.AdminTLS()}, file)
		return err
	})
	lost := create("lost")

	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := members.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, member := range members.Members {
		if err := os.RemoveAll(member.Data); err != nil {
			t.Fatal(err)
		}
		err := utilsnapshot.NewV3(zap.NewNop()).Restore(utilsnapshot.RestoreConfig{
			SnapshotPath: file, OutputDataDir: member.Data, RevisionBump: 1_000_000_000, MarkCompacted: true,
			Name:                framework.Argument(t, member.Args, "--name="),
			InitialCluster:      framework.Argument(t, member.Args, "--initial-cluster="),
			InitialClusterToken: framework.Argument(t, member.Args, "--initial-cluster-token="),
			PeerURLs:            []string{framework.Argument(t, member.Args, "--initial-advertise-peer-urls=")},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	start()
	withClient(func(client *clientv3.Client) error {
		_, err := client.Put(t.Context(), etcd.MarkKey(options.EtcdPathPrefix), `{"id":"restore-2","time":"2026-01-01T00:00:00Z"}`)
		return err
	})
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	kept := framework.Must(clusters.Get(t.Context(), "kept", metav1.GetOptions{}))(t)
	if kept.PendingRestore() != "restore-2" {
		t.Errorf("annotations of the restored ManagedCluster = %v, want the mark", kept.Annotations)
	}
	if _, err := clusters.Get(t.Context(), "lost", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of a ManagedCluster that the snapshot does not contain = %v, want NotFound", err)
	}
	framework.Eventually(t, "a watch from a resource version of the lost data gets status 410", func(ctx context.Context) error {
		watching, err := clusters.Watch(ctx, metav1.ListOptions{ResourceVersion: lost.ResourceVersion})
		if err == nil {
			defer watching.Stop()
			select {
			case event := <-watching.ResultChan():
				if event.Type != watch.Error {
					t.Fatalf("event of the watch = %v, want status 410", event)
				}
				err = apierrors.FromObject(event.Object)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return err
		}
		return nil
	})
}
