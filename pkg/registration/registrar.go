package registration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// afterStoreTimeout bounds how long a request waits for what follows once it is
// stored. The controller does what was not done by then.
const afterStoreTimeout = 5 * time.Second

var clusters = clusterv1.Resource("managedclusters")

// Clusters reads ManagedClusters as they are stored.
type Clusters interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*clusterv1.ManagedCluster, error)
}

// Decision is a decision about a cluster.
type Decision struct {
	Cluster string
	// UID and ResourceVersion, if given, must be those of the ManagedCluster.
	UID             types.UID
	ResourceVersion string
	// Acceptance is what was decided. The caller and the present time stand in for who
	// and when, if they are not given.
	Acceptance clusterv1.Acceptance
	// DryRun is to find out whether it could be written.
	DryRun bool
}

// Decider writes decisions.
type Decider interface {
	Decisions
	// Apply writes a decision, as Decide does.
	Apply(ctx context.Context, decision Decision) (*clusterv1.ManagedCluster, error)
}

// Revoker takes the access of a cluster away. It works on any replica.
type Revoker interface {
	Revoke(ctx context.Context, cluster string) error
}

// Gate keeps the agents of clusters that are denied or deleted out of this server.
type Gate interface {
	// Observe takes note of a ManagedCluster as it is stored, Deleted of one that was
	// deleted or is being deleted.
	Observe(mc *clusterv1.ManagedCluster)
	Deleted(mc *clusterv1.ManagedCluster)
}

// Approver approves those pending CertificateSigningRequests of an accepted cluster
// that can be approved, and returns their names.
type Approver interface {
	ApprovePending(ctx context.Context, cluster string) ([]string, error)
}

// RegistrarOptions are what a Registrar needs.
type RegistrarOptions struct {
	// HubARN is that of the hub's EKS cluster; nil without the driver aws-irsa.
	HubARN *irsa.ARN
	// Mapping is how the hub's EKS cluster knows the groups of roles.
	Mapping irsa.Mapping
	// Drivers are those that clusters may register with.
	Drivers []Driver

	Records   Records
	Clusters  Clusters
	Decisions Decider
	// MayDecide tells why the caller of a request may not decide about a cluster; nil if it may.
	MayDecide func(ctx context.Context, cluster string) error
	// HubProblems returns what the hub lacks for a driver; may be nil.
	HubProblems func(driver registerv1alpha1.RegistrationDriver) []string
	// Namespaces are those of the hub; nil not to look at them.
	Namespaces corev1listers.NamespaceLister
	// Gate learns first of what is decided; may be nil.
	Gate Gate
	// Revoker is for denials; nil to leave them to the controller.
	Revoker Revoker
	// Approver is for the answers of requests that accept a cluster; may be nil.
	Approver Approver
	// Clock is the real one if nil.
	Clock clock.PassiveClock
}

// Registrar does what requests for ManagedClusters and their registrations do beside
// the store.
type Registrar struct {
	RegistrarOptions
}

// NewRegistrar returns a Registrar.
func NewRegistrar(options RegistrarOptions) *Registrar {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Registrar{RegistrarOptions: options}
}

// AdmitCreate judges a new ManagedCluster, which is complete and has its UID, and
// reserves the identity that it claims. Who calls it calls NotStored if the
// ManagedCluster is not stored after all, or else Created.
func (r *Registrar) AdmitCreate(ctx context.Context, mc *clusterv1.ManagedCluster, dryRun bool) error {
	if mc.Spec.HubAcceptsClient {
		if err := r.MayDecide(ctx, mc.Name); err != nil {
			return err
		}
	}
	if why := ReservedName(mc.Name); why != "" {
		return invalid(mc.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), mc.Name, why)})
	}
	if err := r.clearFormer(ctx, mc.Name, dryRun); err != nil {
		return err
	}
	claim, errs := readClaim(r.HubARN, mc.Annotations)
	if len(errs) > 0 {
		return invalid(mc.Name, errs)
	}
	if mc.Spec.HubAcceptsClient {
		if err := r.acceptable(ctx, mc, r.newRecord(mc, callerOf(ctx), claim)); err != nil {
			return err
		}
	}
	if claim == nil {
		return nil
	}
	err := r.reserve(ctx, claim.Identity, mc, r.claimBy(claim.Identity, callerOf(ctx).Username), dryRun)
	if errors.Is(err, ErrClaimed) {
		// Whoever sends a request again, as its answer was lost, is told that it was done.
		if _, err := r.Clusters.Get(ctx, mc.Name, metav1.GetOptions{}); err == nil {
			return apierrors.NewAlreadyExists(clusters, mc.Name)
		}
		return invalid(mc.Name, field.ErrorList{field.Duplicate(claim.path, claim.Managed.String())})
	}
	return err
}

