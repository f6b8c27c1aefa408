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
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	registerlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/register/v1alpha1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// defaultVerifyPeriod is how often drivers look whether all is as they have made it.
	defaultVerifyPeriod = 30 * time.Minute
	// verifyJitter spreads that, so that not all clusters are looked at together.
	verifyJitter = 0.5
	// waitPeriod is how long something is waited for that may bring no event.
	waitPeriod = time.Second
	// refusedPeriod is how long a refusal is taken to last that may bring no event.
	refusedPeriod = 30 * time.Second
)

// Options are what a Controller needs. All but Requests, AutoApproval,
// VerifyPeriod and Clock are required.
type Options struct {
	Clusters clusterclient.ManagedClustersGetter
	// ClusterInformer and Registrations feed the controller; the caller starts them.
	ClusterInformer clusterinformers.ManagedClusterInformer
	Registrations   registerinformers.ManagedClusterRegistrationInformer
	Records         Records
	// Drivers are those by which clusters may register.
	Drivers []Driver
	// Access reads the caches of HubInformers.
	Access *Access
	Hub    kubernetes.Interface
	// HubInformers have the objects of the hub with the label of a cluster's name. The
	// caller starts them.
	HubInformers kubeinformers.SharedInformerFactory
	// Requests are the certificate requests whose coming and going changes the rules of a
	// driver; nil if no driver depends on them. The caller starts it.
	Requests certificatesinformers.CertificateSigningRequestInformer
	Works    workclient.ManifestWorksGetter
	// Addons are the ManagedClusterAddOns, which not every hub has.
	Addons addonclient.ManagedClusterAddOnsGetter
	// CachedWorks knows most of the works without asking.
	CachedWorks worklisters.ManifestWorkLister
	// DrainTimeout is how long the agent of a deleted cluster may take to remove what the hub
	// delivered, before it loses its access.
	DrainTimeout time.Duration
	// Events receives the events of ManagedClusters.
	Events    events.EventRecorder
	Decisions Decisions
	// EnsureRecord makes the registration of a cluster that has none.
	EnsureRecord func(ctx context.Context, cluster *clusterv1.ManagedCluster) error
	AutoApproval AutoApproval
	// VerifyPeriod is how often drivers verify what they have made; by default 30 minutes.
	VerifyPeriod time.Duration
	Clock        clock.PassiveClock
}

