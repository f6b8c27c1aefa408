package registration

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// withdrawnReason is the reason of the denial that follows the withdrawal of a claim.
const withdrawnReason = "IRSA claim withdrawn"

var registrations = registerv1alpha1.Resource("managedclusters")

// Acceptance returns the decision about a cluster.
func (r *Registrar) Acceptance(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterAcceptance, error) {
	mc, err := r.Clusters.Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return acceptanceOf(mc), nil
}

// Decide writes a decision, and returns it with its effects.
func (r *Registrar) Decide(ctx context.Context, decision Decision) (*registerv1alpha1.ManagedClusterAcceptance, error) {
	mc, err := r.Decisions.Apply(ctx, decision)
	if err != nil {
		return nil, err
	}
	out := acceptanceOf(mc)
	registration, err := r.Records.Get(ctx, decision.Cluster)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Failed to read the registration of a decided cluster", "cluster", decision.Cluster)
		}
		return out, nil
	}
	out.Status.Driver = registration.Spec.Driver
	if r.Approver == nil || decision.DryRun || !mc.Spec.HubAcceptsClient || registration.Spec.Driver != registerv1alpha1.DriverCSR {
		return out, nil
	}
	ctx, cancel := afterStore(ctx)
	defer cancel()
	if out.Status.ApprovedRequests, err = r.Approver.ApprovePending(ctx, decision.Cluster); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to approve the pending CertificateSigningRequests of a cluster; the controller retries", "cluster", decision.Cluster)
	}
	return out, nil
}

func acceptanceOf(mc *clusterv1.ManagedCluster) *registerv1alpha1.ManagedClusterAcceptance {
	out := &registerv1alpha1.ManagedClusterAcceptance{
		ObjectMeta: metav1.ObjectMeta{
			Name: mc.Name, UID: mc.UID, ResourceVersion: mc.ResourceVersion, CreationTimestamp: mc.CreationTimestamp,
		},
		Spec: registerv1alpha1.ManagedClusterAcceptanceSpec{Accepted: mc.Spec.HubAcceptsClient},
	}
	if a := mc.Status.Acceptance; a != nil {
		out.Spec.Reason, out.Spec.Requesters = a.Reason, a.Requesters
		out.Status.DecidedBy, out.Status.DecidedAt = a.DecidedBy, a.DecidedAt.DeepCopy()
	}
	return out
}

// Claim claims the given ARN, or the ARN in the annotations of the ManagedCluster. It returns the AWS resources that
// the claim requires. A repeated claim of the same ARN only returns these resources.
func (r *Registrar) Claim(ctx context.Context, cluster string, given *registerv1alpha1.ManagedClusterIRSA, dryRun bool) (*registerv1alpha1.ManagedClusterIRSA, error) {
	mc, registration, err := r.registered(ctx, cluster, dryRun)
	if err != nil {
		return nil, err
	}
	if err := r.mayClaim(ctx, registration); err != nil {
		return nil, err
	}
	identity, err := r.asked(mc, given)
	if err != nil {
		return nil, err
	}
	if given.UID != "" && given.UID != mc.UID {
		return nil, refused(cluster, "the ManagedCluster was deleted and created again")
	}
	current := registration.Spec.IRSA
	switch {
	case current != nil && current.Withdrawn:
		return nil, refused(cluster, "the previous claim of the cluster is being withdrawn: try again later")
	case current != nil && current.ManagedClusterARN == identity.Managed.String():
		if registration.Status.IRSA != nil || dryRun {
			return r.answer(mc, registration, given.Spec)
		}
	case current != nil:
		return nil, refused(cluster, "the cluster has claimed another ARN: withdraw that claim first")
	case mc.DeletionTimestamp != nil:
		return nil, refused(cluster, "the cluster is being deleted")
	case mc.Spec.HubAcceptsClient:
		return nil, refused(cluster, "the hub accepted the cluster without a claim: deny the cluster first")
	case meta.IsStatusConditionTrue(registration.Status.Conditions, registerv1alpha1.RegistrationAccessGranted):
		return nil, refused(cluster, "the access of the cluster is being removed: try again later")
	}

	user := callerOf(ctx).Username
	if dryRun {
		claimed := r.claimBy(identity, user)
		if err := r.reserve(ctx, identity, mc, claimed, true); err != nil {
			return nil, unclaimable(cluster, err)
		}
		registration = registration.DeepCopy()
		setClaim(registration, identity, claimed)
		return r.answer(mc, registration, given.Spec)
	}
	registration, err = r.take(ctx, mc, identity, user, func(registration *registerv1alpha1.ManagedClusterRegistration) bool {
		return registration.Spec.IRSA == nil
	})
	if err != nil {
		return nil, unclaimable(cluster, err)
	}
	return r.answer(mc, registration, given.Spec)
}

