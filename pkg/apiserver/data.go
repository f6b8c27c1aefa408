package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const (
	// markTimeout bounds what is read from etcd about the data. stampTimeout bounds the marking of all ManagedClusters.
	markTimeout  = 5 * time.Second
	stampTimeout = time.Minute
	// clusterPage is the number of ManagedClusters that are read at once.
	clusterPage = 500

	clustersPrefix = "/" + clusterv1.GroupName + "/managedclusters/"
)

// Data are the data of a server. It serves no object before AwaitData has checked them: an agent of restored data that
// lists its ManifestWorks first would remove the objects of those that the snapshot does not contain.
type Data struct {
	hub     kubernetes.Interface
	clients *clients
	extra   *ExtraConfig
	// etcd contain the objects, and stored are the versions in which they are. The first contains everything without
	// --etcd-servers-overrides, and the record of stored versions.
	etcd   []*etcd.Cluster
	stored []etcd.StoredVersions
	// clusterStore opens the store of ManagedClusters without a cache.
	clusterStore func() (storage.Interface, factory.DestroyFunc, error)
	// claim keeps servers with other data from serving the hub. It may be nil.
	claim *storageClaim
	// restore is the ID of the last restore of the data, or an empty string if there was none.
	restore string
}

func (c CompletedConfig) newData() (*Data, error) {
	rows, getter := Resources(Dependencies{}), c.generic.RESTOptionsGetter
	d := &Data{extra: c.extra, stored: storedVersions(rows), clusterStore: clusterStore(rows, getter)}
	var err error
	if d.hub, err = kubernetes.NewForConfig(c.hub); err != nil {
		return nil, fmt.Errorf("building the client of the hub: %w", err)
	}
	if d.clients, err = c.clients(); err != nil {
		return nil, err
	}
	if d.claim, err = c.claim(d.hub); err != nil {
		return nil, err
	}
	d.etcd, err = connectEtcd(rows, getter, c.extra.EtcdFailover != nil)
	return d, err
}

// connectEtcd returns connections to every etcd in which rows are stored. The first is that of --etcd-servers. If direct is
// true, the clients of single members do not use the dialer of the stores.
func connectEtcd(rows []definition.Resource, getter generic.RESTOptionsGetter, direct bool) (clusters []*etcd.Cluster, err error) {
	// No resource has an empty name, so this one is not in --etcd-servers-overrides.
	names := []schema.GroupResource{{}}
	for _, row := range rows {
		names = append(names, row.InStorage()...)
	}
	for _, name := range names {
		options, err := getter.GetRESTOptions(name, nil)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("storage of %s: %w", name, err), closeEtcd(clusters))
		}
		transport := options.StorageConfig.Transport
		if slices.ContainsFunc(clusters, func(known *etcd.Cluster) bool { return slices.Equal(known.Client.Endpoints(), transport.ServerList) }) {
			continue
		}
		cluster, err := etcd.Connect(transport, options.StorageConfig.Prefix, direct)
		if err != nil {
			return nil, errors.Join(err, closeEtcd(clusters))
		}
		clusters = append(clusters, cluster)
	}
	return clusters, nil
}

func closeEtcd(clusters []*etcd.Cluster) error {
	var errs []error
	for _, cluster := range clusters {
		errs = append(errs, cluster.Close())
	}
	return errors.Join(errs...)
}

// storedVersions returns the versions in which rows are stored. It includes rows that the server does not serve, because a
// later release may serve them.
func storedVersions(rows []definition.Resource) []etcd.StoredVersions {
	var out []etcd.StoredVersions
	for _, row := range rows {
		for _, name := range row.InStorage() {
			out = append(out, etcd.StoredVersions{
				Resource: name.String(), Stored: row.StoredVersion().String(), Readable: row.ReadableVersions(scheme.Scheme),
			})
		}
	}
	return out
}

// clusterStore returns a function that opens the store of ManagedClusters.
func clusterStore(rows []definition.Resource, getter generic.RESTOptionsGetter) func() (storage.Interface, factory.DestroyFunc, error) {
	name := clusterv1.Resource("managedclusters")
	row := &rows[slices.IndexFunc(rows, func(row definition.Resource) bool { return row.GroupResource() == name })]
	return func() (storage.Interface, factory.DestroyFunc, error) {
		return row.OpenStorage(scheme.Codecs, getter, name)
	}
}

// etcdError is the error of check while an etcd cluster does not respond.
type etcdError struct{ error }