func (o *Options) complete() error {
	required := []struct {
		name    string
		missing bool
	}{
		{"Clusters", o.Clusters == nil}, {"ClusterInformer", o.ClusterInformer == nil}, {"Registrations", o.Registrations == nil},
		{"Records", o.Records == nil}, {"Drivers", len(o.Drivers) == 0}, {"Access", o.Access == nil}, {"Hub", o.Hub == nil},
		{"HubInformers", o.HubInformers == nil}, {"Works", o.Works == nil}, {"Addons", o.Addons == nil}, {"CachedWorks", o.CachedWorks == nil}, {"Events", o.Events == nil}, {"Decisions", o.Decisions == nil},
		{"EnsureRecord", o.EnsureRecord == nil},
	}
	for _, option := range required {
		if option.missing {
			return fmt.Errorf("the controller of registrations needs the option %s", option.name)
		}
	}
	if o.VerifyPeriod <= 0 {
		o.VerifyPeriod = defaultVerifyPeriod
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// Controller gives accepted clusters their access to the hub, takes it from those that
// are denied or deleted, and removes whatever is left of the latter. One of it acts on
// a hub at a time.
//
// It runs one loop for access, which talks to the hub alone, and one for each driver,
// with workers of its own, which may wait for others such as AWS. They tell each other
// what they have done through the registration, so that neither waits for the other:
// nobody's access outlasts a denial because AWS is slow, and no cluster of another
// driver waits for it.
//
//	           ┌─ driver loop ─ Provision/Revoke ─► condition IdentityReady ─┐
//	decision ──┤                                                            ▼
//	           └─ access loop ─ Revoke at once; Grant once the identity is ready
//
// Whatever a cluster is given is written down in its registration first, which is
// therefore the anchor of its removal, wherever the server stops in between.
type Controller struct {
	clusters     clusterclient.ManagedClustersGetter
	lister       clusterlisters.ManagedClusterLister
	records      Records
	cached       registerlisters.ManagedClusterRegistrationLister
	drivers      []Driver
	access       *Access
	hub          kubernetes.Interface
	works        workclient.ManifestWorksGetter
	addons       addonclient.ManagedClusterAddOnsGetter
	cachedWorks  worklisters.ManifestWorkLister
	drainTimeout time.Duration
	events       events.EventRecorder
	decisions    Decisions
	ensureRecord func(context.Context, *clusterv1.ManagedCluster) error
	autoApproval AutoApproval
	period       time.Duration
	clock        clock.PassiveClock
	census       *census
	loop         reconcile.Loop
	identities   []*identities
}

// NewController returns a controller that is fed by the informers of its options.
func NewController(o Options) (*Controller, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	registerMetrics()
	c := &Controller{
		clusters: o.Clusters, lister: o.ClusterInformer.Lister(), records: o.Records, cached: o.Registrations.Lister(),
		drivers: o.Drivers, access: o.Access, hub: o.Hub, works: o.Works, addons: o.Addons, cachedWorks: o.CachedWorks, drainTimeout: o.DrainTimeout, events: o.Events, decisions: o.Decisions, ensureRecord: o.EnsureRecord,
		autoApproval: o.AutoApproval, period: o.VerifyPeriod, clock: o.Clock, census: newCensus(),
	}
	hub := o.HubInformers
	c.loop = reconcile.Loop{
		Name:      "registration",
		Reconcile: c.reconcile,
		Urgent:    c.revoked,
		Feeds: []reconcile.Feed{
			{Informer: o.ClusterInformer.Informer(), Keys: reconcile.Own, Ignore: sameDecision},
			{Informer: o.Registrations.Informer(), Keys: reconcile.Own},
			{Informer: hub.Core().V1().Namespaces().Informer(), Keys: labelledKeys},
			{Informer: hub.Rbac().V1().ClusterRoles().Informer(), Keys: accessKeys},
			{Informer: hub.Rbac().V1().ClusterRoleBindings().Informer(), Keys: accessKeys},
			{Informer: hub.Rbac().V1().RoleBindings().Informer(), Keys: accessKeys},
			// What is in a Lease is the agent's, and changes all the time.
			{Informer: hub.Coordination().V1().Leases().Informer(), Keys: accessKeys, Ignore: func(_, _ any) bool { return true }},
		},
	}
	if o.Requests != nil {
		c.loop.Feeds = append(c.loop.Feeds, reconcile.Feed{Informer: o.Requests.Informer(), Keys: labelledKeys, Ignore: func(_, _ any) bool { return true }})
	}
	for _, driver := range o.Drivers {
		c.identities = append(c.identities, newIdentities(c, driver, o.ClusterInformer.Informer(), o.Registrations.Informer()))
	}
	return c, nil
}

// Run works until ctx ends, and returns once every worker has stopped. It may run
// again afterwards, but not twice at once.
func (c *Controller) Run(ctx context.Context) {
	defer c.census.reset()
	var running sync.WaitGroup
	running.Go(func() { c.loop.Run(ctx) })
	for _, identities := range c.identities {
		running.Go(func() { identities.run(ctx) })
	}
	running.Wait()
}

// revoked reports whether a cluster loses its access: it is gone or deleted, or it was
// accepted and is denied.
func (c *Controller) revoked(name cache.ObjectName) bool {
	cluster, err := c.lister.Get(name.Name)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	accepted := acceptedCondition(cluster)
	return cluster.DeletionTimestamp != nil || !cluster.Spec.HubAcceptsClient && accepted != nil && accepted.Status == metav1.ConditionTrue
}

// sameDecision tells that a change of a cluster is only about what its agent reports.
func sameDecision(old, obj any) bool {
	before, ok := old.(*clusterv1.ManagedCluster)
	if !ok {
		return false
	}
	after, ok := obj.(*clusterv1.ManagedCluster)
	return ok && before.UID == after.UID && before.Generation == after.Generation &&
		before.Spec.HubAcceptsClient == after.Spec.HubAcceptsClient &&
		before.DeletionTimestamp.Equal(after.DeletionTimestamp) && slices.Equal(before.Finalizers, after.Finalizers) &&
		Draining(before) == Draining(after) &&
		equality.Semantic.DeepEqual(before.Status.Acceptance, after.Status.Acceptance) &&
		equality.Semantic.DeepEqual(acceptedCondition(before), acceptedCondition(after))
}

func acceptedCondition(cluster *clusterv1.ManagedCluster) *metav1.Condition {
	return meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
}

// labelledKeys is the cluster whose name an object is labelled with.
func labelledKeys(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok || object.GetLabels()[clusterv1.ClusterNameLabel] == "" {
		return nil
	}
	return []cache.ObjectName{{Name: object.GetLabels()[clusterv1.ClusterNameLabel]}}
}

// accessKeys is the cluster that an object gives access to, if it is ours.
func accessKeys(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	cluster := object.GetLabels()[clusterv1.ClusterNameLabel]
	name, namespace := object.GetName(), object.GetNamespace()
	ours := namespace == "" && name == accessName(cluster) ||
		namespace == cluster && (name == LeaseName || ownBinding(cluster, name))
	if cluster == "" || !ours {
		return nil
	}
	return []cache.ObjectName{{Name: cluster}}
}

// read returns what the caches have of a cluster; nil for what they do not.
func (c *Controller) read(name string) (*clusterv1.ManagedCluster, *registerv1alpha1.ManagedClusterRegistration, error) {
	cluster, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		cluster = nil
	} else if err != nil {
		return nil, nil, err
	}
	record, err := c.cached.Get(name)
	if apierrors.IsNotFound(err) {
		record = nil
	} else if err != nil {
		return nil, nil, err
	}
	return cluster, record, nil
}

// current returns a ManagedCluster as it is stored; nil if there is none.
func (c *Controller) current(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	cluster, err := c.clusters.ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ManagedCluster %s: %w", name, err)
	}
	return cluster, nil
}