// clearFormer makes room for a new cluster of this name. What of a former one is not
// removed yet keeps the name taken.
func (r *Registrar) clearFormer(ctx context.Context, name string, dryRun bool) error {
	former, err := r.Records.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for a registration of cluster %s: %w", name, err)
	}
	mc, err := r.Clusters.Get(ctx, name, metav1.GetOptions{})
	if err == nil && mc.UID == former.Spec.ManagedClusterUID {
		return nil // The store says that the name is taken.
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking for cluster %s: %w", name, err)
	}
	if !Untouched(former) {
		return apierrors.NewConflict(clusters, name, errors.New("what the hub had made for a former cluster of this name is still being removed: try again later"))
	}
	if dryRun {
		return nil
	}
	return r.discard(ctx, former)
}

// discard removes the registration of a cluster that never got anything.
func (r *Registrar) discard(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) error {
	err := closeClaim(ctx, r.Records, registration)
	if errors.Is(err, errProvisioned) {
		return apierrors.NewConflict(clusters, registration.Name, errors.New("what the hub had made for a former cluster of this name is still being removed: try again later"))
	}
	if err != nil {
		return err
	}
	err = r.Records.Delete(ctx, registration.Name, registration.UID)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing the registration of a former cluster %s: %w", registration.Name, err)
	}
	if registration.Status.IRSA == nil {
		return nil
	}
	// What is not released here is free to take all the same, now that nobody has it.
	if err := r.Records.Release(ctx, registration.Status.IRSA.Hash, registration.Spec.ManagedClusterUID); err != nil {
		klog.FromContext(ctx).Error(err, "releasing the identity of a former cluster", "cluster", registration.Name)
	}
	return nil
}

// NotStored gives back what AdmitCreate reserved for a ManagedCluster that the store
// refused with cause. After a failure of which nobody knows what came of it, it is kept for a while.
func (r *Registrar) NotStored(ctx context.Context, mc *clusterv1.ManagedCluster, cause error) {
	var status apierrors.APIStatus
	if !errors.As(cause, &status) {
		return
	}
	if code := status.Status().Code; code < http.StatusBadRequest || code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout {
		return
	}
	claim, errs := readClaim(r.HubARN, mc.Annotations)
	if claim == nil || len(errs) > 0 {
		return
	}
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if err := r.Records.Release(ctx, claim.Hash(), mc.UID); err != nil {
		klog.FromContext(ctx).Error(err, "releasing the identity of a cluster that was not created", "cluster", mc.Name)
	}
}

// Created makes the registration of a ManagedCluster that was created by the caller.
func (r *Registrar) Created(ctx context.Context, mc *clusterv1.ManagedCluster) {
	by := callerOf(ctx)
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if err := r.ensure(ctx, mc, by); err != nil {
		klog.FromContext(ctx).Error(err, "registering a new cluster, which the controller does again", "cluster", mc.Name)
	}
}

// AdmitUpdate judges a changed ManagedCluster, and reserves the identity that it
// claims, if it may still claim one. decided says that it is written by a Decider,
// whose caller may decide. Who calls it calls Updated once it is stored.
func (r *Registrar) AdmitUpdate(ctx context.Context, mc, old *clusterv1.ManagedCluster, decided, dryRun bool) error {
	changed := mc.Spec.HubAcceptsClient != old.Spec.HubAcceptsClient
	if changed && !decided && (mc.Spec.HubAcceptsClient || !ByItself(ctx, mc.Name)) {
		if err := r.MayDecide(ctx, mc.Name); err != nil {
			return err
		}
	}
	accepting := mc.Spec.HubAcceptsClient && (changed || decided)
	claiming := claimChanged(mc.Annotations, old.Annotations) && !OnceAccepted(old)
	if !accepting && !claiming {
		return nil
	}

	registration, err := r.Records.Get(ctx, mc.Name)
	switch {
	case apierrors.IsNotFound(err):
		claim, _ := readClaim(r.HubARN, old.Annotations)
		registration = r.newRecord(old, callerOf(ctx), claim)
	case err != nil:
		return fmt.Errorf("reading the registration of cluster %s: %w", mc.Name, err)
	case registration.Spec.ManagedClusterUID != mc.UID:
		return apierrors.NewConflict(clusters, mc.Name, errors.New("what the hub had made for a former cluster of this name is still being removed: try again later"))
	}
	if claiming && open(registration) {
		claim, errs := readClaim(r.HubARN, mc.Annotations)
		if r.HubARN == nil {
			claim, errs = nil, nil
		}
		if len(errs) > 0 {
			return invalid(mc.Name, errs)
		}
		if claim != nil && accepting {
			return invalid(mc.Name, field.ErrorList{field.Forbidden(claim.path, "must be written before the cluster is accepted")})
		}
		if claim != nil {
			err := r.reserve(ctx, claim.Identity, mc, r.claimBy(claim.Identity, callerOf(ctx).Username), dryRun)
			if errors.Is(err, ErrClaimed) {
				return invalid(mc.Name, field.ErrorList{field.Duplicate(claim.path, claim.Managed.String())})
			}
			if err != nil {
				return err
			}
		}
	}
	if accepting {
		return r.acceptable(ctx, mc, registration)
	}
	return nil
}

