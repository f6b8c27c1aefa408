package serviceaccount

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// agent returns clients with the permissions of the agent of cluster1 on the hub.
func (f *fleet) agent(t *testing.T) (*kubernetes.Clientset, *versioned.Clientset) {
	t.Helper()
	return f.AgentOf(t, framework.Cluster1)
}

func kubeClient(cluster *localhub.Cluster) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(cluster.AdminConfig())
}
