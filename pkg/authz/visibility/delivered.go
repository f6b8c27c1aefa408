package visibility

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	deliveredWorkers = 2
	deliveredTimeout = 30 * time.Second
	deliveredPoll    = 50 * time.Millisecond
	deliveredRetry   = 100 * time.Millisecond
	deliveredMaxWait = time.Minute
	// deliveredPeriod is when a cluster is read again without a reason: what counts as
	// delivered depends on more than its works.
	deliveredPeriod = 5 * time.Minute
)

// delivered is the RBAC that ClusterPermissions have brought to managed clusters.
type delivered struct {
	compiler *Compiler
	queue    workqueue.TypedRateLimitingInterface[string]

	mu        sync.RWMutex
	clusters  map[string]*deliveredPolicy
	bySubject map[subject]sets.Set[string]
}

// deliveredPolicy is that of one managed cluster; it is replaced, not changed.
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
		bySubject: map[subject]sets.Set[string]{},
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

// run reads what is delivered, of all clusters first, until ctx ends.
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
	// What could not be read shows less until it can.
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

// read reads what is delivered to a cluster, and tries again later if that fails.
func (d *delivered) read(ctx context.Context, cluster string) {
	readCtx, cancel := context.WithTimeout(ctx, deliveredTimeout)
	defer cancel()
	manifests, err := d.compiler.config.Delivered(readCtx, cluster)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "What ClusterPermissions have delivered could not be read", "cluster", cluster)
			// What was delivered before may have been taken away.
			d.set(cluster, nil)
			d.queue.AddRateLimited(cluster)
		}
		return
	}
	d.queue.Forget(cluster)
	d.queue.AddAfter(cluster, deliveredPeriod)
	d.set(cluster, manifests)
}

// set replaces what is delivered to a cluster.
func (d *delivered) set(cluster string, manifests []workv1.Manifest) {
	now := newDeliveredPolicy(manifests)
	d.mu.Lock()
	before := d.clusters[cluster]
	if before != nil && before.manifests == now.manifests {
		d.mu.Unlock()
		return
	}
	var concerned []subject
	if before != nil {
		for s := range before.bySubject {
			concerned = append(concerned, s)
			if d.bySubject[s].Delete(cluster); len(d.bySubject[s]) == 0 {
				delete(d.bySubject, s)
			}
		}
		delete(d.clusters, cluster)
	}
	if len(now.bindings) > 0 {
		d.clusters[cluster] = now
		for s := range now.bySubject {
			concerned = append(concerned, s)
			if d.bySubject[s] == nil {
				d.bySubject[s] = sets.New[string]()
			}
			d.bySubject[s].Insert(cluster)
		}
	}
	d.mu.Unlock()
	d.compiler.interests.touch(concerned)
}

// boundTo are those who are bound on any cluster to a role of that name.
func (d *delivered) boundTo(role objectKey) []subject {
	if role.kind != kindClusterRole {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	var concerned []subject
	for _, p := range d.clusters {
		concerned = append(concerned, p.boundTo(role)...)
	}
	return concerned
}

// compile adds what an identity may list on managed clusters to what it may find.
func (d *delivered) compile(identity user.Info, a *allowed) {
	subjects := managedSubjects(identity)
	found := map[string]*deliveredPolicy{}
	d.mu.RLock()
	for _, s := range subjects {
		for cluster := range d.bySubject[s] {
			found[cluster] = d.clusters[cluster]
		}
	}
	d.mu.RUnlock()
	if len(found) == 0 {
		return
	}
	// A role that is not delivered is one of the cluster, which the hub does not know. Those that
	// every API server makes for itself are taken to be as the hub's; another one of that name on
	// the hub says nothing about the cluster's, which may grant less, or be missing.
	ofHub := func(key objectKey) *ruleSet {
		if key.kind != kindClusterRole {
			return nil
		}
		if rules := d.compiler.policy.role(key); rules != nil && rules.common {
			return rules
		}
		return nil
	}
	digest := newDigest()
	digest.bytes(a.fingerprint[:])
	a.clusters = make(map[string]*grants, len(found))
	for _, cluster := range slices.Sorted(maps.Keys(found)) {
		granted := found[cluster].compile(subjects, ofHub)
		a.clusters[cluster] = granted.grants
		digest.bytes([]byte(cluster))
		digest.bytes(granted.fingerprint[:])
	}
	a.fingerprint = digest.sum()
}

// deliveredObject is any of the four kinds of RBAC.
type deliveredObject struct {
	Rules           *[]rbacv1.PolicyRule    `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
}

// newDeliveredPolicy reads the manifests of works. An object that several deliver,
// each otherwise, is the one or the other on the cluster; such a role or binding
// grants nothing here, nor does one that cannot be read.
func newDeliveredPolicy(manifests []workv1.Manifest) *deliveredPolicy {
	p := &deliveredPolicy{policy: newPolicy()}
	digest := newDigest()
	seen := map[objectKey]fingerprint{}
	ambiguous := sets.New[objectKey]()
	for i := range manifests {
		raw, err := manifests[i].MarshalJSON()
		if err != nil {
			continue
		}
		digest.bytes(raw)
		key, content, ok := p.addDelivered(raw)
		if !ok {
			continue
		}
		if other, twice := seen[key]; twice && other != content {
			ambiguous.Insert(key)
		}
		seen[key] = content
	}
	for key := range ambiguous {
		if strings.HasSuffix(key.kind, "Binding") {
			p.setBinding(key, nil)
		} else {
			p.setRole(key, &ruleSet{})
		}
	}
	p.manifests = digest.sum()
	return p
}

// addDelivered takes in one manifest; ok is false if it is no role or binding that counts.
func (p *deliveredPolicy) addDelivered(raw []byte) (key objectKey, content fingerprint, ok bool) {
	var head metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &head) != nil || head.APIVersion != rbacv1.SchemeGroupVersion.String() {
		return key, content, false
	}
	key = objectKey{kind: head.Kind, namespace: head.Namespace, name: head.Name}
	if key.kind == kindClusterRole || key.kind == kindClusterRoleBinding {
		key.namespace = ""
	} else if key.namespace == "" {
		return key, content, false
	}
	var object deliveredObject
	err := json.Unmarshal(raw, &object)
	switch key.kind {
	case kindClusterRole, kindRole:
		// Without rules it is no role, but the question whether there is one.
		if err == nil && object.Rules == nil && object.AggregationRule == nil {
			return key, content, false
		}
		// That a role is delivered counts even if it grants nothing.
		rules := &ruleSet{}
		if err == nil && object.AggregationRule == nil {
			if granting := newRuleSet(*object.Rules); granting != nil {
				rules = granting
			}
		}
		p.setRole(key, rules)
		return key, rules.fingerprint, true
	case kindClusterRoleBinding, kindRoleBinding:
		if err != nil {
			return key, content, false
		}
		digest := newDigest()
		digest.bytes([]byte(fmt.Sprintf("%q %q", object.RoleRef, object.Subjects)))
		p.setBinding(key, newBinding(key.namespace, object.RoleRef, object.Subjects))
		return key, digest.sum(), true
	}
	return key, content, false
}
