package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// EnsureRecord creates the registration of a ManagedCluster if there is none, and stores the claim in its annotations if
// the cluster may still claim. It returns a conflict while objects of a previous cluster of that name remain.
func (r *Registrar) EnsureRecord(ctx context.Context, mc *clusterv1.ManagedCluster) error {
	return r.ensure(ctx, mc, registerv1alpha1.Requester{Username: mc.Annotations[RequestedByAnnotation]})
}

func (r *Registrar) ensure(ctx context.Context, mc *clusterv1.ManagedCluster, by registerv1alpha1.Requester) error {
	registration, err := reconcile.OrNil(r.Records.Get(ctx, mc.Name))
	switch {
	case err != nil:
		return fmt.Errorf("reading the registration of ManagedCluster %q: %w", mc.Name, err)
	case registration == nil:
		return r.create(ctx, mc, by)
	case registration.Spec.ManagedClusterUID != mc.UID:
		if !Replaceable(registration) {
			return apierrors.NewConflict(registrations, mc.Name, errors.New("the registration belongs to a previous cluster of this name"))
		}
		if err := r.discard(ctx, registration); err != nil {
			return err
		}
		return r.create(ctx, mc, by)
	case EverAccepted(mc) || !claimable(registration):
		return nil
	}
	return r.claimFromAnnotations(ctx, mc, by.Username)
}

func (r *Registrar) create(ctx context.Context, mc *clusterv1.ManagedCluster, by registerv1alpha1.Requester) error {
	var claimed *claim
	var err error
	// If no decision is recorded, the cluster was accepted without a check of its claim. Its agent could write any annotation since.
	if !mc.Spec.HubAcceptsClient || mc.Status.Acceptance != nil {
		claimed, err = r.annotated(mc)
	}
	if claimed != nil {
		err = r.reserve(ctx, claimed.Identity, mc, r.claimBy(claimed.Identity, by.Username), false)
		if err != nil && !errors.Is(err, ErrClaimed) {
			return err
		}
	}
	if err != nil {
		klog.FromContext(ctx).Info("the claim of a cluster is not taken", "cluster", mc.Name, "reason", err.Error())
		claimed = nil
	}
	_, err = r.Records.Create(ctx, r.newRecord(mc, by, claimed))
	if apierrors.IsAlreadyExists(err) {
		return nil // another replica created it first
	}
	return err
}

func (r *Registrar) newRecord(mc *clusterv1.ManagedCluster, by registerv1alpha1.Requester, claimed *claim) *registerv1alpha1.ManagedClusterRegistration {
	registration := &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: mc.Name},
		Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			ManagedClusterUID: mc.UID, RequestedBy: by, Driver: defaultDriver(r.Drivers),
		},
	}
	if claimed != nil {
		setClaim(registration, claimed.Identity, r.claimBy(claimed.Identity, by.Username))
	}
	return registration
}

// defaultDriver returns the driver of clusters without a claim.
func defaultDriver(drivers []Driver) registerv1alpha1.RegistrationDriver {
	if len(drivers) == 0 || slices.ContainsFunc(drivers, func(d Driver) bool { return d.Name() == registerv1alpha1.DriverCSR }) {
		return registerv1alpha1.DriverCSR
	}
	return drivers[0].Name()
}

func (r *Registrar) claimBy(identity irsa.Identity, user string) registerv1alpha1.IRSAClaim {
	return registerv1alpha1.IRSAClaim{
		ManagedClusterARN: identity.Managed.String(), ClaimedBy: user, ClaimedAt: metav1.NewTime(r.Clock.Now()).Rfc3339Copy(),
	}
}

// annotated returns the claim in the annotations of a stored ManagedCluster. It returns an error if the hub does not
// support the claim.
func (r *Registrar) annotated(mc *clusterv1.ManagedCluster) (*claim, error) {
	claimed, errs := readClaim(r.HubARN, mc.Annotations)
	return claimed, errs.ToAggregate()
}

// claimFromAnnotations stores the claim in the annotations of a ManagedCluster. It ignores an invalid claim, which
// AdmitUpdate has refused.
func (r *Registrar) claimFromAnnotations(ctx context.Context, mc *clusterv1.ManagedCluster, user string) error {
	claimed, err := r.annotated(mc)
	if claimed == nil || err != nil {
		return nil
	}
	_, err = r.take(ctx, mc, claimed.Identity, user, claimable)
	if errors.Is(err, ErrClaimed) || errors.Is(err, errStale) {
		klog.FromContext(ctx).V(2).Info("the claim of a cluster is not taken", "cluster", mc.Name, "reason", err.Error())
		return nil
	}
	return err
}

// take reserves an identity, stores its claim in the registration, and returns the registration. It returns ErrClaimed if
// another cluster holds the identity, or errStale if the registration no longer takes a claim.
func (r *Registrar) take(ctx context.Context, mc *clusterv1.ManagedCluster, identity irsa.Identity, user string, free func(*registerv1alpha1.ManagedClusterRegistration) bool) (*registerv1alpha1.ManagedClusterRegistration, error) {
	claimed := r.claimBy(identity, user)
	if err := r.reserve(ctx, identity, mc, claimed, false); err != nil {
		return nil, err
	}
	// An unused reservation expires. A release after an error could release the claim of a concurrent request.
	return r.Records.Update(ctx, mc.Name, func(registration *registerv1alpha1.ManagedClusterRegistration) error {
		current := registration.Spec.IRSA
		switch {
		case registration.Spec.ManagedClusterUID != mc.UID:
			return errStale
		case current != nil && !current.Withdrawn && current.ManagedClusterARN == claimed.ManagedClusterARN:
			if registration.Status.IRSA == nil { // adopted from another hub
				registration.Status.IRSA = statusOf(identity)
			}
		case !free(registration):
			return errStale
		default:
			setClaim(registration, identity, claimed)
		}
		return nil
	})
}

// reserveClaim reserves the claimed identity for a cluster, or only checks whether it could if dryRun is true. It returns
// an API error if another cluster holds the identity.
func (r *Registrar) reserveClaim(ctx context.Context, claimed *claim, mc *clusterv1.ManagedCluster, dryRun bool) error {
	err := r.reserve(ctx, claimed.Identity, mc, r.claimBy(claimed.Identity, callerOf(ctx).Username), dryRun)
	if errors.Is(err, ErrClaimed) {
		return invalid(mc.Name, field.ErrorList{field.Duplicate(claimed.path, claimed.Managed.String())})
	}
	return err
}

// reserve reserves an identity for a cluster, or only checks whether it could if dryRun is true. It returns ErrClaimed
// if another cluster holds the identity.
func (r *Registrar) reserve(ctx context.Context, identity irsa.Identity, mc *clusterv1.ManagedCluster, claimed registerv1alpha1.IRSAClaim, dryRun bool) error {
	if dryRun {
		holder, err := r.Records.Reserved(ctx, identity.Hash())
		if err != nil {
			return fmt.Errorf("reading the reservation of identity %s: %w", identity.Hash(), err)
		}
		if holder != nil && holder.ClusterUID != mc.UID && holder.ClusterName != mc.Name {
			return ErrClaimed
		}
		return nil
	}
	err := r.Records.Reserve(ctx, identity.Hash(), Holder{ClusterName: mc.Name, ClusterUID: mc.UID, Claim: claimed})
	if err != nil && !errors.Is(err, ErrClaimed) {
		return fmt.Errorf("reserving identity %s: %w", identity.Hash(), err)
	}
	return err
}
