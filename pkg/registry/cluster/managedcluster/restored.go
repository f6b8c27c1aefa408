package managedcluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// reasonWithdrawn is the reason of the denial of a cluster that the snapshot contains as accepted.
const reasonWithdrawn = "the cluster had no access to the hub when a snapshot of its data was restored, so it was probably denied or deleted after the snapshot"

// StampRestored marks a stored cluster of restored data. If the hub has withdrawn its access since the
// snapshot, the cluster is denied. It reports whether the cluster has changed.
func StampRestored(ctx context.Context, c *cluster.ManagedCluster, restore string, withdrawn bool) bool {
	if c.Annotations[clusterv1.RestoredAnnotation] == restore {
		return false
	}
	setRestored(c, restore)
	if c.Spec.HubAcceptsClient && withdrawn {
		c.Spec.HubAcceptsClient = false
		c.Generation++
		ctx = context.WithValue(ctx, decisionKey{}, &clusterv1.Acceptance{DecidedBy: user.APIServerUser, Reason: reasonWithdrawn})
		decide(ctx, c, c.Generation)
	}
	return true
}

// setRestored sets the annotation that only the server writes.
func setRestored(c *cluster.ManagedCluster, restore string) {
	if restore == "" {
		delete(c.Annotations, clusterv1.RestoredAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.RestoredAnnotation, restore)
}
