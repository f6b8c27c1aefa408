package clusteradm

import (
	"io"
	"strings"
	"testing"
)

// TestDocumentedDefaults checks the defaults of flags that docs/clusteradm.md and docs/registration.md name.
func TestDocumentedDefaults(t *testing.T) {
	for command, flags := range map[string]map[string]string{
		"init":             {"token-duration": "24h0m0s"},
		"get token":        {"token-duration": "24h0m0s"},
		"get join-command": {"token-duration": "24h0m0s"},
		"unjoin":           {"timeout": "5m0s"},
		"migrate":          {"timeout": "30m0s"},
		"hub export":       {"timeout": "10m0s"},
		"hub standby":      {"timeout": "5m0s"},
		"hub adopt":        {"timeout": "30m0s"},
		"search":           {"limit": "1000"},
		"auth can-i":       {"limit": "1000"},
		"auth who-can":     {"limit": "1000"},
	} {
		found, _, err := New(strings.NewReader(""), io.Discard, io.Discard).Find(strings.Fields(command))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range flags {
			flag := found.Flag(name)
			if flag == nil || flag.DefValue != want {
				t.Errorf("clusteradm %s --%s = %+v, want the default %s", command, name, flag, want)
			}
		}
	}
}
