package registration

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// doctor runs clusteradm doctor aws as an administrator of an account, and returns its output. It
// fails the test if the command writes to AWS.
func doctor(t *testing.T, aws *fakeaws.Server, account, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	const user = "doctor"
	path := framework.Must(localhub.Binary(localhub.BinDir(), "clusteradm"))(t)
	key := framework.Must(aws.AddUser(account, user, fakeaws.AdminPolicy))(t)
	command := exec.CommandContext(t.Context(), path, append([]string{"doctor", "aws", "--hub-cluster-arn", localhub.HubARN}, args...)...)
	command.Env = slices.Concat(os.Environ(), aws.Env(key), []string{"KUBECONFIG=" + kubeconfig, "KUBERC=off"})
	output, err := command.CombinedOutput()
	reads := 0
	for _, call := range aws.Calls() {
		if !strings.HasSuffix(call.Caller, ":user/"+user) {
			continue
		}
		reads++
		if !slices.ContainsFunc([]string{"Get", "List", "Describe", "Simulate"}, func(prefix string) bool { return strings.HasPrefix(call.Operation, prefix) }) {
			t.Errorf("clusteradm doctor aws calls %s %s, want only reads", call.Service, call.Operation)
		}
	}
	if reads == 0 {
		t.Errorf("clusteradm doctor aws makes no calls to AWS, want reads: %s", output)
	}
	return string(output), err
}
