package inventory

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// pageSize is the number of objects in a page if the API server does not support streaming lists.
	pageSize = 500
	// maxPages bounds the pages that are in memory, because all resources are listed at the start. A
	// resource waits at most pageWait, so that resources that do not answer do not delay it for long.
	maxPages = 8
	pageWait = 30 * time.Second
)

// listBackoff is the delay before a failed list or watch is retried.
var listBackoff = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}

type clients struct {
	metadata metadata.Interface
	dynamic  dynamic.Interface
	// pages contains an element for each page in memory.
	pages chan struct{}
}

// acquire waits until another page may be in memory. The returned function ends the use of the page.
func (c clients) acquire(ctx context.Context) (release func()) {
	select {
	case c.pages <- struct{}{}:
		return func() { <-c.pages }
	case <-time.After(pageWait):
	case <-ctx.Done():
	}
	return func() {}
}

// collector keeps the objects of one resource in the state up to date. It is the store of
// a cache.Reflector.
type collector struct {
	resource  *resource
	extractor *extractor
	state     *state
	clients   clients
	// noticed is called after an object has changed.
	noticed func()
	// patience is the time that objects of a resource are kept after the agent lost the permission
	// to list them.
	patience time.Duration

	// listed is true once the state contains the objects. denied is true if the agent
	// lacks permission to list them.
	listed, denied atomic.Bool
	// brokenSince is the time in nanoseconds since which the objects are not watched, or 0.
	brokenSince atomic.Int64
	deniedSince time.Time

	stop context.CancelFunc
	done chan struct{}
}

var _ cache.TransformingStore = &collector{}

// start runs the collector until ctx ends or stop is called. Then it closes done.
func (c *collector) start(ctx context.Context) {
	ctx, c.stop = context.WithCancel(ctx)
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		c.run(ctx)
	}()
}

func (c *collector) run(ctx context.Context) {
	name := c.resource.GroupVersionResource.String()
	reflector := cache.NewReflectorWithOptions(c.listWatch(), nil, c, cache.ReflectorOptions{Name: "inventory", TypeDescription: name})
	reflector.WatchListPageSize = pageSize
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("resource", c.resource.GroupResource().String()))
	delay := listBackoff.DelayWithReset(clock.RealClock{}, 2*time.Minute)
	// The condition never ends the loop, so ctx has ended when it returns.
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			c.failed(ctx, err)
		}
		return false, nil
	})
}

func (c *collector) failed(ctx context.Context, err error) {
	c.watching(false)
	logger := klog.FromContext(ctx)
	if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
		c.deniedSince = time.Time{}
		logger.V(2).Info("Resource is not watched", "err", err)
		return
	}
	if c.deniedSince.IsZero() {
		c.deniedSince = time.Now()
		logger.V(2).Info("Resource cannot be collected", "err", err)
	}
	c.denied.Store(true)
	// A starting server, or the deletion of a resource, may cause this error temporarily.
	if c.listed.Load() && time.Since(c.deniedSince) > c.patience {
		c.listed.Store(false)
		c.state.replace(c.resource.GroupResource(), nil)
		logger.Info("Resource can no longer be collected; its objects are no longer reported", "err", err)
	}
}

// settled reports whether the objects are known, or cannot be known because the agent lacks
// permission.
func (c *collector) settled() bool { return c.listed.Load() || c.denied.Load() }

func (c *collector) listWatch() *cache.ListWatch {
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if c.extractor.whole {
			return c.clients.dynamic.Resource(c.resource.GroupVersionResource).List(ctx, options)
		}
		return c.clients.metadata.Resource(c.resource.GroupVersionResource).List(ctx, options)
	}
	open := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		if c.extractor.whole {
			return c.clients.dynamic.Resource(c.resource.GroupVersionResource).Watch(ctx, options)
		}
		return c.clients.metadata.Resource(c.resource.GroupVersionResource).Watch(ctx, options)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.ResourceVersion == "0" {
				// A list from the watch cache would not be paged.
				options.ResourceVersion = ""
			}
			defer c.clients.acquire(ctx)()
			page, err := list(ctx, options)
			if err != nil {
				return nil, err
			}
			return c.records(page)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			opened, err := open(ctx, options)
			c.watching(err == nil)
			if err != nil && ptr.Deref(options.SendInitialEvents, false) && !apierrors.IsResourceExpired(err) {
				// The reflector retries some errors of a streaming list without regard to
				// ctx. For an unknown error, it falls back to a paged list.
				return nil, fmt.Errorf("streaming list: %v", err)
			}
			return opened, err
		},
	}
}

// records turns a page of objects into a page of records, so that no object stays in
// memory longer than its page.
func (c *collector) records(page runtime.Object) (runtime.Object, error) {
	accessor, err := meta.ListAccessor(page)
	if err != nil {
		return nil, fmt.Errorf("list of %s: %w", c.resource.GroupResource(), err)
	}
	records := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: accessor.GetResourceVersion(), Continue: accessor.GetContinue(), RemainingItemCount: accessor.GetRemainingItemCount(),
	}}
	records.Items = make([]runtime.Object, 0, meta.LenList(page))
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		extracted, err := c.extractor.transform(obj)
		if err != nil {
			return err
		}
		records.Items = append(records.Items, extracted.(*record))
		return nil
	})
	return records, err
}

// Transformer returns the function by which the reflector stores records instead of
// objects while it reads a streaming list.
func (c *collector) Transformer() cache.TransformFunc { return c.extractor.transform }

// Replace replaces all objects of the resource with the given records or objects.
func (c *collector) Replace(objects []any, _ string) error {
	records := make([]*record, 0, len(objects))
	for _, obj := range objects {
		extracted, err := c.extractor.transform(obj)
		if err != nil {
			return err
		}
		records = append(records, extracted.(*record))
	}
	c.state.replace(c.resource.GroupResource(), records)
	c.denied.Store(false)
	c.deniedSince = time.Time{}
	c.listed.Store(true)
	c.watching(true)
	c.state.signal()
	c.noticed()
	return nil
}

// Add stores a new object.
func (c *collector) Add(obj any) error { return c.Update(obj) }

// Update stores an object that may have changed.
func (c *collector) Update(obj any) error {
	extracted, err := c.extractor.transform(obj)
	if err != nil {
		return err
	}
	c.state.put(extracted.(*record))
	c.noticed()
	return nil
}

// Delete removes an object.
func (c *collector) Delete(obj any) error {
	object, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	c.state.remove(c.resource.GroupResource(), c.extractor.uidOf(string(object.GetUID())))
	c.noticed()
	return nil
}

// Resync does nothing, because the state always contains the last version of each object.
func (c *collector) Resync() error { return nil }
