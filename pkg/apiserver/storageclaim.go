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

// claimed is a kind of data that only one server may have.
type claimed struct {
	// lease is the name of the Lease on the hub.
	lease string
	// refusal is the format of the error that another server returns.
	refusal string
}

var (
	etcdClaim = claimed{"hub-apiserver-storage", "another server with its own embedded etcd (data %s, last renewed at %s) serves this hub; " +
		"stop the other server, or use --etcd-servers to run several replicas"}
	searchClaim = claimed{"hub-apiserver-search", "another server with its own embedded search engine (data %s, last renewed at %s) serves this hub; " +
		"stop the other server, or use --search-engine=postgres to run several replicas"}
)

// storageClaim prevents two servers with different data from serving one hub. A server holds a Lease on
// the hub with the ID of its data. A server with other data refuses to start.
type storageClaim struct {
	hub       kubernetes.Interface
	namespace string
	claimed   claimed
	holder    string
}

func newStorageClaim(hub kubernetes.Interface, namespace string, claimed claimed, storageID string) *storageClaim {
	return &storageClaim{hub: hub, namespace: namespace, claimed: claimed, holder: storageID}
}

// takenError is the error of a server if a server with other data serves the hub.
type takenError struct {
	claimed claimed
	holder  string
	renewed time.Time
}

func (e *takenError) Error() string {
	return fmt.Sprintf(e.claimed.refusal, e.holder, e.renewed.Format(time.RFC3339))
}

// take acquires the claim. It waits for the API server of the hub, but not for another server.
func (c *storageClaim) take(ctx context.Context) error {
	var last, logged error
	err := wait.PollUntilContextTimeout(ctx, time.Second, storageClaimPatience, true, func(ctx context.Context) (bool, error) {
		last = c.renew(ctx)
		if taken := (*takenError)(nil); errors.As(last, &taken) {
			return false, taken
		}
		if last != nil && (logged == nil || last.Error() != logged.Error()) {
			logged = last
			klog.FromContext(ctx).Info("Waiting for the hub to store the Lease of this server", "reason", last)
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("claiming the hub: %w", last)
	}
	return err
}

// keep renews the claim until ctx ends. It returns an error if another server has taken the claim. If the
// API server of the hub does not respond, the server continues to serve.
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
			klog.FromContext(ctx).Error(err, "Failed to renew the Lease of this server on the hub")
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
		klog.FromContext(ctx).Info("Taking over the hub from a server with other data, whose Lease has expired", "holder", holder)
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
