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

// afterStoreTimeout bounds the work of a request after its object is stored. The controller completes the rest.
const afterStoreTimeout = 5 * time.Second

var clusters = clusterv1.Resource("managedclusters")

// errFormer is the reason of a conflict with a previous cluster of the same name.
var errFormer = errors.New("objects of a previous cluster of this name are still being removed: try again later")

// Clusters reads stored ManagedClusters.
type Clusters interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*clusterv1.ManagedCluster, error)
}

// Decision is a decision about a cluster.
type Decision struct {
	Cluster string
	// UID and ResourceVersion are preconditions on the ManagedCluster, if set.
	UID             types.UID
	ResourceVersion string
	// Acceptance is the decision. The decider and the time default to the caller and the current
	// time.
	Acceptance clusterv1.Acceptance
	// DryRun makes all checks and writes nothing.
	DryRun bool
}

// Decider writes decisions.
type Decider interface {
	// Apply accepts or denies a ManagedCluster. It makes all checks of a request except for the permission of the caller.
	Apply(ctx context.Context, decision Decision) (*clusterv1.ManagedCluster, error)
}

// Revoker revokes the access of a cluster. It works on any replica.
type Revoker interface {
	Revoke(ctx context.Context, cluster string) error
}

// Gate denies requests to this server by the agents of denied and deleted clusters.
type Gate interface {
	// Observe records a stored ManagedCluster. Deleted records a ManagedCluster that was or is
	// being deleted.
	Observe(mc *clusterv1.ManagedCluster)
	Deleted(mc *clusterv1.ManagedCluster)
}

// Approver approves the pending CertificateSigningRequests of an accepted cluster that qualify, and returns their names.
type Approver interface {
	ApprovePending(ctx context.Context, cluster string) ([]string, error)
}

// Registrar checks requests for ManagedClusters and registrations before they are stored, and applies their effects
// afterwards.
type Registrar struct {
	// HubARN is the ARN of the hub's EKS cluster. It is nil without the driver aws-irsa.
	HubARN *irsa.ARN
	// Mapping is how the hub's EKS cluster maps IAM roles to groups.
	Mapping irsa.Mapping
	// Drivers are the enabled registration drivers.
	Drivers []Driver

	Records   Records
	Clusters  Clusters
	Decisions Decider
	// MayDecide returns an error if the caller may not accept or deny a cluster.
	MayDecide func(ctx context.Context, cluster string) error
	// HubProblems returns the missing prerequisites of a driver on the hub.
	HubProblems func(driver registerv1alpha1.RegistrationDriver) []string
	// Namespaces lists the namespaces of the hub. If it is nil, they are not checked.
	Namespaces corev1listers.NamespaceLister
	// Gate receives each decision first.
	Gate Gate
	// Revoker revokes within the request of a denial. If it fails, the controller revokes.
	Revoker Revoker
	// Approver approves certificates within the request of an acceptance. It may be nil.
	Approver Approver
	Clock    clock.PassiveClock
}

// AdmitCreate checks a new ManagedCluster, which has its UID, and reserves the identity that it claims. The caller calls
// Created after the ManagedCluster is stored, or NotStored if it is not.
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
	err := r.reserveClaim(ctx, claim, mc, dryRun)
	if apierrors.IsInvalid(err) {
		// A client that lost the response and repeats the request expects AlreadyExists.
		if _, err := r.Clusters.Get(ctx, mc.Name, metav1.GetOptions{}); err == nil {
			return apierrors.NewAlreadyExists(clusters, mc.Name)
		}
	}
	return err
}

// clearFormer removes the registration of a previous cluster of this name. It returns a conflict while objects of that
// cluster remain.
func (r *Registrar) clearFormer(ctx context.Context, name string, dryRun bool) error {
	former, err := r.Records.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the registration of ManagedCluster %q: %w", name, err)
	}
	mc, err := r.Clusters.Get(ctx, name, metav1.GetOptions{})
	if err == nil && mc.UID == former.Spec.ManagedClusterUID {
		return nil // the store returns AlreadyExists
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ManagedCluster %q: %w", name, err)
	}
	if !Replaceable(former) {
		return apierrors.NewConflict(clusters, name, errFormer)
	}
	if dryRun {
		return nil
	}
	return r.discard(ctx, former)
}

// discard deletes the registration of a cluster for which nothing was granted or provisioned.
func (r *Registrar) discard(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) error {
	err := erase(ctx, r.Records, registration)
	if errors.Is(err, errProvisioned) {
		return apierrors.NewConflict(clusters, registration.Name, errFormer)
	}
	return err
}

// NotStored releases the reservation of AdmitCreate for a ManagedCluster that the store refused with cause. After an
// error with an unknown outcome, the reservation expires instead.
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
		klog.FromContext(ctx).Error(err, "Failed to release the identity of a cluster that was not created", "cluster", mc.Name)
	}
}

// Created creates the registration of a new ManagedCluster.
func (r *Registrar) Created(ctx context.Context, mc *clusterv1.ManagedCluster) {
	by := callerOf(ctx)
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if err := r.ensure(ctx, mc, by); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to create the registration of a new cluster; the controller retries", "cluster", mc.Name)
	}
}

