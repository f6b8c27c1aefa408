package backup

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestFullDisk checks that a snapshot that does not fit leaves no file and no part of one.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("requires root to mount a small file system")
	}
	data := filepath.Join(t.TempDir(), "data")
	server := framework.Must(etcd.Start(t.Context(), etcd.Options{DataDir: data, QuotaBytes: 64 << 20}))(t)
	t.Cleanup(server.Stop)
	full := t.TempDir()
	// etcd allocates its database in pages of 16 KiB and more.
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(full, 0); err != nil {
			t.Error(err)
		}
	})
	_, err := save(t.Context(), data, filepath.Join(full, "snapshot.db"))
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("save to a full disk = %v, want an error about the space", err)
	}
	if entries := framework.Must(os.ReadDir(full))(t); len(entries) > 0 {
		t.Errorf("files on the full disk = %v, want none", entries)
	}
	if _, err := save(t.Context(), data, snapshotFile(t, "elsewhere")); err != nil {
		t.Errorf("save to another disk: %v", err)
	}
}
