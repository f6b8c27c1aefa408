package quota

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
)

const (
	// syncTimeout bounds the time that a write waits for the first list of the stored objects.
	syncTimeout = 10 * time.Second
	syncPoll    = 20 * time.Millisecond
	// reserveDivisor determines the reserve beyond a limit: a quarter of the limit.
	reserveDivisor = 4
)

// Counter counts the objects of one resource in each namespace, and rejects writes beyond
// the limits. It is safe for concurrent use.
type Counter struct {
	resource schema.GroupResource
	limits   Limits

	mu      sync.Mutex
	source  cache.ListerWatcher
	example runtime.Object
	synced  bool
	// revision is the revision of the last event of the watch.
	revision   uint64
	namespaces map[string]*usage
}

// usage is the usage of one namespace.
type usage struct {
	objects map[string]entry
	bytes   int64
	// pendingObjects and pendingBytes are reserved by writes in progress.
	pendingObjects, pendingBytes int64
}

type entry struct {
	bytes    int64
	revision uint64
}

// NewCounter returns a Counter. It admits everything until Serve is called.
func NewCounter(resource schema.GroupResource, limits Limits) *Counter {
	c := &Counter{resource: resource, limits: limits, namespaces: map[string]*usage{}}
	collected.add(c)
	return c
}

// Serve sets the store whose objects the Counter counts. It must be called before Run.
func (c *Counter) Serve(source cache.ListerWatcher, example runtime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.source, c.example = source, example
}

// Run watches the store until ctx is canceled. It returns immediately if there is no store.
func (c *Counter) Run(ctx context.Context) {
	c.mu.Lock()
	source, example := c.source, c.example
	c.mu.Unlock()
	if source == nil {
		return
	}
	cache.NewReflectorWithOptions(source, example, (*watched)(c), cache.ReflectorOptions{
		Name: "quota of " + c.resource.String(),
	}).RunWithContext(ctx)
}

// Synced reports whether the Counter has listed the stored objects.
func (c *Counter) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced || c.source == nil
}

// Write describes a write before it is stored.
type Write struct {
	Namespace, Name string
	// Before is the size of the stored object, or 0 for a create. After is the size of the
	// new object.
	Before, After int64
	// Creates is true for a create.
	Creates bool
	// Reserve allows the write to exceed the limits by a quarter. It is set for upkeep and for
	// writes of the server itself.
	Reserve bool
	// Upkeep is true if the write changes only the status, the finalizers or the managed fields.
	Upkeep bool
}

// Hold is the reservation of one write. The zero value reserves nothing.
type Hold struct {
	counter *Counter
	held    *Write
}

// Hold returns an empty reservation.
func (c *Counter) Hold() *Hold { return &Hold{counter: c} }

// Take reserves the growth of a write and releases the previous reservation of the Hold, since
// a store may retry a write. It returns a Forbidden error if the write exceeds a limit.
func (h *Hold) Take(ctx context.Context, w Write) error {
	c := h.counter
	if err := c.waitUntilSynced(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.releaseLocked()
	if c.source == nil {
		return nil
	}
	u := c.usageLocked(w.Namespace)
	if err := c.check(u, w); err != nil {
		c.forgetLocked(w.Namespace)
		return err
	}
	h.held = &w
	if w.Creates {
		u.pendingObjects++
	}
	u.pendingBytes += w.growth()
	return nil
}

// growth returns the number of bytes that a write adds. A write that shrinks an object may
// fail, so it releases nothing before it is stored.
func (w Write) growth() int64 { return max(0, w.After-w.Before) }

// Settle ends a write and releases the reservation. stored is the stored object, or nil if
// the write failed, was a dry run, or deleted the object.
func (h *Hold) Settle(stored runtime.Object, size int64) {
	c := h.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	h.releaseLocked()
	if stored == nil || c.source == nil {
		return
	}
	// The watch may have reported a newer revision.
	if namespace, name, revision, ok := identify(stored); ok && revision > c.revision {
		c.putLocked(namespace, name, entry{bytes: size, revision: revision})
	}
}

func (h *Hold) releaseLocked() {
	w := h.held
	if w == nil {
		return
	}
	h.held = nil
	u := h.counter.usageLocked(w.Namespace)
	if w.Creates {
		u.pendingObjects--
	}
	u.pendingBytes -= w.growth()
	h.counter.forgetLocked(w.Namespace)
}

// check returns an error if a write exceeds a limit, given the stored objects and the reservations.
func (c *Counter) check(u *usage, w Write) error {
	objects, bytes := int64(len(u.objects))+u.pendingObjects, u.bytes+u.pendingBytes
	if limit := c.limits.Objects; limit > 0 && w.Creates && objects+1 > limit+w.reserve(limit) {
		return c.reject(w, "objects", objects, limit, "--namespace-quota-objects")
	}
	limit := c.limits.Bytes
	if limit == 0 || w.growth() == 0 || bytes+w.growth() <= limit+w.reserve(limit) {
		return nil
	}
	// If every object has at most this size, the limit of objects implies the limit of bytes.
	// So the status of small objects can be updated in a full namespace.
	if w.Upkeep && c.limits.Objects > 0 && w.After <= limit/c.limits.Objects {
		return nil
	}
	return c.reject(w, "bytes", bytes, limit, "--namespace-quota-bytes")
}

func (w Write) reserve(limit int64) int64 {
	if w.Reserve {
		return limit / reserveDivisor
	}
	return 0
}

func (c *Counter) reject(w Write, kind string, used, limit int64, flag string) error {
	rejections.WithLabelValues(c.resource.Resource, kind).Inc()
	adds := "1"
	if kind == "bytes" {
		adds = strconv.FormatInt(w.growth(), 10)
	}
	err := apierrors.NewForbidden(c.resource, w.Name, fmt.Errorf(
		"exceeded quota of namespace %q: %s of %s: used %d, requested %s, limited to %d; delete some, or ask an administrator to raise the limit with %s=%s=%d",
		w.Namespace, kind, c.resource.Resource, used, adds, limit, flag, c.resource.Resource, limit))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: refusal.QuotaExceeded, Message: fmt.Sprintf("%s of %s: used %d, limited to %d", kind, c.resource.Resource, used, limit),
	}}
	return err
}