// check checks that etcd responds, that no server with other data serves the hub, and that this server can read the data. It
// records the versions in which this server stores objects, and marks the ManagedClusters of restored data.
func (d *Data) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	for _, cluster := range d.etcd {
		if err := cluster.Unavailable(ctx); err != nil {
			return etcdError{err}
		}
		// A server must start while a member is down: Run checks it later.
		if _, err := cluster.CheckVersions(ctx); err != nil {
			return err
		}
	}
	if err := d.claim.renew(ctx); err != nil {
		return err
	}
	readCtx, cancelRead := context.WithTimeout(ctx, markTimeout)
	defer cancelRead()
	if err := d.etcd[0].RecordVersions(readCtx, d.stored); err != nil {
		return err
	}
	mark, err := d.readMark(readCtx)
	if err != nil {
		return fmt.Errorf("reading the last restore: %w", err)
	}
	if mark == nil {
		return nil
	}
	stamp := d.stampClusters
	if d.clients.clusters != d.clients.own {
		stamp = d.stampHubClusters
	}
	stamped, err := stamp(ctx, mark.ID)
	if err != nil {
		return fmt.Errorf("marking the ManagedClusters of the restore %s: %w", mark.ID, err)
	}
	if stamped > 0 {
		klog.FromContext(ctx).Info("The data were restored from a snapshot; agents keep objects and accounts that it does not contain until the restore is confirmed",
			"restore", mark.ID, "time", mark.Time, "clusters", stamped)
	}
	d.restore = mark.ID
	return d.claim.renew(ctx)
}

// readMark returns the mark of the data, or nil if no etcd was restored. If several have different marks, its ID identifies
// all of them, so that it is a new one after each restore.
func (d *Data) readMark(ctx context.Context) (last *etcd.Mark, err error) {
	ids := sets.New[string]()
	for _, cluster := range d.etcd {
		mark, err := cluster.ReadMark(ctx)
		if err != nil {
			return nil, err
		}
		if mark == nil {
			continue
		}
		ids.Insert(mark.ID)
		if last == nil || mark.Time.After(last.Time) {
			last = mark
		}
	}
	if ids.Len() > 1 {
		sum := sha256.Sum256([]byte(strings.Join(sets.List(ids), "\n")))
		last = &etcd.Mark{ID: hex.EncodeToString(sum[:]), Time: last.Time}
	}
	return last, nil
}

// mustNotServe reports whether an error of check is permanent.
func mustNotServe(err error) bool {
	return errors.As(err, new(etcd.UnusableError))
}

// stampClusters marks all stored ManagedClusters that are not marked yet, and returns their number.
func (d *Data) stampClusters(ctx context.Context, restore string) (stamped int, err error) {
	store, destroy, err := d.clusterStore()
	if err != nil {
		return 0, err
	}
	defer destroy()
	withdrawn := sync.OnceValues(func() (func(string) bool, error) { return d.withdrawn(ctx) })
	options := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	options.Predicate.Limit = clusterPage
	for {
		var page cluster.ManagedClusterList
		if err := store.GetList(ctx, clustersPrefix, options, &page); err != nil {
			return stamped, err
		}
		for _, c := range page.Items {
			if c.Annotations[clusterv1.RestoredAnnotation] == restore {
				continue
			}
			withdrawn, err := withdrawn()
			if err != nil {
				return stamped, err
			}
			marked := &cluster.ManagedCluster{}
			err = store.GuaranteedUpdate(ctx, clustersPrefix+c.Name, marked, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
				managedcluster.StampRestored(ctx, obj.(*cluster.ManagedCluster), restore, withdrawn(c.Name))
				return obj, nil
			}), nil)
			if storage.IsNotFound(err) {
				// A replica that serves has finished a deletion that the snapshot contains.
				continue
			}
			if err != nil {
				return stamped, err
			}
			stamped++
			if c.Spec.HubAcceptsClient && !marked.Spec.HubAcceptsClient {
				klog.FromContext(ctx).Info("Denied a ManagedCluster of the restored data, because the hub has withdrawn its access", "cluster", c.Name)
			}
		}
		if err := d.claim.renew(ctx); err != nil || page.Continue == "" {
			return stamped, err
		}
		options.Predicate.Continue = page.Continue
	}
}

// stampHubClusters marks the ManagedClusters that the hub stores in a CustomResourceDefinition. Their data were not
// restored, but the accounts of the clusters were.
func (d *Data) stampHubClusters(ctx context.Context, restore string) (stamped int, err error) {
	clusters := d.clients.clusters.ClusterV1().ManagedClusters()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{clusterv1.RestoredAnnotation: restore}}})
	if err != nil {
		return 0, err
	}
	err = pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return clusters.List(ctx, options)
	}).EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		c, ok := obj.(*clusterv1.ManagedCluster)
		if !ok || c.Annotations[clusterv1.RestoredAnnotation] == restore {
			return nil
		}
		_, err := clusters.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if stamped++; err == nil && stamped%clusterPage == 0 {
			err = d.claim.renew(ctx)
		}
		return err
	})
	return stamped, err
}

