package membership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// watchTimeout is the minimum duration of one watch. The actual duration is random, up to twice
	// as long.
	watchTimeout = 5 * time.Minute
	// followPause bounds the delay for followed objects. It is short, because an agent without
	// access learns only by a request that it has access again.
	followPause = 20 * time.Second
	// steadyWatch is the time of watching after which the delays begin again. Balancers and proxies cut
	// idle watches after some seconds, and the agent must not be late after each of them. A hub that ends
	// every watch at once receives few requests.
	steadyWatch = 5 * time.Second
)

// sight is one observation of an object.
type sight[T runtime.Object] struct {
	// object is the state of the object, or its last state if the watch reported its deletion.
	object T
	// deleted is true if the watch reported the deletion. absent is true if the object did not exist
	// when it was read.
	deleted, absent bool
	// err is the error of reading the object.
	err error
}

// followed is an object that is watched by its name.
type followed[T runtime.Object] struct {
	name  string
	list  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// again triggers another read. It may be nil.
	again <-chan struct{}
}

// follow calls see with each state of an object and with each error of reading it until ctx ends. An
// informer would hide the errors.
func (f *followed[T]) follow(ctx context.Context, see func(sight[T])) {
	waits := backoff(soonPause, followPause)
	for ctx.Err() == nil {
		watched, err := f.readAndWatch(ctx, see)
		if watched >= steadyWatch {
			waits = backoff(soonPause, followPause)
		}
		delay := waits.Step()
		if asked, ok := apierrors.SuggestsClientDelay(err); ok {
			delay = max(delay, time.Duration(asked)*time.Second)
		}
		if !reconcile.Pause(ctx, delay, f.again) {
			return
		}
	}
}

// readAndWatch returns how long it has watched the object, and nil when the watch has ended.
func (f *followed[T]) readAndWatch(ctx context.Context, see func(sight[T])) (watched time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()}
	version, err := f.read(ctx, options, see)
	if err != nil {
		return 0, err
	}
	options.ResourceVersion, options.TimeoutSeconds = version, new(int64((watchTimeout + rand.N(watchTimeout)).Seconds()))
	watcher, err := f.watch(ctx, options)
	if err != nil {
		return 0, err
	}
	defer watcher.Stop()
	began := time.Now()
	err = f.observe(ctx, watcher, see)
	return time.Since(began), err
}

// observe returns nil when the watch has ended.
func (f *followed[T]) observe(ctx context.Context, watcher watch.Interface, see func(sight[T])) error {
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

// read reads the object, and returns the version from which it can be watched. That of an object that has not changed
// for long would be too old.
func (f *followed[T]) read(ctx context.Context, options metav1.ListOptions, see func(sight[T])) (version string, err error) {
	listCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := f.list(listCtx, options)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		see(sight[T]{err: err})
		return "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	seen := sight[T]{absent: true}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		live, ok := item.(T)
		if !ok {
			return fmt.Errorf("unexpected object in the list of %s: %T", f.name, item)
		}
		seen = sight[T]{object: live}
		return nil
	})
	if err == nil {
		see(seen)
	}
	return accessor.GetResourceVersion(), err
}

func ownCluster(client versioned.Interface, name string, again <-chan struct{}) *followed[*clusterv1.ManagedCluster] {
	clusters := client.ClusterV1().ManagedClusters()
	return &followed[*clusterv1.ManagedCluster]{
		name: name, again: again, watch: clusters.Watch,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return clusters.List(ctx, options)
		},
	}
}

// accepted reports whether the hub accepts a cluster that is not being deleted.
func accepted(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp == nil
}
