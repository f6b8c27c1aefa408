package release

import (
	"strings"
	"testing"
)

// TestInstallOfREADME checks that the commands of README are those of a node without a registry, which other tests run,
// except the registry and the path of clusteradm.
func TestInstallOfREADME(t *testing.T) {
	words := func(command string) string {
		command, _, _ = strings.Cut(command, "#")
		command = strings.NewReplacer("\\\n", " ", "./clusteradm", "clusteradm", "--image-registry registry.example.com/project", "").Replace(command)
		return strings.Join(strings.Fields(command), " ")
	}
	tested := map[string]bool{}
	for _, command := range commands(t, AirGapped) {
		tested[words(command)] = true
	}
	for _, command := range commands(t, "README.md") {
		if !tested[words(command)] {
			t.Errorf("README has the command %q, want one of %s: %v", words(command), AirGapped, tested)
		}
	}
}
