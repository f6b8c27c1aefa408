package inventory

import (
	"context"
	"fmt"
	"sync"
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
	// pageSize is how many objects a list has at a time, where there are no
	// streaming lists.
	pageSize = 500
	// maxLists is how many resources are listed at the same time, and maxListing how
	// long one may take before another may begin beside it.
	maxLists   = 8
	maxListing = 30 * time.Second
)

// listBackoff is how long a resource waits that cannot be listed or watched.
var listBackoff = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}

// clients read the cluster.
type clients struct {
	metadata metadata.Interface
	dynamic  dynamic.Interface
}

// collector keeps the state up to date with the objects of one resource. It is
// what a cache.Reflector takes for its store.
type collector struct {
	resource  *resource
	extractor *extractor
	state     *state
	clients   clients
	// lists has an element for each resource that is being listed.
	lists chan struct{}
	// noticed is called when an object has changed, if it is not nil.
	noticed func()
	// patience is how long a resource that may not be listed any more is kept.
	patience time.Duration

	// listed is whether the state has the objects, and denied whether they may not
	// be listed.
	listed, denied atomic.Bool
	deniedSince    time.Time
	listedNow      func()

	stop context.CancelFunc
	done chan struct{}
}

var _ cache.TransformingStore = &collector{}

// start runs the collector until ctx ends or stop is called. done is closed then.
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
	// The condition never ends it, so ctx has when it returns.
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		release := c.acquire(ctx)
		defer release()
		err := reflector.ListAndWatchWithContext(ctx)
		if err != nil && ctx.Err() == nil {
			c.failed(ctx, err)
		}
		return false, nil
	})
}

// acquire waits until another resource may be listed. The place is given back when
// this one is listed, has failed or takes long.
func (c *collector) acquire(ctx context.Context) (release func()) {
	select {
	case c.lists <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	free := sync.OnceFunc(func() { <-c.lists })
	timer := time.AfterFunc(maxListing, free)
	c.listedNow = func() {
		timer.Stop()
		free()
	}
	return c.listedNow
}

// failed says that the objects could not be listed or watched.
func (c *collector) failed(ctx context.Context, err error) {
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
	// A server that starts, or a resource that is about to go, may say so for a moment.
	if c.listed.Load() && time.Since(c.deniedSince) > c.patience {
		c.listed.Store(false)
		c.state.replace(c.resource.GroupResource(), nil)
		logger.Info("Resource cannot be collected any more; its objects are no longer reported", "err", err)
	}
}

// settled reports whether all is known that can be known.
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
				// A list out of the watch cache would have no pages.
				options.ResourceVersion = ""
			}
			page, err := list(ctx, options)
			if err != nil {
				return nil, err
			}
			return c.records(page)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			opened, err := open(ctx, options)
			if err != nil && ptr.Deref(options.SendInitialEvents, false) && !apierrors.IsResourceExpired(err) {
				// The reflector would wait on some errors of a streaming list without
				// heeding ctx. On one that it does not know it lists by pages.
				return nil, fmt.Errorf("streaming list: %v", err)
			}
			return opened, err
		},
	}
}

// records turns a page of objects into one of records, so that the objects are
// not in memory longer than the page.
func (c *collector) records(page runtime.Object) (runtime.Object, error) {
	of, err := meta.ListAccessor(page)
	if err != nil {
		return nil, fmt.Errorf("list of %s: %w", c.resource.GroupResource(), err)
	}
	records := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(), RemainingItemCount: of.GetRemainingItemCount(),
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

// Transformer makes the reflector keep records instead of objects while it reads a
// streaming list.
func (c *collector) Transformer() cache.TransformFunc { return c.extractor.transform }

// Replace makes records or objects all that there is of the resource.
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
	c.listedNow()
	c.notice()
	return nil
}

// Add takes an object that is new.
func (c *collector) Add(obj any) error { return c.Update(obj) }

// Update takes an object that may have changed.
func (c *collector) Update(obj any) error {
	extracted, err := c.extractor.transform(obj)
	if err != nil {
		return err
	}
	c.state.put(extracted.(*record))
	c.notice()
	return nil
}

// Delete forgets an object.
func (c *collector) Delete(obj any) error {
	object, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	c.state.remove(c.resource.GroupResource(), c.extractor.uidOf(string(object.GetUID())))
	c.notice()
	return nil
}

// Resync has nothing to do, as the state is always what was seen last.
func (c *collector) Resync() error { return nil }

func (c *collector) notice() {
	if c.noticed != nil {
		c.noticed()
	}
}