// currentRecord returns a registration as it is stored; nil if there is none.
func (c *Controller) currentRecord(ctx context.Context, name string) (*registerv1alpha1.ManagedClusterRegistration, error) {
	record, err := c.records.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the registration of cluster %s: %w", name, err)
	}
	return record, nil
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
		c.census.set(key.Name, "")
		return 0, nil
	case cluster.DeletionTimestamp != nil:
		return c.cleanUp(ctx, cluster, record)
	case record == nil:
		return 0, c.makeRecord(ctx, cluster)
	case accepted(cluster):
		return c.grant(ctx, cluster, record)
	}
	return c.deny(ctx, cluster, record)
}

// makeRecord makes the registration that the request which created a cluster could
// not, and of clusters that are older than registrations.
func (c *Controller) makeRecord(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	record, err := c.currentRecord(ctx, cluster.Name)
	if err != nil || record != nil {
		return err // the cache lags, and brings an event
	}
	latest, err := c.current(ctx, cluster.Name)
	if err != nil || latest == nil || latest.DeletionTimestamp != nil {
		return err
	}
	if err := c.ensureRecord(ctx, latest); err != nil {
		return fmt.Errorf("making the registration of cluster %s: %w", cluster.Name, err)
	}
	return nil
}

// grant gives an accepted cluster its access, once its identity is there.
func (c *Controller) grant(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	if err := c.noteApproval(ctx, cluster, record); err != nil {
		return 0, err
	}
	if !ready(record) {
		return 0, c.pending(ctx, cluster, record)
	}
	complete, err := c.access.Granted(ctx, cluster.Name, AgentsOf(c.drivers, record), cluster.Spec.LeaseSeconds())
	if err != nil {
		return 0, err
	}
	if !complete || !granted(record) {
		latest, done, err := c.makeAccess(ctx, cluster, record)
		if !done || err != nil {
			if errors.Is(err, ErrTerminating) {
				return waitPeriod, c.failed(ctx, latest, record, err)
			}
			return 0, errors.Join(err, c.failed(ctx, latest, record, err))
		}
		cluster = latest
	}
	c.census.set(cluster.Name, driverOf(record))
	return c.next(), c.setAccepted(ctx, cluster, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: clusterv1.ReasonHubClusterAdminAccepted,
		Message: "The hub accepts the cluster, which has its access.",
	}, func(current *clusterv1.ManagedCluster) bool {
		// What was found is so of this decision. A denial in between took the access away.
		return accepted(current) && current.Generation == cluster.Generation
	})
}

