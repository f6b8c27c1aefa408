package managedcluster

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// decisionKey is the key of the decision that a context carries to the strategy.
type decisionKey struct{}

// decisionOf is what a write decides in so many words; nil for writes that only
// change the spec.
func decisionOf(ctx context.Context) *cluster.Acceptance {
	decision, _ := ctx.Value(decisionKey{}).(*cluster.Acceptance)
	return decision
}

// stampCreation says who created a cluster, and who accepted it if that is one.
func stampCreation(ctx context.Context, c *cluster.ManagedCluster) {
	setRequestedBy(c, callerName(ctx))
	hold(c)
	if c.Spec.HubAcceptsClient {
		decide(ctx, c, c.Generation)
	}
}

// stampUpdate writes a decision out, in the same write that makes it.
func stampUpdate(ctx context.Context, c, old *cluster.ManagedCluster) {
	setRequestedBy(c, old.Annotations[registration.RequestedByAnnotation])
	generation := old.Generation
	changed := c.Spec.HubAcceptsClient != old.Spec.HubAcceptsClient
	if changed {
		generation++
	}
	if changed || decisionOf(ctx) != nil {
		decide(ctx, c, generation)
	}
	if old.DeletionTimestamp == nil {
		// A client that replaces the object with the content of a file does not intend to remove it.
		hold(c)
	}
}

// decide writes who has decided what the spec says, as of a generation.
func decide(ctx context.Context, c *cluster.ManagedCluster, generation int64) {
	var acceptance cluster.Acceptance
	if decision := decisionOf(ctx); decision != nil {
		acceptance = *decision
	} else {
		acceptance.Left = !c.Spec.HubAcceptsClient && registration.ByItself(ctx, c.Name)
	}
	acceptance.Accepted = c.Spec.HubAcceptsClient
	before := c.Status.Acceptance
	acceptance.EverAccepted = acceptance.Accepted || before != nil && (before.Accepted || before.EverAccepted)
	if acceptance.DecidedBy == "" {
		acceptance.DecidedBy = callerName(ctx)
	}
	if acceptance.DecidedAt.IsZero() {
		acceptance.DecidedAt = metav1.Now()
	}
	acceptance.DecidedAt = acceptance.DecidedAt.Rfc3339Copy()
	c.Status.Acceptance = &acceptance
	if acceptance.Accepted {
		return
	}
	// The slice may still be that of the stored object.
	c.Status.Conditions = slices.Clone(c.Status.Conditions)
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: clusterv1.ReasonHubClusterAdminDenied, Message: denial(&acceptance), ObservedGeneration: generation,
	})
}

func denial(a *cluster.Acceptance) string {
	message := fmt.Sprintf("Denied by %s.", a.DecidedBy)
	if a.Left {
		message = "The cluster has left the hub."
	}
	if a.Reason != "" {
		message += " Reason: " + a.Reason
	}
	return message
}

// hold keeps a deleted ManagedCluster until nothing of it is left, also one that never was accepted,
// as on hubs that run OCM.
func hold(c *cluster.ManagedCluster) {
	if !slices.Contains(c.Finalizers, clusterv1.ManagedClusterFinalizer) {
		c.Finalizers = append(slices.Clone(c.Finalizers), clusterv1.ManagedClusterFinalizer)
	}
}

func setRequestedBy(c *cluster.ManagedCluster, name string) {
	if name == "" {
		delete(c.Annotations, registration.RequestedByAnnotation)
		return
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[registration.RequestedByAnnotation] = name
}

// keepOwnConditions keeps the conditions that only the server may write as they are stored:
// whether the hub accepts the cluster, how far its deletion is, and whether all its managed
// namespaces are listed.
func keepOwnConditions(ctx context.Context, c, old *cluster.ManagedCluster) {
	if callerName(ctx) == user.APIServerUser {
		return
	}
	keepCondition(c, old, clusterv1.ManagedClusterConditionHubAccepted)
	keepCondition(c, old, clusterv1.ManagedClusterConditionDeleting)
	keepCondition(c, old, clusterv1.ManagedClusterConditionNamespacesListed)
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

func callerName(ctx context.Context) string {
	if caller, known := request.UserFrom(ctx); known {
		return caller.GetName()
	}
	return ""
}
