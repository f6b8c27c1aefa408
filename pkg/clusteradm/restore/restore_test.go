package restore

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// TestRestoreListIsPrintable checks that the text of an agent is one line for each object, and cannot pass for a line about
// another cluster.
func TestRestoreListIsPrintable(t *testing.T) {
	reported := func(name, message string) clusterv1.ManagedCluster {
		cluster := clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionObjectsRetained, Status: metav1.ConditionTrue, Message: message}}
		return cluster
	}
	var out bytes.Buffer
	err := (&restoring{Environment: cli.Environment{IOStreams: genericiooptions.IOStreams{Out: &out}}}).print([]clusterv1.ManagedCluster{
		reported("good", "Kept:\nConfigMap default/a"), reported("empty", ""), reported("hostile", "Kept:\nConfigMap \x1b[2J\rvictim\tNone\tx\u202e"),
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err != nil || len(lines) != 4 || !strings.HasSuffix(lines[1], "ConfigMap default/a") || !strings.HasSuffix(lines[3], `ConfigMap \x1b[2J\rvictim\tNone\tx\u202e`) {
		t.Errorf("print() = %q, %v, want a header and one printable line for each cluster", lines, err)
	}
}