// makeAccess grants access to a cluster that is accepted and has its identity, also by
// what is stored and not only by the caches. It is not done if that is not so.
func (c *Controller) makeAccess(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (_ *clusterv1.ManagedCluster, done bool, _ error) {
	uid := cluster.UID
	// The ManagedCluster first: an identity is said not to be ready before it is looked
	// a last time whether it is to be revoked, so that one of the two sees the other.
	name := cluster.Name
	cluster, err := c.current(ctx, name)
	if err != nil || !accepted(cluster) || cluster.UID != uid {
		return nil, false, err
	}
	stored, err := c.currentRecord(ctx, name)
	if err != nil || stored == nil || stored.UID != record.UID || !ready(stored) {
		return nil, false, err
	}
	// From here on, the registration says that there may be something to remove.
	if !everAccepted(nil, stored) {
		if err := c.setRecord(ctx, stored, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse,
			registerv1alpha1.ReasonPending, "The access of the cluster is being made.")); err != nil {
			return cluster, false, err
		}
	}
	if err := c.access.Grant(ctx, cluster.Name, AgentsOf(c.drivers, stored), cluster.Spec.LeaseSeconds()); err != nil {
		return cluster, false, err
	}
	// A denial revokes in its request. One that came while this granted would otherwise
	// have revoked too early.
	latest, err := c.current(ctx, cluster.Name)
	if err != nil {
		return cluster, false, err
	}
	if !accepted(latest) || latest.UID != uid {
		return nil, false, c.access.Revoke(ctx, cluster.Name)
	}
	if latest.Generation != cluster.Generation {
		return nil, false, nil // denied and accepted again, maybe, which brings an event
	}
	err = c.updateRecord(ctx, stored, func(r *registerv1alpha1.ManagedClusterRegistration) {
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
			Type: registerv1alpha1.RegistrationAccessGranted, Status: metav1.ConditionTrue, Reason: registerv1alpha1.ReasonGranted,
			Message: "The cluster has its access to the hub.",
		})
		meta.RemoveStatusCondition(&r.Status.Conditions, registerv1alpha1.RegistrationCleanedUp)
	})
	if err != nil {
		return latest, false, err
	}
	if !granted(stored) {
		acceptances.WithLabelValues(driverOf(stored)).Inc()
		klog.FromContext(ctx).Info("granted a cluster its access", "cluster", cluster.Name, "driver", driverOf(stored))
	}
	return latest, true, nil
}

// failed says why an accepted cluster has not all of its access. Without a cluster,
// something has changed that brings an event.
func (c *Controller) failed(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration, err error) error {
	if cluster == nil || err == nil {
		return nil
	}
	if !errors.Is(err, ErrTerminating) {
		countFailure(record, operationGrant)
		if granted(record) {
			// It had all that it needs, and most likely has it still: nobody stops working for that.
			return c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionTrue,
				registerv1alpha1.ReasonGranted, "The access of the cluster could not be repaired: "+err.Error()))
		}
	}
	c.census.set(cluster.Name, "")
	return errors.Join(
		c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonPending, err.Error())),
		c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, clusterv1.ReasonError, "The access of the cluster could not be made: "+err.Error()), accepted))
}

// pending says that an accepted cluster has no identity yet, and why.
func (c *Controller) pending(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) error {
	current := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationIdentityReady)
	why, failed := "The identity of the cluster is being made.", false
	switch {
	case !c.enabled(record.Spec.Driver):
		why, failed = fmt.Sprintf("The hub does not register clusters with the driver %s.", record.Spec.Driver), true
	case current != nil && (current.Reason == registerv1alpha1.ReasonProvisionFailed || current.Reason == registerv1alpha1.ReasonNoClaim || current.Reason == registerv1alpha1.ReasonRevocationFailed):
		why, failed = current.Message, true
	}
	var errs []error
	if !granted(record) {
		errs = append(errs, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonPending, why)))
	}
	// Public agents take any value of the condition for the end of the wait, so that
	// there is none before the first word on the matter.
	switch before := acceptedCondition(cluster); {
	case failed:
		errs = append(errs, c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, clusterv1.ReasonError, why), accepted))
	case before != nil && before.Status != metav1.ConditionTrue:
		errs = append(errs, c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, registerv1alpha1.ReasonPending, why), accepted))
	}
	return errors.Join(errs...)
}

