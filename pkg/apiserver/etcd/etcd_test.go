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

	"go.uber.org/zap"

	"open-cluster-management.io/hub-apiserver/test/await"
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

// TestDataSurvives restarts etcd with the socket of a crashed process in the data directory.
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
			t.Errorf("Get() after a restart = %v, %v, want the written value", got, err)
		}
		if first.StorageID() != second.StorageID() {
			t.Errorf("StorageID() after a restart = %s, want %s", second.StorageID(), first.StorageID())
		}
	}
}

// TestListensOnItsOwnSocketOnly checks that other users cannot connect, since every client can read and
// write all data.
func TestListensOnItsOwnSocketOnly(t *testing.T) {
	server := start(t, filepath.Join(t.TempDir(), "data"))
	info, err := os.Stat(filepath.Dir(server.socket))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory of the socket = %v, %v, want 0700", info.Mode(), err)
	}
	if count := len(server.etcd.Peers); count != 0 {
		t.Errorf("listeners for peers = %d, want 0", count)
	}
	if count := len(server.etcd.Clients); count != 1 {
		t.Errorf("listeners for clients = %d, want 1", count)
	}
	for _, listener := range server.etcd.Clients {
		if address, ok := listener.Addr().(*net.UnixAddr); !ok || address.Name != server.socket {
			t.Errorf("listener = %v, want %s", listener.Addr(), server.socket)
		}
	}
}

// TestLogsNoErrors checks that a healthy etcd logs no errors from its first start to its stop, and that the log is enabled
// in between; and that saving and restoring a snapshot logs none.
func TestLogsNoErrors(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = file
	t.Cleanup(func() { os.Stderr = stderr })
	data, snapshot := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "snapshot")
	server := start(t, data)
	await.True(t, "the log is enabled", func() bool {
		if _, err := server.observe(t.Context()); err != nil {
			t.Error(err)
		}
		return server.logLevel.Enabled(zap.WarnLevel)
	})
	server.Stop()
	if _, err := SaveSnapshot(t.Context(), data, snapshot, false); err != nil {
		t.Fatal(err)
	}
	restore(t, snapshot, filepath.Join(t.TempDir(), "restored"))
	logged, err := os.ReadFile(file.Name())
	if err != nil || strings.Contains(string(logged), `"level":"error"`) {
		t.Errorf("log = %s, %v, want no errors", logged, err)
	}
}

func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, Options{DataDir: dir, QuotaBytes: quotaBytes})
	want := fmt.Sprintf("process %d is using %s", os.Getpid(), dir)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Start() of a second process = %v, want %q", err, want)
	}

	time.AfterFunc(200*time.Millisecond, first.Stop)
	start(t, dir)
}
