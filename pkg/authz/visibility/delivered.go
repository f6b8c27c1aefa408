package visibility

import (
	"context"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	deliveredWorkers = 2
	deliveredTimeout = 30 * time.Second
	deliveredPoll    = 50 * time.Millisecond
	deliveredRetry   = 100 * time.Millisecond
	deliveredMaxWait = time.Minute
	// deliveredPeriod is the time after which a cluster is read again without an event,
	// because the delivered RBAC depends on more objects than the ManifestWorks of the
	// cluster.
	deliveredPeriod = 5 * time.Minute
)

// delivered is the RBAC that ClusterPermissions have delivered to managed clusters.
type delivered struct {
	compiler *Compiler
	queue    workqueue.TypedRateLimitingInterface[string]
	index    *access.Index

	mu sync.Mutex
	// defaults are the default ClusterRoles of the hub. A role that is not delivered belongs to the cluster, and its rules are
	// unknown on the hub. The default ClusterRoles of every API server are assumed to equal the hub's. Another role of the
	// same name may grant less on the cluster, or be missing.
	defaults map[rbac.Key][]rbacv1.PolicyRule
	// roles are the delivered roles by cluster.
	roles map[string]sets.Set[rbac.Key]
}

func newDelivered(c *Compiler) *delivered {
	d := &delivered{
		compiler: c,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](deliveredRetry, deliveredMaxWait),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "search-visibility-works"}),
		index: access.New(), defaults: map[rbac.Key][]rbacv1.PolicyRule{}, roles: map[string]sets.Set[rbac.Key]{},
	}
	d.index.Follow(func(_ string, _ bool, concerned []rbac.Subject) { c.interests.touchManaged(concerned) })
	return d
}

func (d *delivered) handler() cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			d.queue.Add(name.Namespace)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		DeleteFunc: enqueue,
		UpdateFunc: func(old, obj any) {
			before, known := old.(*workv1.ManifestWork)
			now, ok := obj.(*workv1.ManifestWork)
			if known && ok && before.Generation == now.Generation && before.DeletionTimestamp.Equal(now.DeletionTimestamp) &&
				apiequality.Semantic.DeepEqual(before.OwnerReferences, now.OwnerReferences) && apiequality.Semantic.DeepEqual(before.Status, now.Status) {
				return
			}
			enqueue(obj)
		},
	}
}

// run reads the delivered RBAC of all clusters, then the delivered RBAC of changed
// clusters, until ctx ends.
func (d *delivered) run(ctx context.Context) {
	defer d.queue.ShutDown()
	synced := func(context.Context) (bool, error) { return d.compiler.config.Works.HasSynced(), nil }
	if wait.PollUntilContextCancel(ctx, deliveredPoll, true, synced) != nil {
		return
	}
	all := sets.New[string]()
	for _, obj := range d.compiler.config.Works.GetStore().List() {
		if work, ok := obj.(*workv1.ManifestWork); ok {
			all.Insert(work.Namespace)
		}
	}
	for _, cluster := range sets.List(all) {
		d.read(ctx, cluster)
	}
	if ctx.Err() != nil {
		return
	}
	// If a cluster could not be read, its delivered RBAC grants nothing until a retry succeeds.
	d.compiler.deliveredSynced.Store(true)

	var workers wait.Group
	defer workers.Wait()
	defer d.queue.ShutDown()
	for range deliveredWorkers {
		workers.StartWithContext(ctx, func(ctx context.Context) {
			for {
				cluster, stopped := d.queue.Get()
				if stopped {
					return
				}
				d.read(ctx, cluster)
				d.queue.Done(cluster)
			}
		})
	}
	<-ctx.Done()
}

