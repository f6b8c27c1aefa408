package clusteradm_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func createCluster(t *testing.T, hub *localhub.Cluster, name string, annotations map[string]string) {
	t.Helper()
	if _, err := ocmOf(t, hub).ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func isAccepted(t *testing.T, hub *localhub.Cluster, name string) bool {
	t.Helper()
	cluster, err := ocmOf(t, hub).ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Spec.HubAcceptsClient
}

// setAccepted accepts or denies a cluster, as the clusteradm of OCM does.
func setAccepted(t *testing.T, hub *localhub.Cluster, name string, accepted bool) {
	t.Helper()
	clusters := ocmOf(t, hub).ClusterV1().ManagedClusters()
	cluster, err := clusters.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Spec.HubAcceptsClient = accepted
	if _, err := clusters.Update(t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAcceptTimeoutNamesTheReason(t *testing.T) {
	hub, _, _, _ := publicHub(t)
	run(t, hub, "accept", "--clusters=never", "--wait", "--timeout=1s").refused(t, "never: timed out: the cluster has not requested to join")
}
