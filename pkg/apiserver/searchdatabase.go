package apiserver

import (
	"context"
	"errors"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	databasePeriod  = time.Second
	databaseTimeout = 4 * time.Second
	// databaseSeconds is the time after which a replica that has crashed no longer counts.
	databaseSeconds = 10
	// databaseKeys is below the prefix of the keys of the server in etcd.
	databaseKeys = "search-database"
)

// databaseCheck makes a replica unready while the database of search does not answer it, if another replica can answer
// searches. Each replica without this problem has a key in etcd. If the database answers none of them, there are no
// keys, and all replicas stay ready, because they serve everything else.
type databaseCheck struct {
	away             func() bool
	client           *clientv3.Client
	prefix, identity string

	lease   clientv3.LeaseID
	unready atomic.Bool
}

func newDatabaseCheck(away func() bool, client *clientv3.Client, prefix, identity string) *databaseCheck {
	return &databaseCheck{away: away, client: client, prefix: path.Join("/", prefix, databaseKeys) + "/", identity: identity}
}

func (d *databaseCheck) ready(*http.Request) error {
	if d.unready.Load() {
		return errors.New("the database of search does not answer this replica, but another one")
	}
	return nil
}

// run keeps the key of this replica until ctx ends.
func (d *databaseCheck) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		limited, cancel := context.WithTimeout(ctx, databaseTimeout)
		defer cancel()
		if err := d.update(limited); err != nil {
			// Without etcd, the replica is not ready for another reason.
			klog.FromContext(ctx).V(2).Info("Cannot compare the access to the database of search with that of other replicas", "err", err)
		}
	}, databasePeriod)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	_ = d.leave(ending) // otherwise the key expires
}

func (d *databaseCheck) update(ctx context.Context) error {
	if d.away() {
		if err := d.leave(ctx); err != nil {
			return err
		}
		others, err := d.client.Get(ctx, d.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		d.unready.Store(others.Count > 0)
		return nil
	}
	d.unready.Store(false)
	if d.lease != clientv3.NoLease {
		if _, err := d.client.KeepAliveOnce(ctx, d.lease); err == nil {
			return nil
		}
	}
	granted, err := d.client.Grant(ctx, databaseSeconds)
	if err != nil {
		return err
	}
	if _, err := d.client.Put(ctx, d.prefix+d.identity, "", clientv3.WithLease(granted.ID)); err != nil {
		return err
	}
	d.lease = granted.ID
	return nil
}

// leave deletes the key of this replica. Its lease expires.
func (d *databaseCheck) leave(ctx context.Context) error {
	if d.lease == clientv3.NoLease {
		return nil
	}
	if _, err := d.client.Delete(ctx, d.prefix+d.identity); err != nil {
		return err
	}
	d.lease = clientv3.NoLease
	return nil
}
