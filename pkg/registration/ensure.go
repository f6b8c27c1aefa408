package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// EnsureRecord makes the registration of a ManagedCluster if it has none, and takes
// the claim that its annotations make if they may still make one. It fails with
// Conflict while what was made for a former cluster of that name is being removed.
func (r *Registrar) EnsureRecord(ctx context.Context, mc *clusterv1.ManagedCluster) error {
	return r.ensure(ctx, mc, registerv1alpha1.Requester{Username: mc.Annotations[RequestedByAnnotation]})
}

func (r *Registrar) ensure(ctx context.Context, mc *clusterv1.ManagedCluster, by registerv1alpha1.Requester) error {
	registration, err := r.Records.Get(ctx, mc.Name)
	if apierrors.IsNotFound(err) {
		return r.create(ctx, mc, by)
	}
	if err != nil {
		return fmt.Errorf("reading the registration of cluster %s: %w", mc.Name, err)
	}
	if registration.Spec.ManagedClusterUID != mc.UID {
		if !Untouched(registration) {
			return apierrors.NewConflict(registerv1alpha1.Resource("managedclusters"), mc.Name, errors.New("the registration is that of a former cluster of this name"))
		}
		if err := r.discard(ctx, registration); err != nil {
			return err
		}
		return r.create(ctx, mc, by)
	}
	if err := r.complete(ctx, mc, registration, by); err != nil {
		return err
	}
	if OnceAccepted(mc) || !open(registration) {
		return nil
	}
	return r.claimFromAnnotations(ctx, mc, by.Username)
}

func (r *Registrar) create(ctx context.Context, mc *clusterv1.ManagedCluster, by registerv1alpha1.Requester) error {
	logger := klog.FromContext(ctx).WithValues("cluster", mc.Name)
	var claimed *claim
	// A cluster that was accepted by a server which knew no claims had all the time to
	// write whatever it wanted there.
	if !mc.Spec.HubAcceptsClient || mc.Status.Acceptance != nil {
		var err error
		if claimed, err = r.annotated(mc); err != nil {
			logger.Info("the claim of a cluster is not taken", "reason", err.Error())
		}
	}
	if claimed != nil {
		err := r.reserve(ctx, claimed.Identity, mc, r.claimBy(claimed.Identity, by.Username), false)
		switch {
		case errors.Is(err, ErrClaimed):
			logger.Info("the claim of a cluster is not taken", "reason", err.Error())
			claimed = nil
		case err != nil:
			return err
		}
	}
	_, err := r.Records.Create(ctx, r.newRecord(mc, by, claimed))
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Another replica was faster.
	registration, err := r.Records.Get(ctx, mc.Name)
	if err != nil {
		return fmt.Errorf("reading the registration of cluster %s: %w", mc.Name, err)
	}
	if registration.Spec.ManagedClusterUID != mc.UID {
		return apierrors.NewConflict(registerv1alpha1.Resource("managedclusters"), mc.Name, errors.New("the registration is that of another cluster of this name"))
	}
	return r.complete(ctx, mc, registration, by)
}

// complete adds what only the request that created the ManagedCluster knows to a
// registration that the controller was faster to make.
func (r *Registrar) complete(ctx context.Context, mc *clusterv1.ManagedCluster, registration *registerv1alpha1.ManagedClusterRegistration, by registerv1alpha1.Requester) error {
	known := registration.Spec.RequestedBy
	if by.Username == "" || known.Username != "" && known.Username != by.Username || len(known.Groups) > 0 || known.Username != "" && len(by.Groups) == 0 {
		return nil
	}
	_, err := r.Records.Update(ctx, mc.Name, func(registration *registerv1alpha1.ManagedClusterRegistration) error {
		if registration.Spec.ManagedClusterUID == mc.UID {
			registration.Spec.RequestedBy = by
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("completing the registration of cluster %s: %w", mc.Name, err)
	}
	return nil
}

// newRecord is the registration of a ManagedCluster that has none.
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

// defaultDriver is that of clusters without a claim.
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

// annotated returns what the annotations of a stored ManagedCluster claim; nil with
// the reason if that cannot be claimed here.
func (r *Registrar) annotated(mc *clusterv1.ManagedCluster) (*claim, error) {
	claimed, errs := readClaim(r.HubARN, mc.Annotations)
	return claimed, errs.ToAggregate()
}

// claimFromAnnotations takes the claim that the annotations of a ManagedCluster make.
// One that cannot be taken is left alone, as AdmitUpdate has told who wrote it.
func (r *Registrar) claimFromAnnotations(ctx context.Context, mc *clusterv1.ManagedCluster, user string) error {
	claimed, err := r.annotated(mc)
	if claimed == nil || err != nil {
		return nil
	}
	err = r.take(ctx, mc, claimed.Identity, user, open)
	if errors.Is(err, ErrClaimed) || errors.Is(err, errTaken) {
		klog.FromContext(ctx).V(2).Info("the claim of a cluster is not taken", "cluster", mc.Name, "reason", err.Error())
		return nil
	}
	return err
}

// take reserves an identity and writes the claim of it into the registration of a
// cluster, if that is free for it. It fails with ErrClaimed or errTaken otherwise.
func (r *Registrar) take(ctx context.Context, mc *clusterv1.ManagedCluster, identity irsa.Identity, user string, free func(*registerv1alpha1.ManagedClusterRegistration) bool) error {
	claimed := r.claimBy(identity, user)
	if err := r.reserve(ctx, identity, mc, claimed, false); err != nil {
		return err
	}
	_, err := r.Records.Update(ctx, mc.Name, func(registration *registerv1alpha1.ManagedClusterRegistration) error {
		if registration.Spec.IRSA != nil && !registration.Spec.IRSA.Withdrawn && registration.Spec.IRSA.ManagedClusterARN == claimed.ManagedClusterARN {
			return nil
		}
		if registration.Spec.ManagedClusterUID != mc.UID || !free(registration) {
			return errTaken
		}
		setClaim(registration, identity, claimed)
		return nil
	})
	// An identity that is reserved and then not claimed is free to take after a while:
	// to release it here could release what another request has just claimed with it.
	return err
}

// reserve makes an identity that of a cluster, or, on dry-run, finds out whether it
// could be. It fails with ErrClaimed.
func (r *Registrar) reserve(ctx context.Context, identity irsa.Identity, mc *clusterv1.ManagedCluster, claimed registerv1alpha1.IRSAClaim, dryRun bool) error {
	if dryRun {
		holder, err := r.Records.Reserved(ctx, identity.Hash())
		if err != nil {
			return fmt.Errorf("looking for who holds the identity %s: %w", identity.Hash(), err)
		}
		if holder != nil && holder.ClusterUID != mc.UID && holder.ClusterName != mc.Name {
			return ErrClaimed
		}
		return nil
	}
	err := r.Records.Reserve(ctx, identity.Hash(), Holder{ClusterName: mc.Name, ClusterUID: mc.UID, Claim: claimed})
	if err != nil && !errors.Is(err, ErrClaimed) {
		return fmt.Errorf("reserving the identity %s: %w", identity.Hash(), err)
	}
	return err
}
