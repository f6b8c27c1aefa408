package registration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// driverTimeout bounds a driver's call. It leaves time to store the result.
const driverTimeout = 20 * time.Second

// identities is the loop in which one driver provisions and revokes the identities of its clusters.
type identities struct {
	controller *Controller
	driver     Driver
	loop       reconcile.Loop

	// verified maps each cluster to the time.Time of its next verification. Clusters without an entry are due.
	verified sync.Map
}

func newIdentities(controller *Controller, driver Driver, clusters, records cache.SharedIndexInformer) *identities {
	i := &identities{controller: controller, driver: driver}
	i.loop = reconcile.Loop{
		Name:      "registration-identity-" + string(driver.Name()),
		Reconcile: i.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: clusters, Keys: reconcile.Own, Ignore: reconcile.Same(SameDecision)},
			{Informer: records, Keys: reconcile.Own, Ignore: reconcile.Same(sameIdentity)},
		},
	}
	return i
}

// run runs the loop until ctx ends. A new leader verifies all clusters.
func (i *identities) run(ctx context.Context) {
	i.verified.Clear()
	i.loop.Run(ctx)
}

// sameIdentity reports whether a change of a registration does not concern its identity. It ignores the result of the
// last attempt, so that a failure does not cause an immediate retry.
func sameIdentity(before, after *registerv1alpha1.ManagedClusterRegistration) bool {
	return before.UID == after.UID && before.Spec.Driver == after.Spec.Driver && before.Spec.ManagedClusterUID == after.Spec.ManagedClusterUID &&
		equality.Semantic.DeepEqual(before.Spec.IRSA, after.Spec.IRSA) && equality.Semantic.DeepEqual(before.Status.IRSA, after.Status.IRSA) &&
		ready(before) == ready(after)
}

func (i *identities) due(cluster string) bool {
	next, _ := i.verified.Load(cluster)
	at, planned := next.(time.Time)
	return !planned || !i.controller.Clock.Now().Before(at)
}

func (i *identities) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	cluster, record, err := i.controller.read(key.Name)
	if err != nil {
		return 0, err
	}
	if record == nil || record.Spec.Driver != i.driver.Name() {
		i.verified.Delete(key.Name)
		return 0, nil
	}
	if entitled(cluster, record) {
		return i.provision(ctx, cluster, record)
	}
	i.verified.Delete(key.Name)
	if keeps(cluster, record) {
		return 0, nil // the end of the drain sends an event
	}
	return i.revoke(ctx, record)
}

// entitled reports whether a cluster should have the identity of a registration.
func entitled(cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) bool {
	return accepted(cluster) && cluster.UID == record.Spec.ManagedClusterUID && !withdrawn(record)
}

// keeps reports whether a cluster keeps the identity of a registration: it is entitled to it, or it is drained.
func keeps(cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) bool {
	return entitled(cluster, record) ||
		cluster != nil && Draining(cluster) && cluster.UID == record.Spec.ManagedClusterUID && !withdrawn(record)
}

func (i *identities) provision(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	c := i.controller
	verify := i.due(cluster.Name)
	if !ready(record) {
		// Provisioning follows the stored objects, not the caches.
		latest, stored, err := i.stored(ctx, record)
		if err != nil || stored == nil || !entitled(latest, stored) {
			return 0, err // an event follows
		}
		record = stored
	}
	if why := i.driver.Refuses(record); why != "" {
		return 0, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonNoClaim, why))
	}
	bounded, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	if err := i.driver.Provision(bounded, record, verify); err != nil {
		countFailure(record, operationProvision)
		failed := condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonProvisionFailed, err.Error())
		if ready(record) {
			// The identity exists. A failed verification must not stop the cluster.
			failed = condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionTrue, registerv1alpha1.ReasonProvisionFailed,
				"The server could not verify or repair the identity: "+err.Error())
		}
		return 0, errors.Join(fmt.Errorf("provisioning ManagedCluster %q: %w", cluster.Name, err), c.setRecord(ctx, record, failed))
	}
	err := c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionTrue, registerv1alpha1.ReasonProvisioned, "The identity of the cluster is provisioned."))
	if err != nil {
		return 0, err
	}
	if !verify {
		return 0, nil // the queue already contains the next verification
	}
	after := nextCheck()
	i.verified.Store(cluster.Name, c.Clock.Now().Add(after))
	return after, nil
}

// stored returns the stored ManagedCluster and registration. The registration is nil if another one has replaced it, or if
// its driver has changed.
func (i *identities) stored(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) (*clusterv1.ManagedCluster, *registerv1alpha1.ManagedClusterRegistration, error) {
	latest, stored, err := Stored(ctx, i.controller.Clusters, i.controller.Records, record.Name)
	if err != nil || stored == nil || stored.UID != record.UID || stored.Spec.Driver != i.driver.Name() {
		return nil, nil, err
	}
	return latest, stored, nil
}

func (i *identities) revoke(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	c := i.controller
	if !i.leaves(record) {
		return 0, nil
	}
	latest, stored, err := i.stored(ctx, record)
	if err != nil || stored == nil || !i.leaves(stored) {
		return 0, err
	}
	if keeps(latest, stored) {
		return waitPeriod, nil // the cache is behind
	}
	// The access loop does not grant while the condition is False.
	if ready(stored) {
		if err := c.setRecord(ctx, stored, condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonCleaningUp, "The identity of the cluster is being revoked.")); err != nil {
			return 0, err
		}
		// An acceptance before this write may have seen the identity as ready.
		if latest, err = c.current(ctx, record.Name); err != nil {
			return 0, err
		}
		if keeps(latest, stored) {
			return waitPeriod, nil
		}
	}
	bounded, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	if err := i.driver.Revoke(bounded, stored); err != nil {
		countFailure(stored, operationWithdraw)
		return 0, errors.Join(fmt.Errorf("revoking the identity of ManagedCluster %q: %w", stored.Name, err), c.setRecord(ctx, stored,
			condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonRevocationFailed, err.Error())))
	}
	if withdrawn(stored) {
		_, latest, err := Stored(ctx, c.Clusters, c.Records, stored.Name)
		if err != nil || latest == nil {
			return 0, err
		}
		if err := forgetClaim(ctx, c.Records, latest, defaultDriver(c.Drivers)); err != nil {
			return 0, err
		}
	}
	// A withdrawn claim without resources may never have had the condition.
	if provisioned(stored) || meta.FindStatusCondition(stored.Status.Conditions, registerv1alpha1.RegistrationIdentityReady) != nil {
		if err := c.setRecord(ctx, stored, condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonRevoked, "The identity of the cluster is revoked.")); err != nil {
			return 0, err
		}
	}
	klog.FromContext(ctx).Info("Revoked the identity of a cluster", "cluster", stored.Name, "driver", i.driver.Name())
	return 0, nil
}

// leaves reports whether resources of the driver remain for a registration.
func (i *identities) leaves(record *registerv1alpha1.ManagedClusterRegistration) bool {
	current := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
	return provisioned(record) || withdrawn(record) || current != nil && current.Reason != registerv1alpha1.ReasonRevoked
}
