package visibility

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

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

	mu        sync.RWMutex
	clusters  map[string]*deliveredPolicy
	bySubject map[rbac.Subject]sets.Set[string]
	// shared contains reported rules by fingerprint.
	shared *lru.Cache
}

// deliveredPolicy is the delivered RBAC of one managed cluster. It is immutable.
type deliveredPolicy struct {
	*policy
	manifests fingerprint
}

func newDelivered(c *Compiler) *delivered {
	return &delivered{
		compiler: c,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](deliveredRetry, deliveredMaxWait),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "search-visibility-works"}),
		clusters:  map[string]*deliveredPolicy{},
		bySubject: map[rbac.Subject]sets.Set[string]{},
		shared:    lru.New(maxShared),
	}
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
	now := newDeliveredPolicy(manifests)
	d.mu.Lock()
	before := d.clusters[cluster]
	if before != nil && before.manifests == now.manifests {
		d.mu.Unlock()
		return
	}
	var concerned []rbac.Subject
	if before != nil {
		for s := range before.index.Subjects() {
			concerned = append(concerned, s)
			if d.bySubject[s].Delete(cluster); len(d.bySubject[s]) == 0 {
				delete(d.bySubject, s)
			}
		}
		delete(d.clusters, cluster)
	}
	if bound := slices.Collect(now.index.Subjects()); len(bound) > 0 {
		d.clusters[cluster] = now
		for _, s := range bound {
			if d.bySubject[s] == nil {
				d.bySubject[s] = sets.New[string]()
			}
			d.bySubject[s].Insert(cluster)
		}
		concerned = append(concerned, bound...)
	}
	d.mu.Unlock()
	d.compiler.interests.managed.Touch(concerned)
}

// boundTo returns the subjects that are bound to a role of that name on any cluster.
func (d *delivered) boundTo(role rbac.Key) []rbac.Subject {
	if role.Kind != rbac.KindClusterRole {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	var concerned []rbac.Subject
	for _, p := range d.clusters {
		concerned = append(concerned, p.index.BoundTo(role)...)
	}
	return concerned
}

// compile adds the permissions of an identity on managed clusters.
func (d *delivered) compile(identity user.Info, a *allowed) {
	subjects := ManagedSubjects(identity)
	found := map[string]*deliveredPolicy{}
	d.mu.RLock()
	for _, s := range subjects {
		for cluster := range d.bySubject[s] {
			found[cluster] = d.clusters[cluster]
		}
	}
	d.mu.RUnlock()
	granted := map[string]*compiled{}
	if d.compiler.config.Reported != nil && len(subjects) > 0 {
		var unknown []string
		granted, unknown = d.reported(subjects, slices.Collect(maps.Keys(found)))
		maps.DeleteFunc(found, func(cluster string, _ *deliveredPolicy) bool { return !slices.Contains(unknown, cluster) })
	}
	if len(found)+len(granted) == 0 {
		return
	}
	// A role that is not delivered belongs to the cluster, and its rules are unknown on the
	// hub. The default ClusterRoles of every API server are assumed to equal the hub's. Another
	// role of the same name may grant less on the cluster, or be missing.
	ofHub := func(key rbac.Key) *ruleSet {
		if key.Kind != rbac.KindClusterRole {
			return nil
		}
		if rules := d.compiler.policy.role(key); rules != nil && rules.common {
			return rules
		}
		return nil
	}
	digest := newDigest()
	digest.bytes(a.fingerprint[:])
	for cluster, policy := range found {
		granted[cluster] = policy.compile(subjects, ofHub)
	}
	a.clusters = make(map[string]*grants, len(granted))
	for _, cluster := range slices.Sorted(maps.Keys(granted)) {
		a.clusters[cluster] = granted[cluster].grants
		digest.bytes([]byte(cluster))
		digest.bytes(granted[cluster].fingerprint[:])
	}
	a.fingerprint = digest.sum()
}

// newDeliveredPolicy returns the policy that manifests of ManifestWorks deliver. If
// several deliver an object with different content, the cluster may have either; such an
// object grants nothing here. An object that cannot be read grants nothing either.
func newDeliveredPolicy(manifests []workv1.Manifest) *deliveredPolicy {
	p := &deliveredPolicy{policy: newPolicy()}
	digest := newDigest()
	seen := map[rbac.Key]fingerprint{}
	ambiguous := sets.New[rbac.Key]()
	for i := range manifests {
		raw, err := manifests[i].MarshalJSON()
		if err != nil {
			continue
		}
		digest.bytes(raw)
		o, ok := rbac.ParseManifest(raw)
		if !ok {
			continue
		}
		content := p.add(o)
		if other, twice := seen[o.Key]; twice && other != content {
			ambiguous.Insert(o.Key)
		}
		seen[o.Key] = content
	}
	for key := range ambiguous {
		o := rbac.Object{Key: key, Opaque: true}
		if o.IsRole() {
			p.add(o)
		} else {
			p.setBinding(key, nil)
		}
	}
	p.manifests = digest.sum()
	return p
}

// add stores an object and returns a fingerprint of its content.
func (p *deliveredPolicy) add(o rbac.Object) fingerprint {
	if !o.IsRole() {
		digest := newDigest()
		digest.bytes(fmt.Appendf(nil, "%q %q", o.RoleRef, o.Subjects))
		p.setBinding(o.Key, o.Binding())
		return digest.sum()
	}
	// A role that grants nothing is stored as well: it hides a role of the hub.
	rules := &ruleSet{}
	if granting := newRuleSet(o.Rules); granting != nil && !o.Opaque {
		rules = granting
	}
	p.setRole(o.Key, rules)
	return rules.fingerprint
}
