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

// longestMessage bounds the message of a condition, since errors of AWS can be long.
const longestMessage = 2048

// errOther is returned for an object that another object of the same name has replaced.
var errOther = errors.New("replaced by another object of the same name")

// updateRecord applies change to a registration and stores it if it differs. A missing registration is not an error,
// since its deletion sends an event.
func (c *Controller) updateRecord(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, change func(*registerv1alpha1.ManagedClusterRegistration)) error {
	if record == nil {
		return nil
	}
	wanted := record.DeepCopy()
	change(wanted)
	if equality.Semantic.DeepEqual(wanted, record) {
		return nil
	}
	_, err := c.Records.Update(ctx, record.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if current.UID != record.UID {
			return errOther
		}
		change(current)
		return nil
	})
	if err == nil || apierrors.IsNotFound(err) || errors.Is(err, errOther) {
		return nil
	}
	return fmt.Errorf("writing the registration of ManagedCluster %q: %w", record.Name, err)
}

// setRecord stores conditions of a registration. They describe the cluster, not a generation of the registration.
func (c *Controller) setRecord(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, conditions ...metav1.Condition) error {
	return c.updateRecord(ctx, record, func(r *registerv1alpha1.ManagedClusterRegistration) {
		for _, condition := range conditions {
			meta.SetStatusCondition(&r.Status.Conditions, condition)
		}
	})
}

// setAccepted stores the condition HubAcceptedManagedCluster if decided still holds for the stored ManagedCluster.
func (c *Controller) setAccepted(ctx context.Context, cluster *clusterv1.ManagedCluster, condition metav1.Condition, decided func(*clusterv1.ManagedCluster) bool) error {
	condition.Type = clusterv1.ManagedClusterConditionHubAccepted
	return c.setCondition(ctx, cluster, condition, decided)
}

// setCondition stores a condition if holds returns true for the stored ManagedCluster.
func (c *Controller) setCondition(ctx context.Context, cluster *clusterv1.ManagedCluster, condition metav1.Condition, holds func(*clusterv1.ManagedCluster) bool) error {
	return c.change(ctx, cluster, c.Clusters.ManagedClusters().UpdateStatus, func(update *clusterv1.ManagedCluster) bool {
		condition.ObservedGeneration = update.Generation
		return holds(update) && meta.SetStatusCondition(&update.Status.Conditions, condition)
	})
}

// change applies fix to a ManagedCluster and stores it with write if fix returns true. A ManagedCluster that no longer
// exists is not an error, since its deletion sends an event.
func (c *Controller) change(ctx context.Context, cluster *clusterv1.ManagedCluster,
	write func(context.Context, *clusterv1.ManagedCluster, metav1.UpdateOptions) (*clusterv1.ManagedCluster, error), fix func(*clusterv1.ManagedCluster) bool) error {
	current := cluster
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		update := current.DeepCopy()
		if !fix(update) {
			return nil
		}
		_, err := write(ctx, update, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		latest, readErr := c.current(ctx, cluster.Name)
		if readErr != nil || latest == nil || latest.UID != cluster.UID {
			return readErr
		}
		current = latest
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing ManagedCluster %q: %w", cluster.Name, err)
	}
	return nil
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	if runes := []rune(message); len(runes) > longestMessage {
		const head = longestMessage / 3 // the end often contains the reason
		message = string(runes[:head]) + "…" + string(runes[len(runes)-(longestMessage-head-1):])
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// granted reports whether a registration records that its cluster has access.
func granted(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return record != nil && meta.IsStatusConditionTrue(record.Status.Conditions, registerv1alpha1.RegistrationAccessGranted)
}

// ready reports whether a registration records that the identity is provisioned.
func ready(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return meta.IsStatusConditionTrue(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
}

// identityLeft describes the identity that a driver still has to revoke, or returns an empty
// string.
func (c *Controller) identityLeft(record *registerv1alpha1.ManagedClusterRegistration) string {
	if record == nil {
		return ""
	}
	current := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
	switch {
	case provisioned(record):
		left := "the identity of the driver " + string(record.Spec.Driver)
		if !c.enabled(record.Spec.Driver) {
			return left + " (this driver is not enabled)"
		}
		if current != nil && current.Reason == registerv1alpha1.ReasonRevocationFailed {
			left += " (" + current.Message + ")"
		}
		return left
	case current != nil && c.enabled(record.Spec.Driver) && current.Reason != registerv1alpha1.ReasonRevoked && current.Reason != registerv1alpha1.ReasonNoClaim:
		return "the identity"
	}
	return ""
}

// provisioned reports whether AWS may contain resources of a registration.
func provisioned(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return record.Status.IRSA != nil && record.Status.IRSA.Provisioned
}

func withdrawn(record *registerv1alpha1.ManagedClusterRegistration) bool {
	return record.Spec.IRSA != nil && record.Spec.IRSA.Withdrawn
}

// accepted reports whether a cluster is accepted and not deleted.
func accepted(cluster *clusterv1.ManagedCluster) bool {
	return cluster != nil && cluster.DeletionTimestamp == nil && cluster.Spec.HubAcceptsClient
}

func denied(cluster *clusterv1.ManagedCluster) bool { return !cluster.Spec.HubAcceptsClient }

// DeniedMessage returns the message of a denial, with the decider and the reason.
func DeniedMessage(decision *clusterv1.Acceptance) string {
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
