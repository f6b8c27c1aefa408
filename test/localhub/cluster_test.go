package localhub_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	return framework.Must(kubernetes.NewForConfig(config))(t)
}

// TestEtcdInADeepDirectory checks that etcd starts in a directory whose path is too long for a
// Unix socket.
func TestEtcdInADeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep", 30))
	etcd, err := localhub.NewEtcd("etcd", dir, localhub.BinDir(), filepath.Join(dir, "etcd.log"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Kill() })
	sockets := filepath.Dir(strings.TrimPrefix(etcd.Endpoint, "unix://"))
	for range 2 {
		if err := etcd.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := etcd.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(sockets); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat(%s) after Stop = %v, want it not to exist", sockets, err)
	}
}
