package replicas

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestEtcdServersOverrides stores ManifestWorks in another etcd than all other resources.
func TestEtcdServersOverrides(t *testing.T) {
	dir := framework.OwnDir(t)
	common, works := framework.OwnEtcd(t, "common", dir), framework.OwnEtcd(t, "works", dir)
	f := framework.OwnFleet(t, localhub.FleetOptions{APIServerArgs: []string{
		"--etcd-servers=" + common.Endpoint, "--search-data-dir=" + filepath.Join(dir, "search"),
		"--etcd-servers-overrides=work.open-cluster-management.io/manifestworks#" + works.Endpoint,
	}})
	if err := localhub.JoinCluster(t.Context(), f.Hub, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	cp := framework.CreatePermission(t, f.OCM, framework.Permission("overridden"))
	work := f.WorkOf(t, cp)

	const prefix = "/registry/open-cluster-management.io/"
	for _, check := range []struct {
		etcd *localhub.Etcd
		key  string
		want int64
	}{
		{works, prefix + "work.open-cluster-management.io/manifestworks/" + framework.Cluster1 + "/" + work.Name, 1},
		{works, prefix + "rbac.open-cluster-management.io/", 0},
		{works, prefix + "cluster.open-cluster-management.io/", 0},
		{common, prefix + "work.open-cluster-management.io/", 0},
		{common, prefix + "rbac.open-cluster-management.io/clusterpermissions/" + framework.Cluster1 + "/" + cp.Name, 1},
		// The record of versions is in one place for all resources.
		{common, prefix + "storage-versions/record", 1},
		{works, prefix + "storage-versions/", 0},
	} {
		client := framework.Must(clientv3.New(clientv3.Config{Endpoints: []string{check.etcd.Endpoint}}))(t)
		found, err := client.Get(t.Context(), check.key, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || found.Count != check.want {
			t.Errorf("keys of etcd %q that begin with %s = %v, %v, want %d", check.etcd.Name, check.key, found, err, check.want)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}

	// Watches and lists work across a restart of the etcd of one resource.
	if err := works.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ManifestWorks can be written again", func(ctx context.Context) error {
		_, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Create(ctx, framework.ConfigMapWork("after-restart"), metav1.CreateOptions{})
		return err
	})
	if got := f.WorkOf(t, cp); got.UID != work.UID {
		t.Errorf("UID of the ManifestWork after a restart of its etcd = %s, want %s", got.UID, work.UID)
	}
}

// TestUnknownOverride checks that a name without effect is refused.
func TestUnknownOverride(t *testing.T) {
	hub := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub", NoControllerManager: true})
	server := framework.Must(localhub.NewAPIServer(localhub.APIServerOptions{
		Hub: hub, Dir: t.TempDir(), EtcdServers: []string{"http://127.0.0.1:1"},
		Args: []string{"--search-engine=none", "--etcd-servers-overrides=work.open-cluster-management.io/works#http://127.0.0.1:2"},
	}))(t)
	err := server.Start(t.Context())
	const want = "--etcd-servers-overrides: work.open-cluster-management.io/works: Not found"
	if err == nil || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("Start() with an unknown resource = %v, want %q", err, want)
	}
}
