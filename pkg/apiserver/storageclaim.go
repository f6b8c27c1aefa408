package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	storageClaimSeconds  = 30
	storageClaimPeriod   = 8 * time.Second
	storageClaimTimeout  = 5 * time.Second
	storageClaimPatience = time.Minute
)

// claimed is what a server may claim for its own data.
type claimed struct {
	// lease is the name of the Lease on the hub.
	lease string
	// refusal tells another server why it must not start.
	refusal string
}

var (
	etcdClaim = claimed{"hub-apiserver-storage", "another server with an embedded etcd of its own (data %s, seen at %s) serves this hub; " +
		"run several replicas with --etcd-servers, or stop the other one first"}
	searchClaim = claimed{"hub-apiserver-search", "another server with an embedded search engine of its own (data %s, seen at %s) serves this hub; " +
		"run several replicas with --search-engine=postgres, or stop the other one first"}
)

// storageClaim keeps two servers with storage of their own from serving one
// hub, which would give it two truths. The one that serves holds a Lease on the
// hub in the name of its data; another one with other data refuses to start.
type storageClaim struct {
	hub       kubernetes.Interface
	namespace string
	claimed   claimed
	holder    string
}

func newStorageClaim(hub kubernetes.Interface, namespace string, claimed claimed, storageID string) *storageClaim {
	return &storageClaim{hub: hub, namespace: namespace, claimed: claimed, holder: storageID}
}

// takenError says that other data serves the hub.
type takenError struct {
	claimed claimed
	holder  string
	renewed time.Time
}

func (e *takenError) Error() string {
	return fmt.Sprintf(e.claimed.refusal, e.holder, e.renewed.Format(time.RFC3339))
}

// take claims the hub for this data. It waits for a hub that does not answer, but
// not for another server.
func (c *storageClaim) take(ctx context.Context) error {
	var last, told error
	err := wait.PollUntilContextTimeout(ctx, time.Second, storageClaimPatience, true, func(ctx context.Context) (bool, error) {
		last = c.renew(ctx)
		if taken := (*takenError)(nil); errors.As(last, &taken) {
			return false, taken
		}
		if last != nil && (told == nil || last.Error() != told.Error()) {
			told = last
			klog.FromContext(ctx).Info("waiting for the hub to take the claim of this server", "reason", last)
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("claiming the hub: %w", last)
	}
	return err
}

// keep renews the claim until ctx ends, or returns why it was lost. While the
// hub does not answer the claim counts as kept: the server goes on serving.
func (c *storageClaim) keep(ctx context.Context) error {
	ticker := time.NewTicker(storageClaimPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := c.renew(ctx)
		if taken := (*takenError)(nil); errors.As(err, &taken) {
			return taken
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "renewing the claim of this hub")
		}
	}
}

func (c *storageClaim) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storageClaimTimeout)
	defer cancel()
	leases := c.hub.CoordinationV1().Leases(c.namespace)
	lease, err := leases.Get(ctx, c.claimed.lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: c.claimed.lease},
			Spec:       c.spec(nil),
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != c.holder {
		if renewed, held := heldUntilNow(&lease.Spec); held {
			return &takenError{claimed: c.claimed, holder: holder, renewed: renewed}
		}
		klog.FromContext(ctx).Info("taking over the hub from a server with other data, which has not been seen since its claim ran out", "holder", holder)
	}
	update := lease.DeepCopy()
	update.Spec = c.spec(&lease.Spec)
	_, err = leases.Update(ctx, update, metav1.UpdateOptions{})
	return err
}

func (c *storageClaim) spec(old *coordinationv1.LeaseSpec) coordinationv1.LeaseSpec {
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       &c.holder,
		LeaseDurationSeconds: ptr.To[int32](storageClaimSeconds),
		AcquireTime:          &now,
		RenewTime:            &now,
	}
	if old != nil && ptr.Deref(old.HolderIdentity, "") == c.holder && old.AcquireTime != nil {
		spec.AcquireTime = old.AcquireTime
	}
	return spec
}

func heldUntilNow(spec *coordinationv1.LeaseSpec) (time.Time, bool) {
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return time.Time{}, false
	}
	renewed := spec.RenewTime.Time
	return renewed, time.Since(renewed) < time.Duration(ptr.Deref(spec.LeaseDurationSeconds, storageClaimSeconds))*time.Second
}
