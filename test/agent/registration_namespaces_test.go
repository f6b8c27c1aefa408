package agent_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/agent/managednamespaces"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// requires lists namespaces in the status of a cluster without conditions, as the controller of an
// upstream OCM hub does.
func (h *publicHub) requires(name string, namespaces ...string) {
	h.t.Helper()
	h.change(name, "status", func(cluster *clusterv1.ManagedCluster) {
		cluster.Status.ManagedNamespaces = nil
		for _, namespace := range namespaces {
			cluster.Status.ManagedNamespaces = append(cluster.Status.ManagedNamespaces, clusterv1.ClusterSetManagedNamespaceConfig{ClusterSet: "default", Name: namespace})
		}
	})
}

// labelled waits until the label of the hub on a namespace has a value.
func (j *joiner) labelled(namespace, want string) {
	j.t.Helper()
	label := managednamespaces.Label(agent.HubHash(j.hub.control.AdminConfig().Host))
	eventually(j.t, fmt.Sprintf("namespace %s has label %s=%s", namespace, label, want), func(ctx context.Context) error {
		live, err := j.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && live.Labels[label] != want {
			err = fmt.Errorf("labels = %v", live.Labels)
		}
		return err
	})
}

// reported waits until all required namespaces have a status and reason in condition
// NamespaceAvailable.
func (j *joiner) reported(want metav1.ConditionStatus, reason string) {
	j.t.Helper()
	eventually(j.t, "condition NamespaceAvailable of all required namespaces is "+string(want), func(context.Context) error {
		for _, namespace := range j.hub.cluster(j.name).Status.ManagedNamespaces {
			condition := meta.FindStatusCondition(namespace.Conditions, "NamespaceAvailable")
			if condition == nil || condition.Status != want || condition.Reason != reason {
				return fmt.Errorf("conditions of namespace %s = %v", namespace.Name, namespace.Conditions)
			}
		}
		return nil
	})
}

func testManagedNamespaces(t *testing.T, j *joiner) {
	j.join()
	a, b, present := j.name+"-a", j.name+"-b", j.name+"-present"
	if _, err := j.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: present, Labels: map[string]string{"team": "a"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.requires(j.name, a, present)
	j.labelled(a, "true")
	j.labelled(present, "true")
	j.reported(metav1.ConditionTrue, "NamespaceApplied")
	j.hub.requires(j.name, a, b)
	j.labelled(present, "false")
	j.labelled(b, "true")
	j.reported(metav1.ConditionTrue, "NamespaceApplied")
	if live, err := j.kube.CoreV1().Namespaces().Get(t.Context(), present, metav1.GetOptions{}); err != nil || live.Labels["team"] != "a" {
		t.Errorf("labels of the existing namespace %s = %v, %v, want team=a kept", present, live.Labels, err)
	}

	// The agent handles changes that happened while it was stopped.
	j.kill()
	j.hub.requires(j.name, b, "Not-A-Name")
	j.run()
	j.labelled(a, "false")
	eventually(t, "only the namespace with an invalid name is reported as not available", func(context.Context) error {
		listed := j.hub.cluster(j.name).Status.ManagedNamespaces
		if !meta.IsStatusConditionTrue(listed[0].Conditions, "NamespaceAvailable") || !meta.IsStatusConditionFalse(listed[1].Conditions, "NamespaceAvailable") {
			return fmt.Errorf("managedNamespaces = %v", listed)
		}
		return nil
	})

	// If a cluster is denied, its namespaces keep the label. If a cluster is deleted, the label changes
	// to false, but the namespaces stay.
	j.hub.deny(j.name)
	j.says("the hub has denied")
	j.labelled(b, "true")
	j.hub.accept(j.name)
	j.ready()
	j.hub.hold(j.name)
	j.hub.remove(j.name)
	j.labelled(b, "false")
	j.says("to register it again, delete the Secret")
	j.hub.forget(j.name)
}
