package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeinformers "k8s.io/client-go/informers"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	addonclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/addon/v1alpha1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	registerinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/register/v1alpha1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// verifyPeriod is the longest interval between a driver's checks of the resources that it provisioned.
	verifyPeriod = 30 * time.Minute
	// waitPeriod is the time to the next attempt if the awaited change may send no event.
	waitPeriod = time.Second
	// refusedPeriod is the time to the next attempt after a refusal that may end without an event.
	refusedPeriod = 30 * time.Second
)

// Options configure a Controller. Requests, AutoApproval and Clock are optional.
type Options struct {
	Clusters clusterclient.ManagedClustersGetter
	// ClusterInformer and Registrations send events to the controller. The caller starts them.
	ClusterInformer clusterinformers.ManagedClusterInformer
	Registrations   registerinformers.ManagedClusterRegistrationInformer
	Records         Records
	// Drivers are the enabled registration drivers.
	Drivers []Driver
	// Access reads the caches of HubInformers.
	Access *Access
	Hub    kubernetes.Interface
	// HubInformers cache the hub's objects that have the cluster label. The caller starts them.
	HubInformers kubeinformers.SharedInformerFactory
	// Requests caches the CertificateSigningRequests on which the rules of a driver depend. The caller starts it. It is
	// nil if no driver depends on them.
	Requests certificatesinformers.CertificateSigningRequestInformer
	Works    workclient.ManifestWorksGetter
	// Addons reads and deletes ManagedClusterAddOns. A hub may not serve them.
	Addons addonclient.ManagedClusterAddOnsGetter
	// CachedWorks may be older than Works.
	CachedWorks worklisters.ManifestWorkLister
	// DrainTimeout bounds the time in which the agent of a deleted cluster removes the delivered objects. Afterwards,
	// the agent loses access.
	DrainTimeout time.Duration
	// Events receives the events of ManagedClusters.
	Events    events.EventRecorder
	Decisions Decider
	// EnsureRecord creates the registration of a cluster if there is none.
	EnsureRecord func(ctx context.Context, cluster *clusterv1.ManagedCluster) error
	AutoApproval AutoApproval
	Clock        clock.PassiveClock
}

// Controller grants accepted clusters access to the hub, revokes the access of denied and deleted clusters, and removes
// the objects of deleted clusters. Only one replica runs it.
//
// One loop grants and revokes access and calls only the hub. Each driver has a loop with its own workers, which may wait
// for a service such as AWS. The loops exchange results through conditions of the registration. So a slow AWS delays
// neither a revocation nor a cluster of another driver.
//
//	           ┌─ driver loop ─ Provision/Revoke ─► condition IdentityReady ─┐
//	decision ──┤                                                            ▼
//	           └─ access loop ─ Revoke at once; Grant once the identity is ready
//
// The registration records each grant before the server makes it, so that a cleanup finds it even if the server
// stops in between.
type Controller struct {
	Options

	loop       reconcile.Loop
	identities []*identities
}

// NewController returns a Controller. Its informers must be started after this call.
func NewController(o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	c := &Controller{Options: o}
	hub := o.HubInformers
	c.loop = reconcile.Loop{
		Name:      "registration",
		Reconcile: c.reconcile,
		Urgent:    c.revoked,
		Feeds: []reconcile.Feed{
			{Informer: o.ClusterInformer.Informer(), Keys: reconcile.Own, Ignore: reconcile.Same(SameDecision)},
			{Informer: o.Registrations.Informer(), Keys: reconcile.Own},
			{Informer: hub.Core().V1().Namespaces().Informer(), Keys: reconcile.Keys(labelledKeys)},
			{Informer: hub.Rbac().V1().ClusterRoles().Informer(), Keys: reconcile.Keys(accessKeys)},
			{Informer: hub.Rbac().V1().ClusterRoleBindings().Informer(), Keys: reconcile.Keys(accessKeys)},
			{Informer: hub.Rbac().V1().RoleBindings().Informer(), Keys: reconcile.Keys(accessKeys)},
			// Only the agent changes the content of a Lease, every few seconds.
			{Informer: hub.Coordination().V1().Leases().Informer(), Keys: reconcile.Keys(accessKeys), Ignore: reconcile.Always},
		},
	}
	if o.Requests != nil {
		c.loop.Feeds = append(c.loop.Feeds, reconcile.Feed{Informer: o.Requests.Informer(), Keys: reconcile.Keys(labelledKeys), Ignore: reconcile.Always})
	}
	for _, driver := range o.Drivers {
		c.identities = append(c.identities, newIdentities(c, driver, o.ClusterInformer.Informer(), o.Registrations.Informer()))
	}
	return c
}

