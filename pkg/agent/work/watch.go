package work

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// objectRef is one object of the managed cluster in one API version.
type objectRef struct {
	gvr schema.GroupVersionResource
	key types.NamespacedName
}

// version is one version of an object. The zero version means that the object does not exist.
type version struct {
	uid             types.UID
	resourceVersion string
}

// anyObject represents all objects of a resource. Its version changes with each of them.
var anyObject types.NamespacedName

func versionOf(object metav1.Object) version {
	return version{uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}
}

// objectWatches watches the objects of ManifestWorks by their metadata. Each resource has one watch
// as long as a ManifestWork requires it.
type objectWatches struct {
	client metadata.Interface
	// changed is called with the key of a ManifestWork when one of its objects changes.
	changed func(work cache.ObjectName)

	// ctx ends all watches, and done waits for that. ctx must be set before the first call of track.
	ctx  context.Context
	done sync.WaitGroup

	mu        sync.Mutex
	works     map[cache.ObjectName]sets.Set[objectRef]
	resources map[schema.GroupVersionResource]*resourceWatch
}

func newObjectWatches(client metadata.Interface, changed func(cache.ObjectName)) *objectWatches {
	return &objectWatches{
		client: client, changed: changed,
		works: map[cache.ObjectName]sets.Set[objectRef]{}, resources: map[schema.GroupVersionResource]*resourceWatch{},
	}
}

func (w *objectWatches) track(work cache.ObjectName, refs sets.Set[objectRef]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.works[work]
	if len(refs) == 0 {
		delete(w.works, work)
	} else {
		w.works[work] = refs
	}
	for ref := range refs {
		if !before.Has(ref) {
			w.resource(ref.gvr).add(ref.key, work)
		}
	}
	for ref := range before {
		if refs.Has(ref) {
			continue
		}
		resource := w.resources[ref.gvr]
		if resource.remove(ref.key, work) {
			resource.cancel()
			delete(w.resources, ref.gvr)
		}
	}
}

// seen returns the version of an object that its watch received last. It is unknown until the watch
// has listed all objects.
func (w *objectWatches) seen(ref objectRef) (seen version, known bool) {
	w.mu.Lock()
	resource := w.resources[ref.gvr]
	w.mu.Unlock()
	if resource == nil {
		return version{}, false
	}
	return resource.seen(ref.key)
}

// resource returns the watch of a resource. It starts the watch if none exists. The caller must
// hold mu.
func (w *objectWatches) resource(gvr schema.GroupVersionResource) *resourceWatch {
	if resource, ok := w.resources[gvr]; ok {
		return resource
	}
	ctx, cancel := context.WithCancel(w.ctx)
	resource := &resourceWatch{
		changed: w.changed, cancel: cancel,
		works: map[types.NamespacedName]sets.Set[cache.ObjectName]{}, versions: map[types.NamespacedName]version{},
	}
	w.resources[gvr] = resource
	logger := klog.FromContext(ctx).WithValues("resource", gvr.String())
	reflector := cache.NewReflectorWithOptions(listerWatcher(w.client, gvr), &metav1.PartialObjectMetadata{}, resource,
		cache.ReflectorOptions{Name: "applied/" + gvr.GroupResource().String(), TypeDescription: gvr.String(), Logger: &logger})
	w.done.Go(func() { reflector.RunWithContext(ctx) })
	return resource
}

func listerWatcher(client metadata.Interface, gvr schema.GroupVersionResource) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(gvr).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Resource(gvr).Watch(ctx, options)
		},
	}, client)
}

// resourceWatch is the watch of one resource. It is the store of a reflector.
type resourceWatch struct {
	changed func(work cache.ObjectName)
	cancel  context.CancelFunc

	mu sync.Mutex
	// synced is true if versions is complete.
	synced   bool
	works    map[types.NamespacedName]sets.Set[cache.ObjectName]
	versions map[types.NamespacedName]version
	// changes is the version of anyObject.
	changes int
}

func (r *resourceWatch) add(key types.NamespacedName, work cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.works[key] == nil {
		r.works[key] = sets.New[cache.ObjectName]()
	}
	r.works[key].Insert(work)
}

// remove reports whether no ManifestWork requires the watch now.
func (r *resourceWatch) remove(key types.NamespacedName, work cache.ObjectName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.works[key].Delete(work)
	if len(r.works[key]) == 0 {
		delete(r.works, key)
	}
	return len(r.works) == 0
}

func (r *resourceWatch) seen(key types.NamespacedName) (version, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key == anyObject {
		return version{resourceVersion: strconv.Itoa(r.changes)}, r.synced
	}
	return r.versions[key], r.synced
}

// Add implements cache.ReflectorStore.
func (r *resourceWatch) Add(obj any) error { return r.set(obj, false) }

// Update implements cache.ReflectorStore.
func (r *resourceWatch) Update(obj any) error { return r.set(obj, false) }

// Delete implements cache.ReflectorStore.
func (r *resourceWatch) Delete(obj any) error { return r.set(obj, true) }

// Resync implements cache.ReflectorStore.
func (r *resourceWatch) Resync() error { return nil }

func (r *resourceWatch) set(obj any, gone bool) error {
	object, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone {
		delete(r.versions, key)
	} else {
		r.versions[key] = versionOf(object)
	}
	r.changes++
	r.notify(key)
	r.notify(anyObject)
	return nil
}

// Replace implements cache.ReflectorStore.
func (r *resourceWatch) Replace(objs []any, _ string) error {
	versions := make(map[types.NamespacedName]version, len(objs))
	for _, obj := range objs {
		object, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		versions[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] = versionOf(object)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, first := r.versions, !r.synced
	r.versions, r.synced = versions, true
	r.changes++
	for key := range r.works {
		// The first list may already differ from the state that a pass read before.
		if first || key == anyObject || before[key] != versions[key] {
			r.notify(key)
		}
	}
	return nil
}

// notify reports a change of an object. The caller must hold mu.
func (r *resourceWatch) notify(key types.NamespacedName) {
	for work := range r.works[key] {
		r.changed(work)
	}
}

// resyncPeriod is the interval of passes without a trigger over a ManifestWork; watched objects
// then cost no request. pollPeriod is the interval for a ManifestWork with an object that is not
// watched.
const (
	resyncPeriod = 5 * time.Minute
	pollPeriod   = 10 * time.Second
)
