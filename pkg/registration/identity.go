package registration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// driverTimeout is how long a driver may take. It leaves time to store what has come of it.
const driverTimeout = 20 * time.Second

// identities lets one driver make and revoke the identities of its clusters, by a loop
// of its own.
type identities struct {
	controller *Controller
	driver     Driver
	loop       reconcile.Loop

	mu sync.Mutex
	// verified is when a cluster is verified next; those that are not in it, at once.
	verified map[string]time.Time
}

func newIdentities(controller *Controller, driver Driver, clusters, records cache.SharedIndexInformer) *identities {
	i := &identities{controller: controller, driver: driver}
	i.loop = reconcile.Loop{
		Name:      "registration-" + string(driver.Name()),
		Reconcile: i.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: clusters, Keys: reconcile.Own, Ignore: sameDecision},
			{Informer: records, Keys: reconcile.Own, Ignore: sameIdentity},
		},
	}
	return i
}

// run works until ctx ends. Who begins to act verifies everything.
func (i *identities) run(ctx context.Context) {
	i.mu.Lock()
	i.verified = map[string]time.Time{}
	i.mu.Unlock()
	i.loop.Run(ctx)
}

// sameIdentity tells that a change of a registration is not about its identity. What
// AWS answered to the last attempt is not either: or else every failure would bring
// the next one at once.
func sameIdentity(old, obj any) bool {
	before, ok := old.(*registerv1alpha1.ManagedClusterRegistration)
	if !ok {
		return false
	}
	after, ok := obj.(*registerv1alpha1.ManagedClusterRegistration)
	if !ok || before.UID != after.UID || before.Spec.Driver != after.Spec.Driver || before.Spec.ManagedClusterUID != after.Spec.ManagedClusterUID {
		return false
	}
	sameClaim := (before.Spec.IRSA == nil) == (after.Spec.IRSA == nil) && (before.Spec.IRSA == nil || *before.Spec.IRSA == *after.Spec.IRSA)
	sameState := (before.Status.IRSA == nil) == (after.Status.IRSA == nil) && (before.Status.IRSA == nil || *before.Status.IRSA == *after.Status.IRSA)
	return sameClaim && sameState && ready(before) == ready(after)
}

// due tells whether a cluster is to be verified.
func (i *identities) due(cluster string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.controller.clock.Now().Before(i.verified[cluster])
}

// postpone says that a cluster was verified, and returns when it is to be again.
func (i *identities) postpone(cluster string) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	after := i.controller.next()
	i.verified[cluster] = i.controller.clock.Now().Add(after)
	return after
}

func (i *identities) forget(cluster string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.verified, cluster)
}

func (i *identities) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	cluster, record, err := i.controller.read(key.Name)
	if err != nil {
		return 0, err
	}
	if record == nil || record.Spec.Driver != i.driver.Name() {
		i.forget(key.Name)
		return 0, nil
	}
	if entitled(cluster, record) {
		return i.provision(ctx, cluster, record)
	}
	i.forget(key.Name)
	if keeps(cluster, record) {
		return 0, nil // the end of the drain brings an event
	}
	return i.revoke(ctx, record)
}

// entitled tells whether a cluster is to have the identity of a registration.
func entitled(cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) bool {
	return accepted(cluster) && cluster.UID == record.Spec.ManagedClusterUID && !withdrawn(record)
}

// keeps reports whether a cluster is to keep the identity of a registration: it is entitled to
// it, or its agent needs it to remove what the hub delivered.
func keeps(cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) bool {
	return entitled(cluster, record) ||
		cluster != nil && Draining(cluster) && cluster.UID == record.Spec.ManagedClusterUID && !withdrawn(record)
}

func (i *identities) provision(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	c := i.controller
	verify := i.due(cluster.Name)
	if !ready(record) {
		// What is to be made is made by what is stored, not by what the caches have.
		latest, err := c.current(ctx, cluster.Name)
		if err != nil {
			return 0, err
		}
		stored, err := c.currentRecord(ctx, cluster.Name)
		if err != nil {
			return 0, err
		}
		if stored == nil || stored.UID != record.UID || stored.Spec.Driver != i.driver.Name() || !entitled(latest, stored) {
			return 0, nil // which brings an event
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
			// It was made. That it cannot be looked at now is no reason to stop a cluster.
			failed = condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionTrue, registerv1alpha1.ReasonProvisionFailed,
				"The identity was made, and could not be verified or repaired since: "+err.Error())
		}
		return 0, errors.Join(fmt.Errorf("provisioning cluster %s: %w", cluster.Name, err), c.setRecord(ctx, record, failed))
	}
	err := c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionTrue, registerv1alpha1.ReasonProvisioned, "The identity of the cluster is there."))
	if err != nil {
		return 0, err
	}
	if !verify {
		return 0, nil // the next verification waits in the queue already
	}
	return i.postpone(cluster.Name), nil
}

func (i *identities) revoke(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	c := i.controller
	if !i.leaves(record) {
		return 0, nil
	}
	latest, err := c.current(ctx, record.Name)
	if err != nil {
		return 0, err
	}
	stored, err := c.currentRecord(ctx, record.Name)
	if err != nil {
		return 0, err
	}
	if stored == nil || stored.UID != record.UID || stored.Spec.Driver != i.driver.Name() || !i.leaves(stored) {
		return 0, nil
	}
	if keeps(latest, stored) {
		return waitPeriod, nil // the cache lags
	}
	// Nobody grants access on an identity that is about to go.
	if ready(stored) {
		if err := c.setRecord(ctx, stored, condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonCleaningUp, "The identity of the cluster is being revoked.")); err != nil {
			return 0, err
		}
		// Who accepted the cluster before that was stored may have found the identity ready.
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
		return 0, errors.Join(fmt.Errorf("revoking the identity of cluster %s: %w", stored.Name, err), c.setRecord(ctx, stored,
			condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonRevocationFailed, err.Error())))
	}
	if withdrawn(stored) {
		latest, err := c.currentRecord(ctx, stored.Name)
		if err != nil || latest == nil {
			return 0, err
		}
		if err := forgetClaim(ctx, c.records, latest, defaultDriver(c.drivers)); err != nil {
			return 0, err
		}
	}
	if err := c.revokedIdentity(ctx, stored); err != nil {
		return 0, err
	}
	klog.FromContext(ctx).Info("revoked the identity of a cluster", "cluster", stored.Name, "driver", i.driver.Name())
	return 0, nil
}

// leaves tells whether a registration that is entitled to nothing still has something
// of the driver.
func (i *identities) leaves(record *registerv1alpha1.ManagedClusterRegistration) bool {
	current := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
	return provisioned(record) || withdrawn(record) || current != nil && current.Reason != registerv1alpha1.ReasonRevoked
}

// revokedIdentity stores that a driver has nothing left of a cluster. A claim that was
// withdrawn without ever having been used leaves no trace.
func (c *Controller) revokedIdentity(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) error {
	if meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady) == nil && !provisioned(record) {
		return nil
	}
	return c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonRevoked, "The identity of the cluster is revoked."))
}