// withdrawn returns a function that reports whether the hub has withdrawn the access of a cluster that the
// snapshot contains as accepted. On a hub on which this server has never run, no cluster has access yet.
func (d *Data) withdrawn(ctx context.Context) (func(string) bool, error) {
	lease := d.extra.LeaderElection
	held, err := reconcile.OrNil(d.hub.CoordinationV1().Leases(lease.ResourceNamespace).Get(ctx, lease.ResourceName, metav1.GetOptions{}))
	if held == nil && err == nil {
		return func(string) bool { return false }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Lease %s of the hub: %w", lease.ResourceName, err)
	}
	return registration.Withdrawn(ctx, d.hub)
}

const (
	storageClaimSeconds = 10
	storageClaimPeriod  = 2 * time.Second
	storageClaimTimeout = 5 * time.Second
	searchClaimID       = "id"
)

// storageClaim prevents two servers with different data from serving one hub. A server holds a Lease on the hub with the ID of
// its data. A server with other data ends if the Lease is renewed. If it sees no renewal for the duration of the Lease, while
// the hub responds, it takes the Lease. It does not compare the time of the renewal with its clock. A server that stops keeps
// its Lease, so that no server with other data takes the hub while its replacement starts.
type storageClaim struct {
	hub                      kubernetes.Interface
	namespace, lease, holder string
	// data and remedy are for the error of a server with other data.
	data, remedy string
	// held is true if this server has held the Lease. other is the last renewal by another server, which it has seen since
	// then without a failed request to the hub.
	held         bool
	other, since time.Time
}

// claim returns the claim that a server with these options needs, or nil.
func (c CompletedConfig) claim(hub kubernetes.Interface) (*storageClaim, error) {
	switch {
	case c.extra.Embedded != nil:
		return &storageClaim{
			hub: hub, namespace: c.extra.Namespace, lease: "hub-apiserver-storage", holder: c.extra.Embedded.StorageID(),
			data: "etcd", remedy: "use --etcd-servers to run several replicas",
		}, nil
	case !c.searched() || c.extra.Search.Engine != EmbeddedSearch:
		return nil, nil
	}
	id, err := etcd.ReadStorageID(filepath.Join(c.extra.Search.DataDir, searchClaimID))
	if err != nil {
		return nil, fmt.Errorf("identity of the search data: %w", err)
	}
	return &storageClaim{
		hub: hub, namespace: c.extra.Namespace, lease: "hub-apiserver-search", holder: id,
		data: "search engine", remedy: "use --search-engine=postgres to run several replicas",
	}, nil
}

// keep renews the claim until ctx ends, or returns an UnusableError if another server has taken the claim. If the API server of
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

// renew acquires or renews the claim, if there is one. Until the Lease of a server with other data has expired, it returns an
// error, which is an UnusableError if that server runs. The marking of many ManagedClusters takes longer than the Lease, so
// it renews the claim for each page of them.
func (c *storageClaim) renew(ctx context.Context) (err error) {
	if c == nil {
		return nil
	}
	defer func() {
		if c.held = c.held || err == nil; err != nil {
			err = fmt.Errorf("claiming the hub: %w", err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, storageClaimTimeout)
	defer cancel()
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.lease}, Client: c.hub.CoordinationV1(),
	}
	now := metav1.Now()
	wanted := resourcelock.LeaderElectionRecord{HolderIdentity: c.holder, LeaseDurationSeconds: storageClaimSeconds, AcquireTime: now, RenewTime: now}
	record, _, err := lock.Get(ctx)
	if apierrors.IsNotFound(err) {
		return lock.Create(ctx, wanted)
	}
	if err != nil {
		// The other server may have failed to renew its Lease for the same reason.
		c.since = time.Time{}
		return err
	}
	if record.HolderIdentity == c.holder {
		wanted.AcquireTime = record.AcquireTime
	} else if record.HolderIdentity != "" {
		renewed := record.RenewTime.Time
		if c.held || !c.other.IsZero() && !c.other.Equal(renewed) {
			return etcd.UnusableError(fmt.Sprintf("another server with its own embedded %s (data %s, last renewed at %s) serves this hub; stop the other server, or %s",
				c.data, record.HolderIdentity, renewed.Format(time.RFC3339), c.remedy))
		}
		if c.other = renewed; c.since.IsZero() {
			c.since = now.Time
		}
		// Data that were replaced by a restore do not renew their Lease.
		if expires := c.since.Add(time.Duration(record.LeaseDurationSeconds) * time.Second); now.Time.Before(expires) {
			return fmt.Errorf("waiting until %s for the Lease %s of other data (%s) to expire", expires.Format(time.RFC3339), c.lease, record.HolderIdentity)
		}
		klog.FromContext(ctx).Info("Taking over the hub from a server with other data, whose Lease has expired", "holder", record.HolderIdentity)
	}
	return lock.Update(ctx, wanted)
}
