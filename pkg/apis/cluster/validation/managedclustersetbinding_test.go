package validation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

func binding(name, set string) *cluster.ManagedClusterSetBinding {
	return &cluster.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
	}
}

func TestBinding(t *testing.T) {
	long := strings.Repeat("a", 64)
	noNamespace := binding("prod", "prod")
	noNamespace.Namespace = ""
	tests := map[string]struct {
		binding *cluster.ManagedClusterSetBinding
		want    []string
	}{
		"valid":            {binding("prod", "prod"), nil},
		"no set":           {binding("prod", ""), []string{"spec.clusterSet: Required value"}},
		"another set":      {binding("prod", "test"), []string{"metadata.name: Invalid value"}},
		"invalid set name": {binding(long, long), []string{"metadata.name: Invalid value"}},
		"no namespace":     {noNamespace, []string{"metadata.namespace: Required value"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ManagedClusterSetBinding.New(test.binding), test.want...)
		})
	}
}

func TestBindingUpdate(t *testing.T) {
	old := binding("prod", "test")
	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"region": "north"}
	fieldtest.Check(t, ManagedClusterSetBinding.Update(labelled, old))
	fieldtest.Check(t, ManagedClusterSetBinding.Update(binding("prod", "prod"), old), "spec.clusterSet: Invalid value")
	fieldtest.Check(t, ManagedClusterSetBinding.Update(binding("prod", ""), old), "spec.clusterSet: Invalid value")
}

func TestBindingStatus(t *testing.T) {
	old := binding("prod", "prod")
	bad := old.DeepCopy()
	bad.Status.Conditions = []metav1.Condition{{Type: clusterv1beta2.ConditionBound, Status: metav1.ConditionTrue, Reason: "ClusterSetBound"}}
	fieldtest.Check(t, ManagedClusterSetBinding.UpdateStatus(bad, old), "status.conditions[0].lastTransitionTime: Required value")
	fieldtest.Check(t, ManagedClusterSetBinding.UpdateStatus(bad, bad.DeepCopy()))
}
