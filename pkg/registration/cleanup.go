package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// cleanUpPeriod is the interval between checks for the end of a namespace. A deletion sends an event; an obstacle to it
// may not.
const cleanUpPeriod = 3 * time.Second

// abandoned cleans up after a cluster whose ManagedCluster was removed despite its finalizer, or replaced by another
// object of its name.
func (c *Controller) abandoned(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	latest, err := c.current(ctx, record.Name)
	if err != nil {
		return 0, err
	}
	if latest != nil && latest.UID == record.Spec.ManagedClusterUID {
		return waitPeriod, nil // the cache lags
	}
	return c.cleanUp(ctx, record.Name, nil, record)
}

// cleanUp revokes the access of a deleted cluster and removes its objects from the hub.
// It deletes the registration after all other objects, so that an interrupted cleanup
// continues. Last, it removes the finalizer of the ManagedCluster if the object exists.
// The deletion of the namespace does not wait for the driver.
func (c *Controller) cleanUp(ctx context.Context, name string, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	if record == nil && !slices.Contains(cluster.Finalizers, clusterv1.ManagedClusterFinalizer) {
		return 0, nil
	}
	seen := record
	_, record, err := Stored(ctx, c.Clusters, c.Records, name)
	if err != nil {
		return 0, err
	}
	if seen != nil && record != nil && seen.UID != record.UID {
		return waitPeriod, nil // the registration belongs to the next cluster of this name
	}
	if cluster == nil && record == nil {
		return 0, nil
	}
	if cluster != nil && record != nil && record.Spec.ManagedClusterUID != cluster.UID {
		return waitPeriod, nil // the cache still contains a replaced object
	}
	if cluster != nil && Draining(cluster) {
		if over, again, err := c.drain(ctx, cluster); err != nil || !over {
			return again, err
		}
	}
	left, err := c.remove(ctx, name, cluster, record)
	if err != nil {
		countFailure(record, operationCleanUp)
		return 0, errors.Join(err, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse, registerv1alpha1.ReasonRevocationFailed, err.Error())))
	}
	if len(left) > 0 {
		return cleanUpPeriod, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse, registerv1alpha1.ReasonCleaningUp, "Not removed yet: "+strings.Join(left, ", ")+"."))
	}
	if record != nil {
		err := erase(ctx, c.Records, record)
		if errors.Is(err, errProvisioned) {
			return waitPeriod, nil // an acceptance just before the deletion changed it
		}
		if err != nil {
			return 0, err
		}
	}
	if cluster != nil {
		if err := c.removeFinalizer(ctx, cluster); err != nil {
			return 0, err
		}
	}
	klog.FromContext(ctx).Info("Removed all objects of a cluster", "cluster", name)
	return 0, nil
}

// remove removes the hub's objects of a cluster, and names those that remain.
func (c *Controller) remove(ctx context.Context, name string, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (left []string, err error) {
	if err := c.Access.Revoke(ctx, name); err != nil {
		return nil, err
	}
	if record != nil && meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationAccessGranted) != nil {
		if granted(record) {
			denials.WithLabelValues(driverOf(record), registerv1alpha1.ReasonDeleted).Inc()
		}
		if err := c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonDeleted, "The ManagedCluster is deleted.")); err != nil {
			return nil, err
		}
	}
	if identity := c.identityLeft(record); identity != "" {
		left = append(left, identity)
	}
	// The server creates no namespace for a cluster that was never accepted. A namespace of the same name does
	// not belong to the cluster.
	if everGranted(cluster, record) && ReservedName(name) == "" {
		if err := c.releaseWorks(ctx, name); err != nil {
			return nil, err
		}
		gone, err := c.removeNamespace(ctx, name)
		if err != nil {
			return nil, err
		}
		if !gone {
			left = append(left, "the namespace")
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	if err := c.removeRequests(ctx, name); err != nil {
		return nil, err
	}
	done, err := c.Access.Remove(ctx, name)
	if err == nil && !done {
		left = append(left, "the roles and bindings")
	}
	return left, err
}

// releaseWorks removes the agent's finalizer from the ManifestWorks of a cluster whose agent has lost access.
func (c *Controller) releaseWorks(ctx context.Context, namespace string) error {
	works, err := c.Works.ManifestWorks(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the ManifestWorks of ManagedCluster %q: %w", namespace, err)
	}
	var errs []error
	for i := range works.Items {
		work := &works.Items[i]
		if !slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
			continue
		}
		work.Finalizers = slices.DeleteFunc(work.Finalizers, func(f string) bool { return f == workv1.ManifestWorkFinalizer })
		_, err := c.Works.ManifestWorks(namespace).Update(ctx, work, metav1.UpdateOptions{})
		if err != nil && !reconcile.Outdated(err) { // the next pass retries a conflict
			errs = append(errs, fmt.Errorf("removing the finalizer of ManifestWork %s/%s: %w", namespace, work.Name, err))
		}
	}
	return errors.Join(errs...)
}

// removeRequests deletes the CertificateSigningRequests of a cluster. Without the cluster, no controller
// approves or denies them.
func (c *Controller) removeRequests(ctx context.Context, cluster string) error {
	err := c.Hub.CertificatesV1().CertificateSigningRequests().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
		LabelSelector: labels.Set{clusterv1.ClusterNameLabel: cluster}.String(),
	})
	if err != nil {
		return fmt.Errorf("deleting the CertificateSigningRequests of ManagedCluster %q: %w", cluster, err)
	}
	return nil
}

// removeNamespace deletes the namespace of a cluster, and reports whether it no longer exists. A namespace without the
// label of the cluster stays. A namespace that is older than the cluster loses the label and stays.
func (c *Controller) removeNamespace(ctx context.Context, cluster string) (gone bool, err error) {
	namespace, err := c.Hub.CoreV1().Namespaces().Get(ctx, cluster, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading Namespace %s: %w", cluster, err)
	}
	if namespace.Labels[clusterv1.ClusterNameLabel] != cluster {
		return true, nil
	}
	if namespace.DeletionTimestamp != nil {
		return false, nil
	}
	if namespace.Annotations[madeForAnnotation] != cluster {
		delete(namespace.Labels, clusterv1.ClusterNameLabel)
		_, err = c.Hub.CoreV1().Namespaces().Update(ctx, namespace, metav1.UpdateOptions{})
		if err != nil && !reconcile.Outdated(err) {
			return false, fmt.Errorf("removing the label of Namespace %s: %w", cluster, err)
		}
		return err == nil, nil
	}
	err = c.Hub.CoreV1().Namespaces().Delete(ctx, cluster, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &namespace.UID}})
	if err != nil && !reconcile.Outdated(err) {
		return false, fmt.Errorf("deleting Namespace %s: %w", cluster, err)
	}
	return false, nil
}

func (c *Controller) removeFinalizer(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	return c.change(ctx, cluster, c.Clusters.ManagedClusters().Update, func(update *clusterv1.ManagedCluster) bool {
		had := len(update.Finalizers)
		update.Finalizers = slices.DeleteFunc(update.Finalizers, func(f string) bool { return f == clusterv1.ManagedClusterFinalizer })
		return len(update.Finalizers) != had
	})
}
