// Package backup tests snapshots of the embedded etcd, and what agents do after one is restored, with real
// processes.
package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// snapshotCommand returns a command of apiserver snapshot that has not been started.
func snapshotCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := localhub.Binary(localhub.BinDir(), "apiserver")
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, path, append([]string{"snapshot"}, args...)...), nil
}

// snapshot runs a command of apiserver snapshot and returns its output.
func snapshot(ctx context.Context, args ...string) ([]byte, error) {
	command, err := snapshotCommand(ctx, args...)
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("apiserver snapshot %s: %w\n%s", args[0], err, stderr.String())
	}
	return out, nil
}

func save(ctx context.Context, dataDir, file string, args ...string) (*etcd.SnapshotStatus, error) {
	out, err := snapshot(ctx, append([]string{"save", file, "--data-dir=" + dataDir, "-o=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	status := &etcd.SnapshotStatus{}
	return status, json.Unmarshal(out, status)
}

// dataDir returns the data directory of the server of a fleet.
func dataDir(t *testing.T, f *framework.Fleet) string {
	t.Helper()
	return framework.Argument(t, f.Server.Args, "--data-dir=")
}

// restore stops the server, replaces its data by a snapshot, and starts it.
func restore(t *testing.T, f *framework.Fleet, file string) {
	t.Helper()
	if err := f.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	out := framework.Must(snapshot(t.Context(), "restore", file, "--data-dir="+dataDir(t, f), "--replace"))(t)
	t.Logf("%s", out)
	// The server waits for 10 seconds for the Lease of the lost data to expire.
	framework.Eventually(t, "the server runs on the restored data", func(ctx context.Context) error {
		if f.Server.Running() {
			return f.Server.WaitReady(ctx)
		}
		return f.Server.Start(ctx)
	})
	framework.Eventually(t, "the hub forwards requests to the server", func(ctx context.Context) error {
		_, err := f.OCM.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		if err == nil {
			_, err = f.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(ctx, metav1.ListOptions{})
		}
		return err
	})
}

func snapshotFile(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(t.TempDir(), name+".db")
}