// Run runs the controller until ctx ends, and returns after all workers have stopped. It may be called again
// afterwards.
func (c *Controller) Run(ctx context.Context) {
	registered.running.Store(c)
	defer registered.running.Store(nil)
	var running sync.WaitGroup
	running.Go(func() { c.loop.Run(ctx) })
	for _, identities := range c.identities {
		running.Go(func() { identities.run(ctx) })
	}
	running.Wait()
}

// revoked reports whether a cluster loses access: it was deleted, or was accepted and is denied now.
func (c *Controller) revoked(name cache.ObjectName) bool {
	cluster, err := c.ClusterInformer.Lister().Get(name.Name)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	accepted := acceptedCondition(cluster)
	return cluster.DeletionTimestamp != nil || !cluster.Spec.HubAcceptsClient && accepted != nil && accepted.Status == metav1.ConditionTrue
}

// SameDecision reports whether a change of a ManagedCluster concerns only its agent's report.
func SameDecision(before, after *clusterv1.ManagedCluster) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		before.Spec.HubAcceptsClient == after.Spec.HubAcceptsClient &&
		before.DeletionTimestamp.Equal(after.DeletionTimestamp) && slices.Equal(before.Finalizers, after.Finalizers) &&
		Draining(before) == Draining(after) &&
		equality.Semantic.DeepEqual(before.Status.Acceptance, after.Status.Acceptance) &&
		equality.Semantic.DeepEqual(acceptedCondition(before), acceptedCondition(after))
}

func acceptedCondition(cluster *clusterv1.ManagedCluster) *metav1.Condition {
	return meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
}

// labelledKeys returns the key of the cluster that the cluster label names.
func labelledKeys(object metav1.Object) []cache.ObjectName {
	if object.GetLabels()[clusterv1.ClusterNameLabel] == "" {
		return nil
	}
	return []cache.ObjectName{{Name: object.GetLabels()[clusterv1.ClusterNameLabel]}}
}

// accessKeys returns the key of the cluster to which an object of this controller grants access.
func accessKeys(object metav1.Object) []cache.ObjectName {
	cluster := object.GetLabels()[clusterv1.ClusterNameLabel]
	name, namespace := object.GetName(), object.GetNamespace()
	ours := namespace == "" && name == accessName(cluster) ||
		namespace == cluster && (name == LeaseName || ownBinding(cluster, name))
	if cluster == "" || !ours {
		return nil
	}
	return []cache.ObjectName{{Name: cluster}}
}

// read returns a cluster and its registration from the caches. Each is nil if it does not exist.
func (c *Controller) read(name string) (*clusterv1.ManagedCluster, *registerv1alpha1.ManagedClusterRegistration, error) {
	cluster, err := reconcile.OrNil(c.ClusterInformer.Lister().Get(name))
	if err != nil {
		return nil, nil, err
	}
	record, err := reconcile.OrNil(c.Registrations.Lister().Get(name))
	return cluster, record, err
}

// Stored returns the stored ManagedCluster and then its registration, each nil if there is none.
func Stored(ctx context.Context, clusters clusterclient.ManagedClustersGetter, records Records, name string) (*clusterv1.ManagedCluster, *registerv1alpha1.ManagedClusterRegistration, error) {
	cluster, err := reconcile.OrNil(clusters.ManagedClusters().Get(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return nil, nil, fmt.Errorf("reading ManagedCluster %q: %w", name, err)
	}
	record, err := reconcile.OrNil(records.Get(ctx, name))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the registration of ManagedCluster %q: %w", name, err)
	}
	return cluster, record, nil
}

// current returns the stored ManagedCluster, or nil if there is none.
func (c *Controller) current(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	cluster, err := reconcile.OrNil(c.Clusters.ManagedClusters().Get(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return nil, fmt.Errorf("reading ManagedCluster %q: %w", name, err)
	}
	return cluster, nil
}

func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	cluster, record, err := c.read(key.Name)
	if err != nil {
		return 0, err
	}
	switch {
	case record != nil && (cluster == nil || cluster.UID != record.Spec.ManagedClusterUID):
		return c.abandoned(ctx, record)
	case cluster == nil:
		return 0, nil
	case cluster.DeletionTimestamp != nil:
		return c.cleanUp(ctx, key.Name, cluster, record)
	case record == nil:
		return 0, c.makeRecord(ctx, cluster)
	case accepted(cluster):
		return c.grant(ctx, cluster, record)
	case !everGranted(cluster, record):
		// Undecided, or denied without access, which costs no request to the hub.
		return c.autoApprove(ctx, cluster, record)
	}
	return c.deny(ctx, cluster, record)
}

