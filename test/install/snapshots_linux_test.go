package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestInstallWithSnapshots installs the manifests with the component backup, as they are. A snapshot is due when the
// server starts and has none.
func TestInstallWithSnapshots(t *testing.T) {
	t.Parallel()
	hub := newSite(t, "hub", nil)
	dir := t.TempDir()
	deploy, err := filepath.Rel(dir, filepath.Join(localhub.Root(), "artifacts", "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	kustomization := fmt.Sprintf("resources: [%[1]s/base]\ncomponents: [%[1]s/components/backup]\n", deploy)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	hub.run(t, "kubectl", "apply", "-k", dir)
	hub.ready(t, hubNamespace, 1)
	saved := func() (file string) {
		t.Helper()
		await.Eventually(t, "the volume contains a snapshot", func(context.Context) error {
			files, err := filepath.Glob(filepath.Join(hub.dir, "claims", hubNamespace, "hub-apiserver-snapshots", "snapshots", "hub-apiserver-*.db"))
			if err == nil && len(files) != 1 {
				err = fmt.Errorf("snapshots = %v, want one", files)
			}
			file = strings.Join(files, "")
			return err
		})
		return file
	}
	keys := func(file string) int {
		t.Helper()
		status := hub.run(t, "apiserver", "snapshot", "status", file)
		_, after, _ := strings.Cut(status, "KEYS")
		number, _, _ := strings.Cut(strings.TrimSpace(after), "\n")
		return framework.Must(strconv.Atoi(strings.TrimSpace(number)))(t)
	}
	// Without the snapshot of the empty hub, the next one is due when the server starts again.
	first := saved()
	before := keys(first)
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	hub.run(t, "kubectl", "create", "-f", "artifacts/example/managedclusterset.yaml")
	hub.replacePod(t, hubNamespace, 1)
	if after := keys(saved()); after <= before {
		t.Errorf("keys of the snapshot = %d, want more than the %d of the empty hub", after, before)
	}
}
