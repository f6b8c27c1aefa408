package liveness

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// Keys of the server's taints. It adds and removes only these, with the effect NoSelect.
const (
	// TaintUnreachable marks clusters whose agent does not renew its Lease.
	TaintUnreachable = "cluster.open-cluster-management.io/unreachable"
	// TaintUnavailable marks clusters whose API server does not respond to the agent.
	TaintUnavailable = "cluster.open-cluster-management.io/unavailable"
)

// withOwnTaints returns the desired taints of an accepted cluster. Other taints keep their order.
func withOwnTaints(cluster *clusterv1.ManagedCluster) []clusterv1.Taint {
	wanted := TaintUnreachable
	if available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable); available != nil {
		switch available.Status {
		case metav1.ConditionTrue:
			wanted = ""
		case metav1.ConditionFalse:
			wanted = TaintUnavailable
		}
	}
	present := false
	taints := slices.DeleteFunc(slices.Clone(cluster.Spec.Taints), func(taint clusterv1.Taint) bool {
		if taint.Effect != clusterv1.TaintEffectNoSelect || taint.Key != TaintUnreachable && taint.Key != TaintUnavailable {
			return false
		}
		present = present || taint.Key == wanted
		return taint.Key != wanted
	})
	if wanted != "" && !present {
		taints = append(taints, clusterv1.Taint{Key: wanted, Effect: clusterv1.TaintEffectNoSelect})
	}
	return taints
}
