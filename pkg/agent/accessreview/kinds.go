package accessreview

import (
	"cmp"
	"context"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// kind is one of the four kinds of RBAC objects, and the store of the reflector that
// watches it.
type kind struct {
	reviewer *Reviewer
	watches  *watches
	name     string
	// resource is the name of the kind in rules.
	resource string
	object   runtime.Object
	listen   *clientcache.ListWatch

	// The Reviewer's mu guards the following fields.

	// seen is set once all objects have been listed.
	seen bool
	// alive is the time of the last sign that the watch works.
	alive time.Time
	// err is the error that prevents the watch.
	err error
}

// kindsOf returns the kinds to watch.
func (r *Reviewer) kindsOf(w *watches) []*kind {
	return []*kind{
		newKind(r, w, rbac.KindRole, "roles", &rbacv1.Role{}, r.rbac.Roles(metav1.NamespaceAll)),
		newKind(r, w, rbac.KindClusterRole, "clusterroles", &rbacv1.ClusterRole{}, r.rbac.ClusterRoles()),
		newKind(r, w, rbac.KindRoleBinding, "rolebindings", &rbacv1.RoleBinding{}, r.rbac.RoleBindings(metav1.NamespaceAll)),
		newKind(r, w, rbac.KindClusterRoleBinding, "clusterrolebindings", &rbacv1.ClusterRoleBinding{}, r.rbac.ClusterRoleBindings()),
	}
}

// listWatcher is a typed client of one kind.
type listWatcher[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func newKind[L runtime.Object](r *Reviewer, w *watches, name, resource string, object runtime.Object, client listWatcher[L]) *kind {
	k := &kind{reviewer: r, watches: w, name: name, resource: resource, object: object}
	k.listen = &clientcache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, options)
			// A successful list takes effect when its objects are stored.
			if err != nil {
				k.requested(ctx, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := client.Watch(ctx, options)
			// A watch that starts with all objects takes effect when they are stored.
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

// requested records the result of a request; nil means success.
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
		klog.FromContext(ctx).Info("RBAC of the managed cluster is not watched; SubjectAccessReviews for executors are sent more often", "resource", k.resource, "err", err)
	}
	k.reviewer.announce()
}

// Add implements cache.ReflectorStore.
func (k *kind) Add(obj any) error { return k.set(obj, false) }

// Update implements cache.ReflectorStore.
func (k *kind) Update(obj any) error { return k.set(obj, false) }

// Delete implements cache.ReflectorStore.
func (k *kind) Delete(obj any) error { return k.set(obj, true) }

// Resync implements cache.ReflectorStore.
func (k *kind) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (k *kind) Bookmark(string) error {
	k.reviewer.mu.Lock()
	defer k.reviewer.mu.Unlock()
	k.alive = k.reviewer.clock.Now()
	return nil
}

func (k *kind) set(obj any, gone bool) error {
	object, ok := rbac.FromTyped(obj)
	k.reviewer.update(k.watches, func(p *policy) event {
		k.alive = k.reviewer.clock.Now()
		if !ok {
			return event{}
		}
		return p.set(object, gone)
	}, nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (k *kind) Replace(objs []any, _ string) error {
	objects := make([]rbac.Object, 0, len(objs))
	for _, obj := range objs {
		if object, ok := rbac.FromTyped(obj); ok {
			objects = append(objects, object)
		}
	}
	// The difference does not contain objects that were created and deleted while the watch was
	// interrupted. Answers from that time, and from shortly before, may be based on a policy that
	// the watch never delivered.
	k.reviewer.mu.Lock()
	trusted := k.alive.Add(-settling)
	again := k.seen
	k.reviewer.mu.Unlock()
	var suspect func(*answer) bool
	if again {
		suspect = func(a *answer) bool { return a.asked.After(trusted) }
	}
	k.reviewer.update(k.watches, func(p *policy) event {
		out := p.replace(k.name, objects)
		k.seen, k.err, k.alive = true, nil, k.reviewer.clock.Now()
		k.reviewer.announce()
		return out
	}, suspect)
	return nil
}

func compareAccounts(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
