package search

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/framework"
)

// agentStops checks that searches reflect changes and deletions on a cluster that occurred while its agent was stopped,
// after the agent starts again.
func (f *fleet) agentStops(t *testing.T, m *marked) {
	agent := f.Members[0].Agent
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := f.ManagedClient.CoreV1().ConfigMaps(m.shop).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(m.uids, "ConfigMap shop/b")
	m.makeConfigMap(t, f, "c")
	if err := agent.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.reported(t, f, framework.Cluster1)
}

// losesSearchData checks that agents report everything again after the data directory of the engine is deleted. They
// detect the loss with their next report.
func (f *fleet) losesSearchData(t *testing.T, m *marked, data string) {
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(data); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Server.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the server serves searches without the deleted data", func(ctx context.Context) error {
		_, err := search(ctx, f.OCM, textQuery("kind:Pod"))
		return err
	})
	m.makeConfigMap(t, f, "d")
	m.reported(t, f, framework.Cluster1)
	if result := searched(t, f.OCM, fmt.Sprintf("cluster:%s kind:Namespace", framework.Cluster1)); result.Count < 4 || len(result.Warnings) > 1 {
		t.Errorf("Namespaces found = %d, warnings = %v, want at least 4 and at most one warning", result.Count, result.Warnings)
	}
}

func (m *marked) makeConfigMap(t *testing.T, f *fleet, name string) {
	t.Helper()
	made := framework.Must(f.ManagedClient.CoreV1().ConfigMaps(m.shop).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{markKey: m.value}},
	}, metav1.CreateOptions{}))(t)
	m.uids["ConfigMap shop/"+name] = string(made.UID)
}
