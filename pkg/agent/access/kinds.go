package access

import (
	"context"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// kind is one of the four kinds of RBAC objects, and the store of the reflector
// that watches it.
type kind struct {
	reviewer *Reviewer
	watches  *watches
	// resource is what the kind is called in rules.
	resource string
	object   runtime.Object
	listen   *clientcache.ListWatch
	// set takes note of an object that is there, or gone.
	set func(p *policy, obj any, gone bool) event
	// replace takes note of all objects.
	replace func(p *policy, objs []any) event

	// The Reviewer's mu guards the rest.

	// seen is whether all objects have been listed once.
	seen bool
	// alive is when the watch last showed that it works.
	alive time.Time
	// err is why the kind is not being watched.
	err error
}

// kindsOf returns the kinds that are to be watched.
func (r *Reviewer) kindsOf(w *watches) []*kind {
	return []*kind{
		roles[*rbacv1.Role](r, w, "roles", false, r.rbac.Roles(metav1.NamespaceAll), func(role *rbacv1.Role) []rbacv1.PolicyRule { return role.Rules }),
		roles[*rbacv1.ClusterRole](r, w, "clusterroles", true, r.rbac.ClusterRoles(), func(role *rbacv1.ClusterRole) []rbacv1.PolicyRule { return role.Rules }),
		bindings[*rbacv1.RoleBinding](r, w, "rolebindings", false, r.rbac.RoleBindings(metav1.NamespaceAll),
			func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
		bindings[*rbacv1.ClusterRoleBinding](r, w, "clusterrolebindings", true, r.rbac.ClusterRoleBindings(),
			func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
	}
}

// object is what RBAC objects have in common.
type object interface {
	runtime.Object
	metav1.Object
}

// listWatcher is a typed client of one kind.
type listWatcher[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func roles[O object, L runtime.Object](r *Reviewer, w *watches, resource string, clusterScoped bool, client listWatcher[L], rules func(O) []rbacv1.PolicyRule) *kind {
	return newKind(r, w, resource, client,
		func(_ objectKey, o O) *ruleSet { return &ruleSet{rules: rules(o)} },
		(*policy).setRole,
		func(p *policy, all map[objectKey]*ruleSet) event { return p.replaceRoles(clusterScoped, all) })
}

func bindings[O object, L runtime.Object](r *Reviewer, w *watches, resource string, clusterScoped bool, client listWatcher[L], content func(O) (rbacv1.RoleRef, []rbacv1.Subject)) *kind {
	return newKind(r, w, resource, client,
		func(key objectKey, o O) *binding {
			ref, subjects := content(o)
			return newBinding(key, ref, subjects)
		},
		(*policy).setBinding,
		func(p *policy, all map[objectKey]*binding) event { return p.replaceBindings(clusterScoped, all) })
}

// newKind returns a kind whose objects O are kept as S.
func newKind[O object, L runtime.Object, S any](r *Reviewer, w *watches, resource string, client listWatcher[L],
	keep func(objectKey, O) *S, set func(*policy, objectKey, *S) event, replace func(*policy, map[objectKey]*S) event) *kind {
	var expected O
	k := &kind{reviewer: r, watches: w, resource: resource, object: expected}
	k.set = func(p *policy, obj any, gone bool) event {
		o, ok := obj.(O)
		if !ok {
			return event{}
		}
		key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
		if gone {
			return set(p, key, nil)
		}
		return set(p, key, keep(key, o))
	}
	k.replace = func(p *policy, objs []any) event {
		all := make(map[objectKey]*S, len(objs))
		for _, obj := range objs {
			if o, ok := obj.(O); ok {
				key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
				all[key] = keep(key, o)
			}
		}
		return replace(p, all)
	}
	k.listen = &clientcache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, options)
			// One that succeeded counts when its objects are there.
			if err != nil {
				k.requested(ctx, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := client.Watch(ctx, options)
			// One that begins with all objects has shown nothing until they are there.
			if err != nil || options.SendInitialEvents == nil {
				k.requested(ctx, err)
			}
			return events, err
		},
	}
	return k
}

// run watches the kind until ctx ends.
func (k *kind) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	reflector := clientcache.NewReflectorWithOptions(clientcache.ToListWatcherWithWatchListSemantics(k.listen, k.reviewer.rbac), k.object, k,
		clientcache.ReflectorOptions{Name: "access/" + k.resource, TypeDescription: k.resource, Logger: &logger})
	reflector.RunWithContext(ctx)
}

// requested takes note of what came of a request; nil is for one that succeeded.
func (k *kind) requested(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	k.reviewer.mu.Lock()
	defer k.reviewer.mu.Unlock()
	if (err == nil) == (k.err == nil) {
		k.err = err
		return
	}
	if k.err = err; err != nil {
		klog.FromContext(ctx).Info("RBAC of the managed cluster is not watched, what executors may do is asked more often", "resource", k.resource, "err", err)
	}
	k.reviewer.announce()
}

// Add implements cache.ReflectorStore.
func (k *kind) Add(obj any) error { return k.note(obj, false) }

// Update implements cache.ReflectorStore.
func (k *kind) Update(obj any) error { return k.note(obj, false) }

// Delete implements cache.ReflectorStore.
func (k *kind) Delete(obj any) error { return k.note(obj, true) }

// Resync implements cache.ReflectorStore.
func (k *kind) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (k *kind) Bookmark(string) error {
	k.reviewer.mu.Lock()
	defer k.reviewer.mu.Unlock()
	k.alive = k.reviewer.clock.Now()
	return nil
}

func (k *kind) note(obj any, gone bool) error {
	k.reviewer.learn(k.watches, func(p *policy) event {
		k.alive = k.reviewer.clock.Now()
		return k.set(p, obj, gone)
	}, nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (k *kind) Replace(objs []any, _ string) error {
	// What came and went while nothing was watched is in no difference: answers from
	// then, and from shortly before, may be by a policy that was never seen.
	k.reviewer.mu.Lock()
	trusted := k.alive.Add(-settling)
	again := k.seen
	k.reviewer.mu.Unlock()
	var suspect func(*answer) bool
	if again {
		suspect = func(a *answer) bool { return a.asked.After(trusted) }
	}
	k.reviewer.learn(k.watches, func(p *policy) event {
		out := k.replace(p, objs)
		k.seen, k.err, k.alive = true, nil, k.reviewer.clock.Now()
		k.reviewer.announce()
		return out
	}, suspect)
	return nil
}

func compareAccounts(a, b types.NamespacedName) int {
	if by := strings.Compare(a.Namespace, b.Namespace); by != 0 {
		return by
	}
	return strings.Compare(a.Name, b.Name)
}
