package managedcluster

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/provenance"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// upstreamCleanupFinalizer is the finalizer of the controller of OCM that removes the add-ons and the ManifestWorks
// of a deleted cluster.
const upstreamCleanupFinalizer = "cluster.open-cluster-management.io/resource-cleanup"

// decisionKey is the key of the decision that a context carries to the strategy.
type decisionKey struct{}

// decisionOf returns the explicit decision of a write, or nil for a write that only changes the spec.
func decisionOf(ctx context.Context) *clusterv1.Acceptance {
	decision, _ := ctx.Value(decisionKey{}).(*clusterv1.Acceptance)
	return decision
}

// stampCreation records the creator of a cluster and, if the cluster is accepted, the decision.
func stampCreation(ctx context.Context, c *cluster.ManagedCluster) {
	setRequestedBy(c, definition.Caller(ctx))
	addFinalizer(c)
	if c.Spec.HubAcceptsClient {
		decide(ctx, c, c.Generation)
	}
}

// stampImport records the caller of an import as the user who accepted or denied the cluster, and leaves to this
// server the cleanup after a deletion. It keeps a decision that was imported before.
func stampImport(ctx context.Context, c *cluster.ManagedCluster) {
	addFinalizer(c)
	// Where the cluster comes from, everyone with permission to update it could write who registered it.
	setRequestedBy(c, "")
	c.Finalizers = slices.DeleteFunc(c.Finalizers, func(finalizer string) bool { return finalizer == upstreamCleanupFinalizer })
	said := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted).DeepCopy()
	if !c.Spec.HubAcceptsClient && said == nil {
		return
	}
	decide(ctx, c, c.Generation)
	c.Status.Acceptance.EverAccepted = true
	if !c.Spec.HubAcceptsClient && said.Status == metav1.ConditionFalse {
		// The import does not change what the hub says about a denied cluster.
		meta.SetStatusCondition(&c.Status.Conditions, *said)
	}
}

// stampUpdate records a decision in the same write that makes it.
func stampUpdate(ctx context.Context, c, old *cluster.ManagedCluster) {
	generation := old.Generation
	changed := c.Spec.HubAcceptsClient != old.Spec.HubAcceptsClient
	if changed {
		generation++
	}
	if changed || decisionOf(ctx) != nil {
		decide(ctx, c, generation)
	}
	if old.DeletionTimestamp == nil {
		// A client that replaces the object with a manifest does not intend to remove the finalizer.
		addFinalizer(c)
	}
}

// decide records the decision about a cluster and the user who made it. The spec of the given
// generation contains the decision.
func decide(ctx context.Context, c *cluster.ManagedCluster, generation int64) {
	var acceptance clusterv1.Acceptance
	if decision := decisionOf(ctx); decision != nil {
		acceptance = *decision
	} else {
		acceptance.Left = !c.Spec.HubAcceptsClient && registration.ByItself(ctx, c.Name)
	}
	acceptance.Accepted = c.Spec.HubAcceptsClient
	acceptance.EverAccepted = acceptance.Accepted || decidedFor(c)
	if acceptance.DecidedBy == "" {
		acceptance.DecidedBy = definition.Caller(ctx)
	}
	if acceptance.DecidedAt.IsZero() {
		acceptance.DecidedAt = metav1.Now()
	}
	acceptance.DecidedAt = acceptance.DecidedAt.Rfc3339Copy()
	c.Status.Acceptance = &acceptance
	if acceptance.Accepted {
		return
	}
	// The stored object may share the slice.
	c.Status.Conditions = slices.Clone(c.Status.Conditions)
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: clusterv1.ReasonHubClusterAdminDenied, Message: registration.DeniedMessage(&acceptance), ObservedGeneration: generation,
	})
}

// decidedFor reports whether a decision about a cluster has ever accepted it.
func decidedFor(c *cluster.ManagedCluster) bool {
	before := c.Status.Acceptance
	return before != nil && (before.Accepted || before.EverAccepted)
}

// addFinalizer adds the finalizer that keeps a deleted ManagedCluster until it is cleaned up. As on
// hubs that run OCM, a cluster that was never accepted has it too.
func addFinalizer(c *cluster.ManagedCluster) {
	if !slices.Contains(c.Finalizers, clusterv1.ManagedClusterFinalizer) {
		c.Finalizers = append(slices.Clone(c.Finalizers), clusterv1.ManagedClusterFinalizer)
	}
}

func setRequestedBy(c *cluster.ManagedCluster, name string) {
	if name == "" {
		delete(c.Annotations, registration.RequestedByAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, registration.RequestedByAnnotation, name)
}

// keepOwnConditions keeps the stored conditions that only the server may write.
func keepOwnConditions(ctx context.Context, c, old *cluster.ManagedCluster) {
	if definition.ByServer(ctx) {
		return
	}
	for _, kind := range provenance.ServerConditions(clusterv1.SchemeGroupVersion.WithKind("ManagedCluster").GroupKind()) {
		keepCondition(c, old, kind)
	}
}

func keepCondition(c, old *cluster.ManagedCluster, kind string) {
	stored := meta.FindStatusCondition(old.Status.Conditions, kind)
	i := slices.IndexFunc(c.Status.Conditions, func(condition metav1.Condition) bool { return condition.Type == kind })
	switch {
	case stored == nil && i >= 0:
		c.Status.Conditions = slices.DeleteFunc(slices.Clone(c.Status.Conditions), func(condition metav1.Condition) bool { return condition.Type == kind })
	case stored != nil && i >= 0:
		c.Status.Conditions = slices.Clone(c.Status.Conditions)
		c.Status.Conditions[i] = *stored
	case stored != nil:
		c.Status.Conditions = append(slices.Clone(c.Status.Conditions), *stored)
	}
}
