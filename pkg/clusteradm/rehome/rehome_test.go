package rehome

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

func TestHubRefuses(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "hub.gz")
	if err := os.WriteFile(damaged, []byte("not compressed"), 0o600); err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(t.TempDir(), "exported.gz")
	if err := (&archive{Format: archiveFormat, ID: "id", Epoch: 4}).write(exported); err != nil {
		t.Fatal(err)
	}
	const token, server = "--hub-token=t", "--hub-apiserver=https://standby.example.com"
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"standby without a token":               {[]string{"standby", server}, []string{"--hub-token is required"}},
		"standby with a token of two lines":     {[]string{"standby", server, "--hub-token=a\nb"}, []string{"--hub-token is not a token"}},
		"standby over HTTP":                     {[]string{"standby", token, "--hub-apiserver=http://standby.example.com"}, []string{"--hub-apiserver", "https://"}},
		"standby here and elsewhere":            {[]string{"standby", token, server, "--here", "--clusters=a"}, []string{"--here excludes --clusters"}},
		"standby in an invalid namespace":       {[]string{"standby", token, server, "--agent-namespace=A"}, []string{"--agent-namespace"}},
		"export without a timeout":              {[]string{"export", "x", "--timeout=0"}, []string{"--timeout must be more than 0"}},
		"adopt without a file":                  {[]string{"adopt", filepath.Join(t.TempDir(), "none")}, []string{"no such file"}},
		"adopt from another file":               {[]string{"adopt", damaged}, []string{"not an export of a hub"}},
		"adopt with a negative epoch":           {[]string{"adopt", exported, "--epoch=-1"}, []string{"--epoch must be between 1 and"}},
		"adopt with an epoch that none follows": {[]string{"adopt", exported, "--epoch=9007199254740992"}, []string{"--epoch must be between 1 and"}},
		"adopt with the epoch of the other hub": {[]string{"adopt", exported, "--epoch=4"}, []string{"--epoch must be higher", "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			command := New(cli.Environment{ConfigFlags: genericclioptions.NewConfigFlags(false), IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
			command.SilenceErrors, command.SilenceUsage = true, true
			command.SetArgs(test.args)
			err := command.ExecuteContext(t.Context())
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("clusteradm hub %q = %v, want an error that contains %q", test.args, err, want)
				}
			}
		})
	}
}
