package irsa

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// A shell reads the lines, with a function in place of the command aws.
func TestCommands(t *testing.T) {
	identity := example()
	role := identity.ManagedClusterRoleName()
	for _, provider := range []string{managedProvider, "", `$(echo x) 'y' "z" \ ; #` + "\n" + "`id`"} {
		account := `n'; echo "$HOME:a`
		lines := identity.Commands(provider, account)
		want := [][]string{
			{"iam", "create-role", "--role-name", role, "--assume-role-policy-document", identity.ManagedClusterTrustPolicy(provider, account).JSON()},
			{"iam", "put-role-policy", "--role-name", role, "--policy-name", role, "--policy-document", identity.ManagedClusterAccessPolicy().JSON()},
			{"iam", "tag-role", "--role-name", role, "--tags",
				"Key=hub_cluster_account_id,Value=111111111111", "Key=hub_cluster_name,Value=hub-1",
				"Key=managed_cluster_account_id,Value=222222222222", "Key=managed_cluster_name,Value=managed-1"},
		}
		if len(lines) != len(want) {
			t.Fatalf("%d lines: %q", len(lines), lines)
		}
		for i, line := range lines {
			if strings.Contains(line, "\n") {
				t.Errorf("a command has more than a line: %q", line)
			}
			out, err := exec.Command("sh", "-c", `aws() { printf '%s\037' "$@"; }; `+line).Output()
			if err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if got := strings.Split(strings.TrimSuffix(string(out), "\037"), "\037"); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("a shell reads\n%q\ninstead of\n%q", got, want[i])
			}
		}
	}
}
