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

// requires lists namespaces in the status of a cluster as the controller of a public hub does,
// which drops the conditions that were reported.
func (h *publicHub) requires(name string, namespaces ...string) {
	h.t.Helper()
	h.change(name, "status", func(cluster *clusterv1.ManagedCluster) {
		cluster.Status.ManagedNamespaces = nil
		for _, namespace := range namespaces {
			cluster.Status.ManagedNamespaces = append(cluster.Status.ManagedNamespaces, clusterv1.ClusterSetManagedNamespaceConfig{ClusterSet: "default", Name: namespace})
		}
	})
}

// labelled waits until a namespace has a value of the label of the hub.
func (j *joiner) labelled(namespace, want string) {
	j.t.Helper()
	label := managednamespaces.Label(agent.HubHash(j.hub.control.AdminConfig().Host))
	eventually(j.t, fmt.Sprintf("%s has the label with value %q", namespace, want), func(ctx context.Context) error {
		live, err := j.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && live.Labels[label] != want {
			err = fmt.Errorf("its labels are %v", live.Labels)
		}
		return err
	})
}

// reported waits until the hub knows that all required namespaces are available, or are not.
func (j *joiner) reported(want metav1.ConditionStatus, reason string) {
	j.t.Helper()
	eventually(j.t, "the namespaces are reported as available: "+string(want), func(context.Context) error {
		for _, namespace := range j.hub.cluster(j.name).Status.ManagedNamespaces {
			condition := meta.FindStatusCondition(namespace.Conditions, "NamespaceAvailable")
			if condition == nil || condition.Status != want || condition.Reason != reason {
				return fmt.Errorf("%s has %v", namespace.Name, namespace.Conditions)
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
		t.Errorf("the labels of a namespace that was there = %v (%v), want team=a kept", live.Labels, err)
	}

	// What changed while the agent was away is put right.
	j.kill()
	j.hub.requires(j.name, b, "Not-A-Name")
	j.run()
	j.labelled(a, "false")
	eventually(t, "the name that the cluster refuses is reported", func(context.Context) error {
		listed := j.hub.cluster(j.name).Status.ManagedNamespaces
		if !meta.IsStatusConditionTrue(listed[0].Conditions, "NamespaceAvailable") || !meta.IsStatusConditionFalse(listed[1].Conditions, "NamespaceAvailable") {
			return fmt.Errorf("the list is %v", listed)
		}
		return nil
	})

	// A denied cluster keeps its namespaces as they are. One that is deleted keeps them too, but is
	// no longer required to.
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
