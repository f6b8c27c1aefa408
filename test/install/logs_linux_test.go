package install

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// privateKey matches a private key, and what base64 makes of these words at each position.
var privateKey = regexp.MustCompile(`PRIVATE KEY|UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW`)

// secrets returns the token material of a site, in the form of the Secrets and as text.
func (s *site) secrets(t *testing.T) map[string][]byte {
	t.Helper()
	list, err := s.kube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, secret := range list.Items {
		name := secret.Namespace + "/" + secret.Name
		if token := secret.Data["token"]; len(token) > 0 {
			out["token of "+name] = token
		}
		if content := secret.Data["kubeconfig"]; len(content) > 0 {
			config, err := clientcmd.Load(content)
			if err != nil {
				t.Fatal(err)
			}
			for _, user := range config.AuthInfos {
				if user.Token != "" {
					out["token in "+name] = []byte(user.Token)
				}
			}
		}
	}
	for what, token := range out {
		out[what+" in base64"] = []byte(base64.StdEncoding.EncodeToString(token)[:40])
	}
	return out
}

// checkLogs fails the test if a line of the containers' logs is not JSON, or contains token material.
func (s *site) checkLogs(t *testing.T, secrets map[string][]byte) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs = %v, %v; want those of the containers", logs, err)
	}
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		if len(lines) < 10 {
			t.Errorf("%s has %d lines, want those of a whole run", filepath.Base(path), len(lines))
		}
		for _, line := range lines {
			var entry struct{ TS, Msg any }
			if err := json.Unmarshal(line, &entry); err != nil || entry.TS == nil || entry.Msg == nil {
				t.Errorf("%s: not a JSON entry with ts and msg: %s", filepath.Base(path), line)
			}
			for what, secret := range secrets {
				if bytes.Contains(line, secret) {
					t.Errorf("%s contains the %s: %s", filepath.Base(path), what, line)
				}
			}
			if privateKey.Match(line) {
				t.Errorf("%s contains a private key: %s", filepath.Base(path), line)
			}
		}
	}
}
