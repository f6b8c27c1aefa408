package handover

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

const (
	// FreezePolicy is the policy that refuses writes during a migration.
	FreezePolicy = "hub-apiserver-migration"

	// holder is the user as which clusteradm writes during a migration.
	holder = migrationv1alpha1.User
	// leaseName is the Lease of the replica that runs the controllers of the server.
	leaseName = "hub-apiserver-controllers"
	// heldSeconds is the duration of the Lease of a migration, which ends when the migration releases it.
	heldSeconds = 10 * 365 * 24 * 3600
	// noticePeriod is the time in which every replica notices that, with the default settings of its Lease.
	noticePeriod = 15 * time.Second
)

// Frozen reports whether a migration refuses writes.
func Frozen(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	_, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, FreezePolicy, metav1.GetOptions{})
	return err == nil, cli.IgnoreNotFound(err)
}

// Unfinished returns an error if a migration or an adoption has begun and not ended.
func Unfinished(ctx context.Context, kube kubernetes.Interface) error {
	if frozen, err := Frozen(ctx, kube); err != nil && !apierrors.IsForbidden(err) {
		return err
	} else if frozen {
		return errors.New("a migration has not ended: run clusteradm migrate again first")
	}
	state, err := Adoption(ctx, kube)
	if err == nil && state != nil && state.Data[AdoptionPhase] != AdoptionDone {
		return errors.New("an adoption has not ended: run clusteradm hub adopt again first")
	}
	return err
}

// Held reports whether the server waits for a migration or an adoption.
func Held(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	lease, err := kube.CoordinationV1().Leases(manifests.HubNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil && held(&lease.Spec), cli.IgnoreNotFound(err)
}

func held(spec *coordinationv1.LeaseSpec) bool { return ptr.Deref(spec.HolderIdentity, "") == holder }

// WaitNoticed waits until each replica of the server has noticed that a migration holds the Lease: the replica that had
// it tries to renew it for that long. Then all watches have ended, and clients list the objects again.
func WaitNoticed(ctx context.Context, kube kubernetes.Interface) error {
	lease, err := kube.CoordinationV1().Leases(manifests.HubNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil || lease.Spec.AcquireTime == nil {
		return err
	}
	return cli.Sleep(ctx, time.Until(lease.Spec.AcquireTime.Add(noticePeriod)))
}

// Hold keeps all replicas of the server from running the controllers, by its Lease.
func Hold(ctx context.Context, kube kubernetes.Interface) error {
	return changeLease(ctx, kube, func(spec *coordinationv1.LeaseSpec) bool {
		if held(spec) {
			return false
		}
		now := metav1.NowMicro()
		*spec = coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To[int32](heldSeconds), AcquireTime: &now, RenewTime: &now,
			LeaseTransitions: ptr.To(ptr.Deref(spec.LeaseTransitions, 0) + 1),
		}
		return true
	})
}

// Release lets the server run its controllers.
func Release(ctx context.Context, kube kubernetes.Interface) error {
	return changeLease(ctx, kube, func(spec *coordinationv1.LeaseSpec) bool {
		if !held(spec) {
			return false
		}
		spec.HolderIdentity, spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
		return true
	})
}

// changeLease changes the Lease unless change returns false, again while others change it, as each renewal does.
func changeLease(ctx context.Context, kube kubernetes.Interface, change func(*coordinationv1.LeaseSpec) bool) error {
	client := kube.CoordinationV1().Leases(manifests.HubNamespace)
	return cli.Poll(ctx, func(ctx context.Context) (string, error) {
		lease, err := client.Get(ctx, leaseName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}}, nil
		}
		if err != nil || !change(&lease.Spec) {
			return "", err
		}
		if lease.UID != "" {
			_, err = client.Update(ctx, lease, metav1.UpdateOptions{})
			return "", err // Poll repeats a conflict
		}
		if _, err = client.Create(ctx, lease, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return "the Lease exists", nil
		}
		return "", err
	})
}
