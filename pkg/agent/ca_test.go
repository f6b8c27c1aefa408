package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManagedCA checks that the reported CA follows changes of the kubeconfig, and of the file that
// the kubeconfig names.
func TestManagedCA(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("ca.pem", "first")
	kubeconfig := func(ca string) string {
		return write("kubeconfig", strings.ReplaceAll(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
		  clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", CA}}]}`, "CA", ca))
	}
	options := NewOptions()
	options.Kubeconfig = kubeconfig("certificate-authority: " + file)
	options.HubKubeconfig = options.Kubeconfig
	config, err := options.Config()
	if err != nil {
		t.Fatal(err)
	}
	read := func(want string) {
		t.Helper()
		if got, err := config.ManagedCA(); err != nil || string(got) != want {
			t.Errorf("ManagedCA() = %q, %v, want %q", got, err, want)
		}
	}
	read("first")
	write("ca.pem", "second")
	read("second")
	kubeconfig("certificate-authority-data: dGhpcmQ=") // "third" in base64
	read("third")
	kubeconfig("tls-server-name: x")
	read("")
	if err := os.Remove(options.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if got, err := config.ManagedCA(); err == nil {
		t.Errorf("ManagedCA() = %q without a kubeconfig, want an error", got)
	}
}