// acceptable tells why a cluster cannot be accepted now, whoever asks for it.
func (r *Registrar) acceptable(ctx context.Context, mc *clusterv1.ManagedCluster, registration *registerv1alpha1.ManagedClusterRegistration) error {
	if mc.DeletionTimestamp != nil {
		return apierrors.NewConflict(clusters, mc.Name, errors.New("the cluster is being deleted"))
	}
	if r.Namespaces != nil {
		namespace, err := r.Namespaces.Get(mc.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("looking for namespace %s: %w", mc.Name, err)
		}
		if err == nil && (namespace.DeletionTimestamp != nil || namespace.Status.Phase == corev1.NamespaceTerminating) {
			return apierrors.NewConflict(clusters, mc.Name, fmt.Errorf("namespace %s is terminating: try again once it is gone", mc.Name))
		}
	}
	why := ReservedName(mc.Name)
	if why == "" {
		why = r.refusal(registration)
	}
	if why != "" {
		return invalid(mc.Name, field.ErrorList{field.Forbidden(field.NewPath("spec", "hubAcceptsClient"), why)})
	}
	if r.HubProblems != nil {
		// The hub may be repaired at any time: the decision stands.
		for _, problem := range r.HubProblems(registration.Spec.Driver) {
			warning.AddWarning(ctx, "", fmt.Sprintf("cluster %s gets no access by %s yet: %s", mc.Name, registration.Spec.Driver, problem))
		}
	}
	return nil
}

func (r *Registrar) refusal(registration *registerv1alpha1.ManagedClusterRegistration) string {
	if registration.Spec.IRSA != nil && registration.Spec.IRSA.Withdrawn {
		return "the cluster's IRSA claim is being withdrawn"
	}
	driver := r.driver(registration.Spec.Driver)
	if driver == nil {
		return fmt.Sprintf("the cluster is registered with %s, and this hub does not offer that", registration.Spec.Driver)
	}
	return driver.Refuses(registration)
}

func (r *Registrar) driver(name registerv1alpha1.RegistrationDriver) Driver {
	i := slices.IndexFunc(r.Drivers, func(d Driver) bool { return d.Name() == name })
	if i < 0 {
		return nil
	}
	return r.Drivers[i]
}

// Updated does what follows from a change of a ManagedCluster that was stored.
func (r *Registrar) Updated(ctx context.Context, mc, old *clusterv1.ManagedCluster, decided bool) {
	if r.Gate != nil {
		r.Gate.Observe(mc)
	}
	by := callerOf(ctx)
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if denied := !mc.Spec.HubAcceptsClient && (old.Spec.HubAcceptsClient || decided && OnceAccepted(mc)); denied {
		r.revoke(ctx, mc.Name)
	}
	if claimChanged(mc.Annotations, old.Annotations) && !OnceAccepted(mc) {
		if err := r.claimFromAnnotations(ctx, mc, by.Username); err != nil {
			klog.FromContext(ctx).Error(err, "taking the claim of a cluster, which the controller does again", "cluster", mc.Name)
		}
	}
}

// Deleted does what follows from the deletion of a ManagedCluster. gone says that
// nothing holds it any more.
func (r *Registrar) Deleted(ctx context.Context, mc *clusterv1.ManagedCluster, gone bool) {
	if !gone && mc.Spec.HubAcceptsClient {
		return // the controller has the agent remove what the hub delivered first
	}
	if r.Gate != nil {
		r.Gate.Deleted(mc)
	}
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if OnceAccepted(mc) {
		r.revoke(ctx, mc.Name)
		return
	}
	registration, err := r.Records.Get(ctx, mc.Name)
	if err == nil && registration.Spec.ManagedClusterUID == mc.UID && Untouched(registration) {
		err = r.discard(ctx, registration)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "removing the registration of a deleted cluster, which the controller does again", "cluster", mc.Name)
	}
}

func (r *Registrar) revoke(ctx context.Context, cluster string) {
	if r.Revoker == nil {
		return
	}
	if err := r.Revoker.Revoke(ctx, cluster); err != nil {
		klog.FromContext(ctx).Error(err, "revoking the access of a cluster, which the controller does again", "cluster", cluster)
	}
}

// afterStore is a context for what follows once a request is stored: its caller may
// have gone away.
func afterStore(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), afterStoreTimeout)
}

// ByItself tells whether it is an agent of the cluster that asks.
func ByItself(ctx context.Context, cluster string) bool {
	caller, known := request.UserFrom(ctx)
	return known && slices.ContainsFunc(clusterv1.AgentGroups(cluster), func(group string) bool { return slices.Contains(caller.GetGroups(), group) })
}

func callerOf(ctx context.Context) registerv1alpha1.Requester {
	caller, known := request.UserFrom(ctx)
	if !known {
		return registerv1alpha1.Requester{}
	}
	return registerv1alpha1.Requester{Username: caller.GetName(), Groups: caller.GetGroups()}
}

func invalid(cluster string, errs field.ErrorList) error {
	return apierrors.NewInvalid(clusterv1.SchemeGroupVersion.WithKind("ManagedCluster").GroupKind(), cluster, errs)
}