func (c *Counter) waitUntilSynced(ctx context.Context) error {
	if c.Synced() {
		return nil
	}
	err := wait.PollUntilContextTimeout(ctx, syncPoll, syncTimeout, true, func(context.Context) (bool, error) { return c.Synced(), nil })
	if err != nil {
		return apierrors.NewServiceUnavailable("the usage of the quota of " + c.resource.String() + " is not yet known; retry later")
	}
	return nil
}

// Deleted removes an object that this process has deleted, before the watch reports it.
func (c *Counter) Deleted(obj runtime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteLocked(obj)
}

func (c *Counter) usageLocked(namespace string) *usage {
	u := c.namespaces[namespace]
	if u == nil {
		u = &usage{objects: map[string]entry{}}
		c.namespaces[namespace] = u
	}
	return u
}

func (c *Counter) forgetLocked(namespace string) {
	if u := c.namespaces[namespace]; u != nil && len(u.objects) == 0 && u.pendingObjects == 0 && u.pendingBytes == 0 {
		delete(c.namespaces, namespace)
	}
}

func (c *Counter) putLocked(namespace, name string, e entry) {
	u := c.usageLocked(namespace)
	before, known := u.objects[name]
	if known && before.revision > e.revision {
		return
	}
	u.bytes += e.bytes - before.bytes
	u.objects[name] = e
}

func (c *Counter) deleteLocked(obj runtime.Object) {
	namespace, name, revision, ok := identify(obj)
	u := c.namespaces[namespace]
	if !ok || u == nil {
		return
	}
	if before, known := u.objects[name]; known && before.revision <= revision {
		u.bytes -= before.bytes
		delete(u.objects, name)
	}
	c.forgetLocked(namespace)
}

func identify(obj any) (namespace, name string, revision uint64, ok bool) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", "", 0, false
	}
	revision, err = strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	return accessor.GetNamespace(), accessor.GetName(), revision, err == nil
}

// watched implements the store of a reflector for a Counter.
type watched Counter

var _ cache.ReflectorStore = &watched{}

// Add implements cache.ReflectorStore.
func (w *watched) Add(obj any) error { return w.Update(obj) }

// Update implements cache.ReflectorStore.
func (w *watched) Update(obj any) error {
	c, size := (*Counter)(w), ObjectSize(obj)
	namespace, name, revision, ok := identify(obj)
	if !ok {
		return fmt.Errorf("%T has no resource version", obj)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(namespace, name, entry{bytes: size, revision: revision})
	c.revision = max(c.revision, revision)
	return nil
}

// Delete implements cache.ReflectorStore.
func (w *watched) Delete(obj any) error {
	c := (*Counter)(w)
	deleted, ok := obj.(runtime.Object)
	if !ok {
		return fmt.Errorf("%T is not an object", obj)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteLocked(deleted)
	if _, _, revision, ok := identify(obj); ok {
		c.revision = max(c.revision, revision)
	}
	return nil
}

// Replace implements cache.ReflectorStore. It keeps objects that this process has written
// since the list.
func (w *watched) Replace(list []any, version string) error {
	c := (*Counter)(w)
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return fmt.Errorf("resource version of a list: %w", err)
	}
	sizes := make([]int64, len(list))
	for i, obj := range list {
		sizes[i] = ObjectSize(obj)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace, u := range c.namespaces {
		for name, e := range u.objects {
			if e.revision <= revision {
				u.bytes -= e.bytes
				delete(u.objects, name)
			}
		}
		c.forgetLocked(namespace)
	}
	for i, obj := range list {
		if namespace, name, revision, ok := identify(obj); ok {
			c.putLocked(namespace, name, entry{bytes: sizes[i], revision: revision})
		}
	}
	c.revision, c.synced = revision, true
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *watched) Resync() error { return nil }
