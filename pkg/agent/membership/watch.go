package membership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
	// watchTimeout is the minimum duration of one watch. The actual duration is random, up to twice
	// as long.
	watchTimeout = 5 * time.Minute
	// firstPause and mostPause bound the delay after a failed request.
	firstPause = 500 * time.Millisecond
	mostPause  = 2 * time.Minute
	// soonPause is the delay after the first failed request for a followed object: the hub grants the
	// access of a new cluster a moment after its certificate.
	soonPause = 200 * time.Millisecond
	// followPause bounds the delay for followed objects. It is short, because an agent without
	// access learns only by a request that it has access again.
	followPause = 20 * time.Second
	// pollPause bounds the delay for followed objects that the identity may get, but not watch.
	pollPause = 5 * time.Second
)

// object is the type of objects that can be followed.
type object interface {
	comparable
	metav1.Object
	runtime.Object
}

// sight is one observation of an object.
type sight[T object] struct {
	// object is the state of the object if err is nil, or its last state if it is deleted.
	object T
	// deleted is true if the watch reported the deletion.
	deleted bool
	// err is the error of a get request.
	err error
}

// followed is an object that is watched by its name. Without watch, it is read repeatedly.
type followed[T object] struct {
	get   func(ctx context.Context) (T, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	name  string
	// again triggers another get request. It may be nil.
	again <-chan struct{}
}

// follow calls see with each state of an object and with each error of a get request until ctx
// ends. An informer would hide the errors.
func (f *followed[T]) follow(ctx context.Context, see func(sight[T])) {
	waits := pauses{first: firstPause, most: followPause, soon: soonPause}
	if f.watch == nil {
		waits.most = pollPause
	}
	for ctx.Err() == nil {
		getCtx, cancel := context.WithTimeout(ctx, requestTimeout)
		live, err := f.get(getCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			see(sight[T]{err: err})
		} else {
			see(sight[T]{object: live})
		}
		if err == nil && f.watch != nil {
			began := time.Now()
			if err = f.stream(ctx, live.GetResourceVersion(), see); isExpired(err) {
				err = f.streamNow(ctx, live.GetResourceVersion(), see)
			}
			if time.Since(began) > firstPause {
				waits.reset()
			}
		}
		delay := waits.step()
		if asked, ok := apierrors.SuggestsClientDelay(err); ok {
			delay = max(delay, time.Duration(asked)*time.Second)
		}
		if !pause(ctx, delay, f.again) {
			return
		}
	}
}

// isExpired reports whether a watch began at a version that the server no longer knows: a server forgets the versions
// of before its start, and an object may have had its version for long.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// stream watches an object from the given version. It returns nil when the watch has ended.
func (f *followed[T]) stream(ctx context.Context, version string, see func(sight[T])) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher, err := f.start(ctx, version)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	return f.receive(ctx, watcher, see)
}

// streamNow watches an object from its current state, which the watch repeats. seen is the version of the last state.
func (f *followed[T]) streamNow(ctx context.Context, seen string, see func(sight[T])) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher, err := f.start(ctx, "")
	if err != nil {
		return err
	}
	defer watcher.Stop()
	// Such a watch does not report that the object has been deleted before.
	getCtx, cancelGet := context.WithTimeout(ctx, requestTimeout)
	defer cancelGet()
	if _, err := f.get(getCtx); err != nil {
		return err
	}
	return f.receive(ctx, watcher, func(next sight[T]) {
		if order, err := resourceversion.CompareResourceVersion(next.object.GetResourceVersion(), seen); err != nil || order > 0 {
			see(next)
		}
	})
}

func (f *followed[T]) start(ctx context.Context, version string) (watch.Interface, error) {
	seconds := int64((watchTimeout + rand.N(watchTimeout)).Seconds())
	return f.watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String(),
		ResourceVersion: version, TimeoutSeconds: &seconds,
	})
}

// receive passes on the events of a watch until it ends.
func (f *followed[T]) receive(ctx context.Context, watcher watch.Interface, see func(sight[T])) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.again:
			return nil
		case event, open := <-watcher.ResultChan():
			if !open || ctx.Err() != nil {
				return nil
			}
			switch event.Type {
			case watch.Added, watch.Modified, watch.Deleted:
				live, ok := event.Object.(T)
				if !ok {
					return fmt.Errorf("unexpected object in the watch of %s: %T", f.name, event.Object)
				}
				see(sight[T]{object: live, deleted: event.Type == watch.Deleted})
				if event.Type == watch.Deleted {
					return nil
				}
			case watch.Error:
				return apierrors.FromObject(event.Object)
			}
		}
	}
}

// ownCluster returns the own ManagedCluster as an object to follow.
func ownCluster(client versioned.Interface, name string, again <-chan struct{}) *followed[*clusterv1.ManagedCluster] {
	clusters := client.ClusterV1().ManagedClusters()
	return &followed[*clusterv1.ManagedCluster]{
		name: name, again: again,
		get: func(ctx context.Context) (*clusterv1.ManagedCluster, error) {
			return clusters.Get(ctx, name, metav1.GetOptions{})
		},
		watch: clusters.Watch,
	}
}

// accepted reports whether the hub accepts a cluster that is not being deleted.
func accepted(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp == nil
}
