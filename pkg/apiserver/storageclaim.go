package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
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
	err := wait.PollUntilContextCancel(ctx, storageClaimPeriod, false, func(ctx context.Context) (bool, error) {
		err := c.renew(ctx)
		if taken := (*takenError)(nil); errors.As(err, &taken) {
			return false, taken
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to renew the Lease of this server on the hub")
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *storageClaim) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storageClaimTimeout)
	defer cancel()
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.claimed.lease}, Client: c.hub.CoordinationV1(),
	}
	now := metav1.Now()
	wanted := resourcelock.LeaderElectionRecord{HolderIdentity: c.holder, LeaseDurationSeconds: storageClaimSeconds, AcquireTime: now, RenewTime: now}
	record, _, err := lock.Get(ctx)
	if apierrors.IsNotFound(err) {
		return lock.Create(ctx, wanted)
	}
	if err != nil {
		return err
	}
	if record.HolderIdentity == c.holder {
		wanted.AcquireTime = record.AcquireTime
	} else if record.HolderIdentity != "" {
		if time.Since(record.RenewTime.Time) < time.Duration(record.LeaseDurationSeconds)*time.Second {
			return &takenError{claimed: c.claimed, holder: record.HolderIdentity, renewed: record.RenewTime.Time}
		}
		klog.FromContext(ctx).Info("Taking over the hub from a server with other data, whose Lease has expired", "holder", record.HolderIdentity)
	}
	return lock.Update(ctx, wanted)
}