// makeRecord creates the registration of a cluster if the request that created the cluster did not, or if the cluster is
// older than registrations.
func (c *Controller) makeRecord(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	latest, record, err := Stored(ctx, c.Clusters, c.Records, cluster.Name)
	if err != nil || record != nil || latest == nil || latest.DeletionTimestamp != nil {
		return err // the cache is behind and will send an event
	}
	if err := c.EnsureRecord(ctx, latest); err != nil {
		return fmt.Errorf("creating the registration of ManagedCluster %q: %w", cluster.Name, err)
	}
	return nil
}

// grant grants access to an accepted cluster after its identity is provisioned.
func (c *Controller) grant(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	if err := c.recordApproval(ctx, cluster, record); err != nil {
		return 0, err
	}
	if !ready(record) {
		return 0, c.pending(ctx, cluster, record)
	}
	complete, err := c.Access.Granted(cluster.Name, AgentsOf(c.Drivers, record), cluster.Spec.LeaseSeconds())
	if err != nil {
		return 0, err
	}
	if !complete || !granted(record) {
		return c.makeAccess(ctx, cluster, record)
	}
	return c.reportAccess(ctx, cluster)
}

// makeAccess grants access if the stored objects, and not only the caches, show that the cluster is accepted and has
// its identity. If the cluster has changed since, an event follows.
func (c *Controller) makeAccess(ctx context.Context, cached *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	// The ManagedCluster is read first. The driver's loop marks an identity as not ready and then reads the
	// ManagedCluster again before it revokes, so that one of the two sees the other's write.
	cluster, stored, err := Stored(ctx, c.Clusters, c.Records, cached.Name)
	if err != nil || !accepted(cluster) || cluster.UID != cached.UID || stored == nil || stored.UID != record.UID || !ready(stored) {
		return 0, err
	}
	// From here on, the registration records that there may be objects to remove.
	if !everGranted(nil, stored) {
		if err := c.setRecord(ctx, stored, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse,
			registerv1alpha1.ReasonPending, "The server is granting the cluster access to the hub.")); err != nil {
			return c.notGranted(ctx, cluster, record, err)
		}
	}
	if err := c.Access.Grant(ctx, cluster.Name, AgentsOf(c.Drivers, stored), cluster.Spec.LeaseSeconds()); err != nil {
		return c.notGranted(ctx, cluster, record, err)
	}
	latest, err := c.current(ctx, cluster.Name)
	switch {
	case err != nil:
		return 0, err
	case !accepted(latest) || latest.UID != cluster.UID:
		// A denial revokes within its request. It ran during the grant, so it revoked too early.
		return 0, c.Access.Revoke(ctx, cluster.Name)
	case latest.Generation != cluster.Generation:
		return 0, nil // perhaps denied and accepted again
	}
	err = c.updateRecord(ctx, stored, func(r *registerv1alpha1.ManagedClusterRegistration) {
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
			Type: registerv1alpha1.RegistrationAccessGranted, Status: metav1.ConditionTrue, Reason: registerv1alpha1.ReasonGranted,
			Message: "The cluster has access to the hub.",
		})
		meta.RemoveStatusCondition(&r.Status.Conditions, registerv1alpha1.RegistrationCleanedUp)
	})
	if err != nil {
		return c.notGranted(ctx, latest, record, err)
	}
	if !granted(stored) {
		acceptances.WithLabelValues(driverOf(stored)).Inc()
		klog.FromContext(ctx).Info("Granted a cluster access to the hub", "cluster", cluster.Name, "driver", driverOf(stored))
	}
	return c.reportAccess(ctx, latest)
}

// reportAccess reports that an accepted cluster has access.
func (c *Controller) reportAccess(ctx context.Context, cluster *clusterv1.ManagedCluster) (time.Duration, error) {
	return nextCheck(), c.setAccepted(ctx, cluster, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: clusterv1.ReasonHubClusterAdminAccepted,
		Message: "The hub accepts the cluster. The cluster has access to the hub.",
	}, func(current *clusterv1.ManagedCluster) bool {
		// A denial since the read revoked the access.
		return accepted(current) && current.Generation == cluster.Generation
	})
}

// notGranted reports why a grant failed.
func (c *Controller) notGranted(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration, err error) (time.Duration, error) {
	again, failure := time.Duration(0), err
	if errors.Is(err, reconcile.ErrTerminating) {
		again, failure = waitPeriod, nil
	} else {
		countFailure(record, operationGrant)
		if granted(record) {
			// The access was complete before, so the agent can probably still work.
			return 0, errors.Join(err, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionTrue,
				registerv1alpha1.ReasonGranted, "The server could not repair the access of the cluster: "+err.Error())))
		}
	}
	return again, errors.Join(failure,
		c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonPending, err.Error())),
		c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, clusterv1.ReasonError, "The server could not grant the cluster access: "+err.Error()), accepted))
}

