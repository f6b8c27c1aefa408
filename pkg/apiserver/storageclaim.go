package apiserver

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
)

const (
	storageClaimSeconds = 30
	storageClaimPeriod  = 8 * time.Second
	storageClaimTimeout = 5 * time.Second
	searchClaimID       = "id"
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

// claims returns the claims that a server with these options needs.
func (c CompletedConfig) claims(hub kubernetes.Interface) ([]*storageClaim, error) {
	switch {
	case c.extra.Embedded != nil:
		return []*storageClaim{{hub, c.extra.Namespace, etcdClaim, c.extra.Embedded.StorageID()}}, nil
	case !c.searched() || c.extra.Search.Engine != EmbeddedSearch:
		return nil, nil
	}
	id, err := etcd.ReadStorageID(filepath.Join(c.extra.Search.DataDir, searchClaimID))
	if err != nil {
		return nil, fmt.Errorf("identity of the search data: %w", err)
	}
	return []*storageClaim{{hub, c.extra.Namespace, searchClaim, id}}, nil
}

// keep renews the claim until ctx ends, or returns a takenError if another server has taken the claim. If the API server of
// the hub does not respond, the server continues to serve.
func (c *storageClaim) keep(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, storageClaimPeriod, false, func(ctx context.Context) (bool, error) {
		err := c.renew(ctx)
		if mustNotServe(err) {
			return false, err
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to renew the Lease of this server on the hub")
		}
		return false, nil
	})
}

// renew acquires or renews the claim. It returns a takenError if a server with other data holds it.
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