// AdmitUpdate checks a changed ManagedCluster, and reserves the identity that it claims if it may still claim one.
// decided means that a Decider writes it and has checked the caller. The caller calls Updated after it is stored.
func (r *Registrar) AdmitUpdate(ctx context.Context, mc, old *clusterv1.ManagedCluster, decided, dryRun bool) error {
	changed := mc.Spec.HubAcceptsClient != old.Spec.HubAcceptsClient
	if changed && !decided && (mc.Spec.HubAcceptsClient || !ByItself(ctx, mc.Name)) {
		if err := r.MayDecide(ctx, mc.Name); err != nil {
			return err
		}
	}
	accepting := mc.Spec.HubAcceptsClient && (changed || decided)
	claiming := claimChanged(mc.Annotations, old.Annotations) && !EverAccepted(old)
	if !accepting && !claiming {
		return nil
	}

	registration, err := r.Records.Get(ctx, mc.Name)
	switch {
	case apierrors.IsNotFound(err):
		claim, _ := readClaim(r.HubARN, old.Annotations)
		registration = r.newRecord(old, callerOf(ctx), claim)
	case err != nil:
		return fmt.Errorf("reading the registration of ManagedCluster %q: %w", mc.Name, err)
	case registration.Spec.ManagedClusterUID != mc.UID:
		return apierrors.NewConflict(clusters, mc.Name, errFormer)
	}
	if claiming && r.HubARN != nil && claimable(registration) {
		claim, errs := readClaim(r.HubARN, mc.Annotations)
		if len(errs) > 0 {
			return invalid(mc.Name, errs)
		}
		if claim != nil && accepting {
			return invalid(mc.Name, field.ErrorList{field.Forbidden(claim.path, "cannot be set together with the acceptance; set it before the cluster is accepted")})
		}
		if claim != nil {
			if err := r.reserveClaim(ctx, claim, mc, dryRun); err != nil {
				return err
			}
		}
	}
	if accepting {
		return r.acceptable(ctx, mc, registration)
	}
	return nil
}

// acceptable returns an API error if the cluster cannot be accepted now.
func (r *Registrar) acceptable(ctx context.Context, mc *clusterv1.ManagedCluster, registration *registerv1alpha1.ManagedClusterRegistration) error {
	if mc.DeletionTimestamp != nil {
		return apierrors.NewConflict(clusters, mc.Name, errors.New("the cluster is being deleted"))
	}
	if r.Namespaces != nil {
		namespace, err := r.Namespaces.Get(mc.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading namespace %q: %w", mc.Name, err)
		}
		if err == nil && (namespace.DeletionTimestamp != nil || namespace.Status.Phase == corev1.NamespaceTerminating) {
			return apierrors.NewConflict(clusters, mc.Name, fmt.Errorf("namespace %q is terminating: try again after it is deleted", mc.Name))
		}
	}
	why := ReservedName(mc.Name)
	if why == "" {
		why = r.refusal(registration)
	}
	if why != "" {
		return invalid(mc.Name, field.ErrorList{field.Forbidden(field.NewPath("spec", "hubAcceptsClient"), why)})
	}
	// The decision is valid even if the hub must be repaired first.
	for _, problem := range r.HubProblems(registration.Spec.Driver) {
		warning.AddWarning(ctx, "", fmt.Sprintf("ManagedCluster %q gets no access yet, since the hub does not meet a requirement of the driver %s: %s", mc.Name, registration.Spec.Driver, problem))
	}
	return nil
}

func (r *Registrar) refusal(registration *registerv1alpha1.ManagedClusterRegistration) string {
	if withdrawn(registration) {
		return "the IRSA claim of the cluster is being withdrawn"
	}
	driver := driverNamed(r.Drivers, registration.Spec.Driver)
	if driver == nil {
		return fmt.Sprintf("the cluster registered with the driver %s, which is not enabled; add it to --registration-auth of the server", registration.Spec.Driver)
	}
	return driver.Refuses(registration)
}

// Updated applies the effects of a stored change of a ManagedCluster.
func (r *Registrar) Updated(ctx context.Context, mc, old *clusterv1.ManagedCluster, decided bool) {
	r.Gate.Observe(mc)
	by := callerOf(ctx)
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if denied := !mc.Spec.HubAcceptsClient && (old.Spec.HubAcceptsClient || decided && EverAccepted(mc)); denied {
		r.revoke(ctx, mc.Name)
	}
	if claimChanged(mc.Annotations, old.Annotations) && !EverAccepted(mc) {
		if err := r.claimFromAnnotations(ctx, mc, by.Username); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to store the claim of a cluster; the controller retries", "cluster", mc.Name)
		}
	}
}

// Deleted applies the effects of the deletion of a ManagedCluster. gone means that it has no finalizers left.
func (r *Registrar) Deleted(ctx context.Context, mc *clusterv1.ManagedCluster, gone bool) {
	if !gone && mc.Spec.HubAcceptsClient {
		return // the controller drains the cluster first
	}
	r.Gate.Deleted(mc)
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if EverAccepted(mc) {
		r.revoke(ctx, mc.Name)
		return
	}
	registration, err := r.Records.Get(ctx, mc.Name)
	if err == nil && registration.Spec.ManagedClusterUID == mc.UID && Untouched(registration) {
		err = r.discard(ctx, registration)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Failed to delete the registration of a deleted cluster; the controller retries", "cluster", mc.Name)
	}
}

func (r *Registrar) revoke(ctx context.Context, cluster string) {
	if err := r.Revoker.Revoke(ctx, cluster); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to revoke the access of a cluster; the controller retries", "cluster", cluster)
	}
}

// afterStore returns a context for the work after an object is stored, which continues if the client disconnects.
func afterStore(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), afterStoreTimeout)
}

// ByItself reports whether the caller is an agent of the cluster.
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