// read reads the delivered RBAC of a cluster, and schedules a retry if that fails.
func (d *delivered) read(ctx context.Context, cluster string) {
	readCtx, cancel := context.WithTimeout(ctx, deliveredTimeout)
	defer cancel()
	manifests, err := d.compiler.config.Delivered(readCtx, cluster)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reading the RBAC that ClusterPermissions have delivered failed", "cluster", cluster)
			// Permissions that were delivered before may have been removed.
			d.set(cluster, nil)
			d.queue.AddRateLimited(cluster)
		}
		return
	}
	d.queue.Forget(cluster)
	d.queue.AddAfter(cluster, deliveredPeriod)
	d.set(cluster, manifests)
}

// set replaces the delivered RBAC of a cluster.
func (d *delivered) set(cluster string, manifests []workv1.Manifest) {
	u := deliveredUpdate(manifests)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(u.Bindings) == 0 {
		delete(d.roles, cluster)
		d.index.Remove(cluster)
		return
	}
	d.roles[cluster] = sets.KeySet(u.Roles)
	for key, rules := range d.defaults {
		if !d.roles[cluster].Has(key) {
			u.Roles[key] = rules
		}
	}
	d.index.Update(cluster, u)
	d.index.SetState(cluster, access.State{Known: true})
}

// setDefault stores a default ClusterRole of the hub, or removes it.
func (d *delivered) setDefault(key rbac.Key, rules []rbacv1.PolicyRule, exists bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.defaults[key]
	u := access.NewUpdate(false)
	switch {
	case exists:
		d.defaults[key], u.Roles[key] = rules, rules
	case known:
		delete(d.defaults, key)
		u.DeletedRoles = []rbac.Key{key}
	default:
		return
	}
	for cluster, roles := range d.roles {
		if !roles.Has(key) {
			d.index.Update(cluster, u)
		}
	}
}

// deliveredUpdate returns the RBAC that manifests of ManifestWorks deliver. If several deliver an object with different
// content, the cluster may have either; such an object grants nothing here. An object that cannot be read grants nothing
// either. A role that grants nothing is stored as well: it hides a role of the hub.
func deliveredUpdate(manifests []workv1.Manifest) *access.Update {
	u := access.NewUpdate(true)
	seen := map[rbac.Key]rbac.Object{}
	for i := range manifests {
		raw, err := manifests[i].MarshalJSON()
		if err != nil {
			continue
		}
		o, ok := rbac.ParseManifest(raw)
		if !ok {
			continue
		}
		if o.Rules = relevant(o.Rules); o.Opaque {
			o.Rules = nil
		}
		if other, twice := seen[o.Key]; twice && !apiequality.Semantic.DeepEqual(other, o) {
			o = rbac.Object{Key: o.Key, Opaque: true}
		}
		seen[o.Key] = o
	}
	for _, o := range seen {
		if o.IsRole() || !o.Opaque {
			u.Set(&o)
		}
	}
	return u
}

// compile returns the permissions of an identity on managed clusters: by the RBAC that a cluster reports, or by what
// ClusterPermissions have delivered while that is not known.
func (d *delivered) compile(identity user.Info) map[string]*compiled {
	subjects := ManagedSubjects(identity)
	granted, _ := compile(d.index, subjects, nil, false)
	if d.compiler.config.Reported == nil {
		return granted
	}
	var clusters []string
	for cluster := range granted {
		clusters = append(clusters, cluster)
	}
	reported, unknown := compile(d.compiler.config.Reported, subjects, clusters, true)
	delete(reported, d.compiler.config.HubCluster)
	for _, cluster := range unknown {
		reported[cluster] = granted[cluster]
	}
	return reported
}

// reportedChanged follows changes of the reported RBAC.
func (d *delivered) reportedChanged(cluster string, state bool, concerned []rbac.Subject) {
	if cluster == d.compiler.config.HubCluster {
		return
	}
	if state {
		// What ClusterPermissions have delivered there begins or ceases to apply.
		concerned = slices.Concat(concerned, d.index.Subjects(cluster))
	}
	d.compiler.interests.touchManaged(concerned)
}
