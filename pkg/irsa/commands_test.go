package irsa

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// TestCommands runs each line in a shell in which a function replaces the aws command.
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
			t.Fatalf("Commands() = %d lines %q, want %d", len(lines), lines, len(want))
		}
		for i, line := range lines {
			if strings.Contains(line, "\n") {
				t.Errorf("command = %q, want a single line", line)
			}
			out, err := exec.Command("sh", "-c", `aws() { printf '%s\037' "$@"; }; `+line).Output()
			if err != nil {
				t.Fatalf("running %s: %v", line, err)
			}
			if got := strings.Split(strings.TrimSuffix(string(out), "\037"), "\037"); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("arguments of command %d in a shell =\n%q\nwant\n%q", i, got, want[i])
			}
		}
	}
}
