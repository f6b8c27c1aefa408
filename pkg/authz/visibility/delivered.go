package visibility

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	deliveredWorkers = 2
	// deliveredPeriod is the time after which a cluster is read again without an event, because the delivered RBAC
	// depends on more objects than the ManifestWorks of the cluster.
	deliveredPeriod = 5 * time.Minute
	// deliveredTimeout bounds the read of a cluster.
	deliveredTimeout = 30 * time.Second
)

// delivered is the RBAC that ClusterPermissions have delivered to managed clusters.
type delivered struct {
	compiler *Compiler
	loop     reconcile.Loop
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
	d := &delivered{compiler: c, index: access.New(), defaults: map[rbac.Key][]rbacv1.PolicyRule{}, roles: map[string]sets.Set[rbac.Key]{}}
	d.loop = reconcile.Loop{
		Name: "search-visibility-works", Workers: deliveredWorkers,
		Feeds: []reconcile.Feed{{
			Informer: c.config.Works,
			Keys: reconcile.Keys(func(work *workv1.ManifestWork) []cache.ObjectName {
				return []cache.ObjectName{{Name: work.Namespace}}
			}),
			Ignore: reconcile.Same(func(before, now *workv1.ManifestWork) bool {
				return before.Generation == now.Generation && before.DeletionTimestamp.Equal(now.DeletionTimestamp) &&
					apiequality.Semantic.DeepEqual(before.OwnerReferences, now.OwnerReferences) && apiequality.Semantic.DeepEqual(before.Status, now.Status)
			}),
		}},
		Reconcile: func(ctx context.Context, cluster cache.ObjectName) (time.Duration, error) {
			return deliveredPeriod, d.read(ctx, cluster.Name)
		},
	}
	d.index.Follow(func(_ string, _ bool, concerned []rbac.Subject) { c.interests.touchManaged(concerned) })
	return d
}

// run reads the delivered RBAC of all clusters, then the delivered RBAC of changed clusters, until ctx ends.
func (d *delivered) run(ctx context.Context) {
	works := d.compiler.config.Works
	if !cache.WaitForCacheSync(ctx.Done(), works.HasSynced) {
		return
	}
	all := sets.New[string]()
	for _, obj := range works.GetStore().List() {
		if work, ok := obj.(*workv1.ManifestWork); ok {
			all.Insert(work.Namespace)
		}
	}
	for cluster := range all {
		// If a cluster could not be read, its delivered RBAC grants nothing until the loop has read it.
		_ = d.read(ctx, cluster)
		// The loop receives no event for a ManifestWork that is deleted before it runs.
		d.loop.Initial = append(d.loop.Initial, cache.ObjectName{Name: cluster})
	}
	if ctx.Err() == nil {
		d.compiler.deliveredSynced.Store(true)
	}
	d.loop.Run(ctx)
}

// read reads the delivered RBAC of a cluster. After an error it grants nothing, because permissions that were delivered before
// may have been removed.
func (d *delivered) read(ctx context.Context, cluster string) error {
	ctx, cancel := context.WithTimeout(ctx, deliveredTimeout)
	defer cancel()
	manifests, err := d.compiler.config.Delivered(ctx, cluster)
	if err != nil {
		manifests = nil
	}
	d.set(cluster, manifests)
	return err
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
	reported, unknown := compile(d.compiler.config.Fleet, subjects, slices.Collect(maps.Keys(granted)), true)
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