// pending reports why an accepted cluster has no identity yet.
func (c *Controller) pending(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) error {
	current := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
	why, failed := "The identity of the cluster is being provisioned.", false
	switch {
	case !c.enabled(record.Spec.Driver):
		why, failed = fmt.Sprintf("The registration driver %s is not enabled; add it to --registration-auth of the server.", record.Spec.Driver), true
	case current != nil && (current.Reason == registerv1alpha1.ReasonProvisionFailed || current.Reason == registerv1alpha1.ReasonNoClaim || current.Reason == registerv1alpha1.ReasonRevocationFailed):
		why, failed = current.Message, true
	}
	var errs []error
	if !granted(record) {
		errs = append(errs, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonPending, why)))
	}
	// Upstream OCM agents stop waiting at any value of the condition, so it is absent until there is a result.
	switch before := acceptedCondition(cluster); {
	case failed:
		errs = append(errs, c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, clusterv1.ReasonError, why), accepted))
	case before != nil && before.Status != metav1.ConditionTrue:
		errs = append(errs, c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, registerv1alpha1.ReasonPending, why), accepted))
	}
	return errors.Join(errs...)
}

// deny revokes the access of a denied cluster.
func (c *Controller) deny(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	revoked, err := c.Access.Revoked(cluster.Name)
	if err != nil {
		return 0, err
	}
	known := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationAccessGranted)
	if !revoked || known == nil || known.Reason != registerv1alpha1.ReasonDenied {
		// Revoke unless the stored object proves that the cache is behind.
		if latest, err := c.current(ctx, cluster.Name); err == nil && accepted(latest) && latest.UID == cluster.UID {
			return waitPeriod, nil
		}
		if err := c.Access.Revoke(ctx, cluster.Name); err != nil {
			countFailure(record, operationRevoke)
			return 0, errors.Join(err, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse,
				registerv1alpha1.ReasonRevocationFailed, err.Error())))
		}
		if granted(record) {
			denials.WithLabelValues(driverOf(record), registerv1alpha1.ReasonDenied).Inc()
			klog.FromContext(ctx).Info("Revoked the access of a cluster", "cluster", cluster.Name, "driver", driverOf(record))
		}
	}
	if err := c.Access.Regroup(ctx, cluster.Name, AgentsOf(c.Drivers, record).Groups); err != nil {
		return 0, err
	}
	cleaned := condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionTrue, registerv1alpha1.ReasonCleanedUp, "All access of the cluster is removed.")
	if left := c.identityLeft(record); left != "" {
		cleaned = condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse, registerv1alpha1.ReasonCleaningUp, "Not removed yet: "+left+".")
	}
	message := DeniedMessage(cluster.Status.Acceptance)
	if err := c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonDenied, message), cleaned); err != nil {
		return 0, err
	}
	if now := acceptedCondition(cluster); now == nil || now.Status != metav1.ConditionFalse || now.Reason != clusterv1.ReasonHubClusterAdminDenied {
		if err := c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied, message), denied); err != nil {
			return 0, err
		}
	}
	if decision := cluster.Status.Acceptance; decision != nil && decision.Left {
		return 0, c.deleteLeft(ctx, cluster)
	}
	return nextCheck(), nil
}

// everGranted reports whether a cluster was ever accepted, so that objects of it may exist.
func everGranted(cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) bool {
	return cluster != nil && EverAccepted(cluster) ||
		record != nil && meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationAccessGranted) != nil
}

// deleteLeft deletes the ManagedCluster of a cluster that has left the hub.
func (c *Controller) deleteLeft(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	latest, err := c.current(ctx, cluster.Name)
	if err != nil || latest == nil || latest.UID != cluster.UID || accepted(latest) || latest.Status.Acceptance == nil || !latest.Status.Acceptance.Left {
		return err
	}
	err = c.Clusters.ManagedClusters().Delete(ctx, cluster.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &latest.UID, ResourceVersion: &latest.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ManagedCluster %q, which has left the hub: %w", cluster.Name, err)
	}
	return nil
}

func (c *Controller) enabled(name registerv1alpha1.RegistrationDriver) bool {
	return driverNamed(c.Drivers, name) != nil
}

// nextCheck returns the time to the next check without an event. Jitter spreads the checks of different clusters.
func nextCheck() time.Duration { return wait.Jitter(verifyPeriod*2/3, 0.5) }