// deny takes the access of a cluster away that is not accepted, or not any longer. A
// cluster that never was has nothing, and nothing is asked for it.
func (c *Controller) deny(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	if !everAccepted(cluster, record) {
		return c.autoApprove(ctx, cluster, record)
	}
	c.census.set(cluster.Name, "")
	revoked, err := c.access.Revoked(cluster.Name)
	if err != nil {
		return 0, err
	}
	said := meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationAccessGranted)
	if !revoked || said == nil || said.Reason != registerv1alpha1.ReasonDenied {
		// Only a clear answer that the cache lags is a reason not to revoke.
		if latest, err := c.current(ctx, cluster.Name); err == nil && accepted(latest) && latest.UID == cluster.UID {
			return waitPeriod, nil
		}
		if err := c.access.Revoke(ctx, cluster.Name); err != nil {
			countFailure(record, operationRevoke)
			return 0, errors.Join(err, c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse,
				registerv1alpha1.ReasonRevocationFailed, err.Error())))
		}
		if granted(record) {
			denials.WithLabelValues(driverOf(record), registerv1alpha1.ReasonDenied).Inc()
			klog.FromContext(ctx).Info("revoked the access of a cluster", "cluster", cluster.Name, "driver", driverOf(record))
		}
	}
	if err := c.access.Regroup(ctx, cluster.Name, AgentsOf(c.drivers, record).Groups); err != nil {
		return 0, err
	}
	cleaned := condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionTrue, registerv1alpha1.ReasonCleanedUp, "Nothing is left of the access of the cluster.")
	if left := c.identityLeft(record); left != "" {
		cleaned = condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse, registerv1alpha1.ReasonCleaningUp, "Left: "+left+".")
	}
	message := deniedMessage(cluster)
	if err := c.setRecord(ctx, record, condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonDenied, message), cleaned); err != nil {
		return 0, err
	}
	if now := acceptedCondition(cluster); now == nil || now.Status != metav1.ConditionFalse || now.Reason != clusterv1.ReasonHubClusterAdminDenied {
		if err := c.setAccepted(ctx, cluster, condition("", metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied, message), denied); err != nil {
			return 0, err
		}
	}
	if decision := cluster.Status.Acceptance; decision != nil && decision.Left {
		return 0, c.letGo(ctx, cluster)
	}
	return c.next(), nil
}

// everAccepted tells whether a cluster was accepted at any time, so that something may
// have been made for it.
func everAccepted(cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) bool {
	return cluster != nil && OnceAccepted(cluster) ||
		record != nil && meta.FindStatusCondition(record.Status.Conditions, registerv1alpha1.RegistrationAccessGranted) != nil
}

// letGo deletes the ManagedCluster of a cluster that has left the hub.
func (c *Controller) letGo(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	latest, err := c.current(ctx, cluster.Name)
	if err != nil || latest == nil || latest.UID != cluster.UID || accepted(latest) || latest.Status.Acceptance == nil || !latest.Status.Acceptance.Left {
		return err
	}
	err = c.clusters.ManagedClusters().Delete(ctx, cluster.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &latest.UID, ResourceVersion: &latest.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ManagedCluster %s, which has left the hub: %w", cluster.Name, err)
	}
	return nil
}

func (c *Controller) driver(name registerv1alpha1.RegistrationDriver) Driver {
	for _, driver := range c.drivers {
		if driver.Name() == name {
			return driver
		}
	}
	return nil
}

func (c *Controller) enabled(name registerv1alpha1.RegistrationDriver) bool {
	return c.driver(name) != nil
}

// next is when to look again although nothing has changed.
func (c *Controller) next() time.Duration { return wait.Jitter(c.period, verifyJitter) }
