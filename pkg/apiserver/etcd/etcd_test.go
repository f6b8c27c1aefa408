package etcd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const quotaBytes = 64 << 20

func start(t *testing.T, dir string) *Server {
	t.Helper()
	server, err := Start(t.Context(), Options{DataDir: dir, QuotaBytes: quotaBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

// What is written is there after a restart, under the same identity and with
// what a crash may have left beside it.
func TestDataSurvives(t *testing.T) {
	for _, dir := range []string{
		filepath.Join(t.TempDir(), "data"),
		filepath.Join(t.TempDir(), strings.Repeat("a-path-too-long-for-a-socket/", 5)),
	} {
		first := start(t, dir)
		if _, err := first.client.Put(t.Context(), "key", "value"); err != nil {
			t.Fatal(err)
		}
		first.Stop()
		if err := os.WriteFile(filepath.Join(dir, socketFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}

		second := start(t, dir)
		got, err := second.client.Get(t.Context(), "key")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
			t.Errorf("after a restart: %v, %v", got, err)
		}
		if first.StorageID() != second.StorageID() {
			t.Errorf("identity was %s, is %s", first.StorageID(), second.StorageID())
		}
	}
}

// Whoever can connect to etcd can read and write everything, so it listens
// nowhere but on a socket in a directory that is closed to others.
func TestListensOnItsOwnSocketOnly(t *testing.T) {
	server := start(t, filepath.Join(t.TempDir(), "data"))
	info, err := os.Stat(filepath.Dir(server.socket))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory of the socket: %v, %v", info.Mode(), err)
	}
	if count := len(server.etcd.Peers); count != 0 {
		t.Errorf("listens for %d peers", count)
	}
	if count := len(server.etcd.Clients); count != 1 {
		t.Errorf("listens for clients in %d places", count)
	}
	for _, listener := range server.etcd.Clients {
		if address, ok := listener.Addr().(*net.UnixAddr); !ok || address.Name != server.socket {
			t.Errorf("listens on %v", listener.Addr())
		}
	}
}

func TestSecondProcessIsTold(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, Options{DataDir: dir, QuotaBytes: quotaBytes})
	want := fmt.Sprintf("process %d is using %s", os.Getpid(), dir)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}

	time.AfterFunc(200*time.Millisecond, first.Stop)
	start(t, dir)
}
