package upgrade

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const (
	// storagePrefix begins the keys of the server in etcd.
	storagePrefix = "/registry/open-cluster-management.io"
	quotaBytes    = 1 << 30
	etcdTimeout   = time.Minute
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// resources returns the table of all stored resources.
func resources() []definition.Resource { return apiserver.Resources(apiserver.Dependencies{}) }

// keyOf returns the key of an object in etcd.
func keyOf(row *definition.Resource, meta metav1.Object) string {
	return path.Join(storagePrefix, row.Group(), row.Name, meta.GetNamespace(), meta.GetName())
}

// dataDir returns the directory of the embedded etcd of the fleet that framework.OwnFleet starts.
func dataDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(framework.OwnDir(t), "apiserver", "etcd")
}

// withData runs etcd on the data of the server, which must not run, and calls use.
func withData(t *testing.T, use func(context.Context, *clientv3.Client)) {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{DataDir: dataDir(t), QuotaBytes: quotaBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	withEtcd(t, server.Endpoint(), use)
}

// withEtcd calls use with a client of an etcd.
func withEtcd(t *testing.T, endpoint string, use func(context.Context, *clientv3.Client)) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), etcdTimeout)
	defer cancel()
	use(ctx, client)
}
