package registration

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// longestMessage is that of a condition; what AWS answers can be long.
const longestMessage = 2048

// errOther is for an object that has the name, and is another one by now.
var errOther = errors.New("it was replaced by another one of its name")

// updateRecord stores what change makes of a registration, unless that is what it was
// when it was read. A registration that is gone brings an event, and is no error.
func (c *Controller) updateRecord(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, change func(*registerv1alpha1.ManagedClusterRegistration)) error {
	if record == nil {
		return nil
	}
	wanted := record.DeepCopy()
	change(wanted)
	if equality.Semantic.DeepEqual(wanted, record) {
		return nil
	}
	_, err := c.records.Update(ctx, record.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if current.UID != record.UID {
			return errOther
		}
		change(current)
		return nil
	})
	if err == nil || apierrors.IsNotFound(err) || errors.Is(err, errOther) {
		return nil
	}
	return fmt.Errorf("writing the registration of cluster %s: %w", record.Name, err)
}

// setRecord stores conditions of a registration. They are about the cluster, and not
// about a generation of the registration, which nobody specifies.
func (c *Controller) setRecord(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, conditions ...metav1.Condition) error {
	return c.updateRecord(ctx, record, func(r *registerv1alpha1.ManagedClusterRegistration) {
		for _, condition := range conditions {
			meta.SetStatusCondition(&r.Status.Conditions, condition)
		}
	})
}

// setAccepted stores the condition HubAcceptedManagedCluster, if decided still says
// that it is so of the ManagedCluster that it is stored in.
func (c *Controller) setAccepted(ctx context.Context, cluster *clusterv1.ManagedCluster, condition metav1.Condition, decided func(*clusterv1.ManagedCluster) bool) error {
	condition.Type = clusterv1.ManagedClusterConditionHubAccepted
	return c.setCondition(ctx, cluster, condition, decided)
}

// setCondition stores a condition, if holds still says so of the ManagedCluster that it is stored in.
func (c *Controller) setCondition(ctx context.Context, cluster *clusterv1.ManagedCluster, condition metav1.Condition, holds func(*clusterv1.ManagedCluster) bool) error {
	current := cluster
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if current.UID != cluster.UID || !holds(current) {
			return nil
		}
		update := current.DeepCopy()
		condition.ObservedGeneration = update.Generation
		if !meta.SetStatusCondition(&update.Status.Conditions, condition) {
			return nil
		}
		_, err := c.clusters.ManagedClusters().UpdateStatus(ctx, update, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			latest, readErr := c.clusters.ManagedClusters().Get(ctx, cluster.Name, metav1.GetOptions{})
			if readErr != nil {
				return readErr
			}
			current = latest
		}
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of ManagedCluster %s: %w", cluster.Name, err)
	}
	return nil
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	if runes := []rune(message); len(runes) > longestMessage {
		message = string(runes[:longestMessage-1]) + "…"
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// granted tells whether a registration says that its cluster has access.
func granted(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return record != nil && meta.IsStatusConditionTrue(record.Status.Conditions, registerv1alpha1.RegistrationAccessGranted)
}

// ready tells whether a registration says that the identity of its cluster is there.
func ready(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return meta.IsStatusConditionTrue(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
}

// identityLeft tells what a driver still has to revoke; empty if it is nothing.
func (c *Controller) identityLeft(record *registerv1alpha1.ManagedClusterRegistration) string {
	if record == nil {
		return ""
	}
	current := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
	switch {
	case provisioned(record):
		left := "what the driver " + string(record.Spec.Driver) + " has made for it"
		if !c.enabled(record.Spec.Driver) {
			return left + " (the hub runs without that driver)"
		}
		if current != nil && current.Reason == registerv1alpha1.ReasonRevocationFailed {
			left += " (" + current.Message + ")"
		}
		return left
	case current != nil && c.enabled(record.Spec.Driver) && current.Reason != registerv1alpha1.ReasonRevoked && current.Reason != registerv1alpha1.ReasonNoClaim:
		return "its identity"
	}
	return ""
}

// provisioned tells whether AWS may have something for a registration.
func provisioned(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return record.Status.IRSA != nil && record.Status.IRSA.Provisioned
}

func withdrawn(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return record.Spec.IRSA != nil && record.Spec.IRSA.Withdrawn
}

// accepted tells whether a cluster is to have access.
func accepted(cluster *clusterv1.ManagedCluster) bool {
	return cluster != nil && cluster.DeletionTimestamp == nil && cluster.Spec.HubAcceptsClient
}

func denied(cluster *clusterv1.ManagedCluster) bool { return !cluster.Spec.HubAcceptsClient }

// deniedMessage says who denied a cluster, and why.
func deniedMessage(cluster *clusterv1.ManagedCluster) string {
	decision := cluster.Status.Acceptance
	switch {
	case decision == nil || decision.Accepted:
		return "The hub does not accept the cluster."
	case decision.Left:
		return "The cluster has left the hub."
	}
	message := "The hub does not accept the cluster."
	if decision.DecidedBy != "" {
		message = "Denied by " + decision.DecidedBy + "."
	}
	if decision.Reason != "" {
		message += " Reason: " + decision.Reason
	}
	return message
}