// registered returns a cluster and its registration, which it creates if there is none.
func (r *Registrar) registered(ctx context.Context, cluster string, dryRun bool) (*clusterv1.ManagedCluster, *registerv1alpha1.ManagedClusterRegistration, error) {
	mc, err := r.Clusters.Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	registration, err := reconcile.OrNil(r.Records.Get(ctx, cluster))
	if err == nil && registration == nil {
		if dryRun {
			return mc, r.newRecord(mc, registerv1alpha1.Requester{Username: mc.Annotations[RequestedByAnnotation]}, nil), nil
		}
		if err = r.EnsureRecord(ctx, mc); err == nil {
			registration, err = r.Records.Get(ctx, cluster)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if registration.Spec.ManagedClusterUID != mc.UID {
		return nil, nil, refused(cluster, errFormer.Error())
	}
	return mc, registration, nil
}

// mayClaim allows the creator of a ManagedCluster, and callers with permission to accept it, to claim an ARN.
func (r *Registrar) mayClaim(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) error {
	if by := registration.Spec.RequestedBy.Username; by != "" && by == callerOf(ctx).Username {
		return nil
	}
	return r.MayDecide(ctx, registration.Name)
}

// asked returns the identity that a request claims.
func (r *Registrar) asked(mc *clusterv1.ManagedCluster, given *registerv1alpha1.ManagedClusterIRSA) (irsa.Identity, error) {
	path := field.NewPath("spec", "managedClusterARN")
	invalidClaim := func(errs ...*field.Error) error {
		return apierrors.NewInvalid(registerv1alpha1.SchemeGroupVersion.WithKind("ManagedClusterIRSA").GroupKind(), mc.Name, errs)
	}
	if r.HubARN == nil {
		return irsa.Identity{}, invalidClaim(field.Forbidden(path, noIRSA))
	}
	if given.Spec.ManagedClusterARN == "" {
		claimed, errs := readClaim(r.HubARN, mc.Annotations)
		if len(errs) > 0 {
			return irsa.Identity{}, invalidClaim(errs...)
		}
		if claimed == nil {
			return irsa.Identity{}, invalidClaim(field.Required(path, "required unless an annotation of the ManagedCluster contains it"))
		}
		return claimed.Identity, nil
	}
	identity, err := identify(*r.HubARN, given.Spec.ManagedClusterARN)
	if err != nil {
		return irsa.Identity{}, invalidClaim(field.Invalid(path, shown(given.Spec.ManagedClusterARN), err.Error()))
	}
	return identity, nil
}

// Claimed returns the AWS resources that the claim of a cluster requires, and the state of the
// claim.
func (r *Registrar) Claimed(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterIRSA, error) {
	mc, err := r.Clusters.Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	registration, err := r.Records.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if registration.Spec.ManagedClusterUID != mc.UID || registration.Spec.IRSA == nil || r.HubARN == nil {
		return nil, noClaim(cluster)
	}
	return r.answer(mc, registration, registerv1alpha1.ManagedClusterIRSASpec{})
}

// Withdraw withdraws the claim of a cluster, and denies the cluster if it was accepted. admit checks the claim before
// the first write.
func (r *Registrar) Withdraw(ctx context.Context, cluster string, admit func(*registerv1alpha1.ManagedClusterIRSA) error, dryRun bool) (*registerv1alpha1.ManagedClusterIRSA, error) {
	mc, registration, err := r.registered(ctx, cluster, dryRun)
	if err != nil {
		return nil, err
	}
	if registration.Spec.IRSA == nil || r.HubARN == nil {
		return nil, noClaim(cluster)
	}
	if mc.Spec.HubAcceptsClient {
		err = r.MayDecide(ctx, cluster)
	} else {
		err = r.mayClaim(ctx, registration)
	}
	if err != nil {
		return nil, err
	}
	out, err := r.answer(mc, registration, registerv1alpha1.ManagedClusterIRSASpec{})
	if err != nil {
		return nil, err
	}
	if err := admit(out); err != nil {
		return nil, err
	}
	if mc.Spec.HubAcceptsClient {
		mc, err = r.Decisions.Apply(ctx, Decision{
			Cluster: cluster, UID: mc.UID, Acceptance: clusterv1.Acceptance{Reason: withdrawnReason}, DryRun: dryRun,
		})
		if err != nil {
			return nil, err
		}
	}
	if dryRun {
		out.Status.Accepted = mc.Spec.HubAcceptsClient
		return out, nil
	}
	registration, err = r.Records.Update(ctx, cluster, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if current.UID != registration.UID || current.Spec.IRSA == nil || current.Spec.IRSA.ManagedClusterARN != registration.Spec.IRSA.ManagedClusterARN {
			return refused(cluster, "the claim was changed at the same time")
		}
		current.Spec.IRSA.Withdrawn = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	// A claim for which AWS has no resources ends without the controller.
	if !provisioned(registration) {
		if err := forgetClaim(ctx, r.Records, registration, defaultDriver(r.Drivers)); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to end the claim of a cluster; the controller retries", "cluster", cluster)
		}
	}
	return r.answer(mc, registration, registerv1alpha1.ManagedClusterIRSASpec{})
}

// forgetClaim ends a withdrawn claim. Afterwards, the cluster is registered with the driver next. It returns an error while
// AWS may contain resources of the claim, and does nothing for other claims. It releases the identity first, since no
// caller can claim for the cluster during a withdrawal.
func forgetClaim(ctx context.Context, records Records, registration *registerv1alpha1.ManagedClusterRegistration, next registerv1alpha1.RegistrationDriver) error {
	if !withdrawn(registration) {
		return nil
	}
	if provisioned(registration) {
		return fmt.Errorf("AWS may contain resources of ManagedCluster %q", registration.Name)
	}
	if err := release(ctx, records, registration); err != nil {
		return err
	}
	claimed := *registration.Spec.IRSA
	_, err := records.Update(ctx, registration.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if current.UID == registration.UID && current.Spec.IRSA != nil && *current.Spec.IRSA == claimed && !provisioned(current) {
			current.Spec.IRSA, current.Status.IRSA, current.Spec.Driver = nil, nil, next
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ending the claim of ManagedCluster %q: %w", registration.Name, err)
	}
	return nil
}

// errProvisioned is returned by closeClaim while AWS may contain resources of the claim.
var errProvisioned = errors.New("AWS may contain resources of the claim")

// closeClaim marks the claim of a registration that is about to be deleted, so that no driver provisions it.
// Drivers check the claim in the write that precedes their first call to AWS. If that write came first, closeClaim
// returns errProvisioned.
func closeClaim(ctx context.Context, records Records, registration *registerv1alpha1.ManagedClusterRegistration) error {
	_, err := records.Update(ctx, registration.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		switch {
		case current.UID != registration.UID:
			return errOther
		case provisioned(current):
			return errProvisioned
		case current.Spec.IRSA != nil:
			current.Spec.IRSA.Withdrawn = true
		}
		return nil
	})
	if err == nil || apierrors.IsNotFound(err) || errors.Is(err, errOther) {
		return nil
	}
	return fmt.Errorf("closing the claim of ManagedCluster %q: %w", registration.Name, err)
}

// erase deletes a registration and releases its identity. It returns errProvisioned while AWS may contain resources of the
// claim.
func erase(ctx context.Context, records Records, registration *registerv1alpha1.ManagedClusterRegistration) error {
	if err := closeClaim(ctx, records, registration); err != nil {
		return err
	}
	if err := release(ctx, records, registration); err != nil {
		return err
	}
	err := records.Delete(ctx, registration.Name, registration.UID)
	if err != nil && !reconcile.Outdated(err) {
		return fmt.Errorf("deleting the registration of ManagedCluster %q: %w", registration.Name, err)
	}
	return nil
}

func release(ctx context.Context, records Records, registration *registerv1alpha1.ManagedClusterRegistration) error {
	if registration.Status.IRSA == nil || registration.Status.IRSA.Hash == "" {
		return nil
	}
	if err := records.Release(ctx, registration.Status.IRSA.Hash, registration.Spec.ManagedClusterUID); err != nil {
		return fmt.Errorf("releasing the identity of ManagedCluster %q: %w", registration.Name, err)
	}
	return nil
}

// answer returns the AWS resources that the claim of a registration requires, and the state of the
// claim.
func (r *Registrar) answer(mc *clusterv1.ManagedCluster, registration *registerv1alpha1.ManagedClusterRegistration, asked registerv1alpha1.ManagedClusterIRSASpec) (*registerv1alpha1.ManagedClusterIRSA, error) {
	claimed := registration.Spec.IRSA
	identity, err := identify(*r.HubARN, claimed.ManagedClusterARN)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("the claim of ManagedCluster %q: %w", mc.Name, err))
	}
	desired := irsa.Desired{Identity: identity, Mapping: r.Mapping, ClusterName: mc.Name}
	out := &registerv1alpha1.ManagedClusterIRSA{
		ObjectMeta: metav1.ObjectMeta{
			Name: mc.Name, UID: mc.UID, ResourceVersion: registration.ResourceVersion, CreationTimestamp: claimed.ClaimedAt,
		},
		Spec: registerv1alpha1.ManagedClusterIRSASpec{
			ManagedClusterARN: claimed.ManagedClusterARN, OIDCProvider: asked.OIDCProvider, ServiceAccounts: asked.ServiceAccounts,
		},
		Status: registerv1alpha1.ManagedClusterIRSAState{
			HubClusterARN: identity.Hub.String(),
			Hash:          identity.Hash(),
			HubRole: &registerv1alpha1.IAMRole{
				Name: identity.HubRoleName(), ARN: identity.HubRoleARN(),
				TrustPolicy: identity.HubTrustPolicy().JSON(), AccessPolicy: identity.HubAccessPolicy().JSON(), Tags: identity.Tags(),
			},
			ManagedClusterRole: &registerv1alpha1.IAMRole{
				Name: identity.ManagedClusterRoleName(), ARN: identity.ManagedClusterRoleARN(),
				TrustPolicy:  identity.ManagedClusterTrustPolicy(asked.OIDCProvider, asked.ServiceAccounts...).JSON(),
				AccessPolicy: identity.ManagedClusterAccessPolicy().JSON(), Tags: identity.Tags(),
			},
			Commands: identity.Commands(asked.OIDCProvider, asked.ServiceAccounts...),
			Accepted: mc.Spec.HubAcceptsClient,
			Group:    desired.Groups()[0],
		},
	}
	for _, condition := range registration.Status.Conditions {
		if condition.Type == registerv1alpha1.RegistrationIdentityReady || condition.Type == registerv1alpha1.RegistrationCleanedUp {
			out.Status.Conditions = append(out.Status.Conditions, condition)
		}
	}
	return out, nil
}

func refused(cluster, why string) error {
	return apierrors.NewConflict(registrations, cluster, errors.New(why))
}

func noClaim(cluster string) error {
	return apierrors.NewNotFound(registerv1alpha1.Resource("managedclusters/irsa"), cluster)
}

// unclaimable converts a failure to reserve an identity to an API error that does not name the holder.
func unclaimable(cluster string, err error) error {
	switch {
	case errors.Is(err, ErrClaimed):
		return refused(cluster, "the ARN, or an ARN with the same account and cluster name, is already claimed")
	case errors.Is(err, errStale):
		return refused(cluster, "the registration was changed at the same time: try again")
	}
	return err
}
