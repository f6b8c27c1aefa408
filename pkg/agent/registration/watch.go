package registration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
	// watchTimeout, and up to as much again, is how long one watch lasts.
	watchTimeout = 5 * time.Minute
	// firstPause to mostPause is how long a failed request waits for its next try.
	firstPause = 500 * time.Millisecond
	mostPause  = 2 * time.Minute
	// followPause is the most for what is followed: an agent without access learns only by
	// asking that it has access again.
	followPause = 20 * time.Second
)

// object is what can be followed.
type object interface {
	comparable
	metav1.Object
	runtime.Object
}

// sight is one look at an object.
type sight[T object] struct {
	// object is what there is, if err is nil and it is not deleted.
	object T
	// deleted is whether the object was seen to be deleted.
	deleted bool
	// err is why it cannot be seen, such as that it does not exist.
	err error
}

// followed is an object by its name, and how to read it.
type followed[T object] struct {
	get   func(ctx context.Context) (T, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	name  string
	// again makes it look anew, if it is not nil.
	again <-chan struct{}
}

// follow tells see of every state of an object, and of every error, until ctx ends. It is
// not an informer, since it matters here what the server answers.
func (f *followed[T]) follow(ctx context.Context, see func(sight[T])) {
	waits := pauses{first: firstPause, most: followPause}
	for ctx.Err() == nil {
		getCtx, cancel := context.WithTimeout(ctx, requestTimeout)
		live, err := f.get(getCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			see(sight[T]{object: live})
			began := time.Now()
			err = f.stream(ctx, live.GetResourceVersion(), see)
			if time.Since(began) > firstPause {
				waits.reset()
			}
		} else {
			see(sight[T]{err: err})
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

// stream watches from a version on. It returns nil when the watch has ended.
func (f *followed[T]) stream(ctx context.Context, version string, see func(sight[T])) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seconds := int64((watchTimeout + rand.N(watchTimeout)).Seconds())
	watcher, err := f.watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String(),
		ResourceVersion: version, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.again:
			return nil
		case event, open := <-watcher.ResultChan():
			if !open {
				return nil
			}
			switch event.Type {
			case watch.Added, watch.Modified, watch.Deleted:
				live, ok := event.Object.(T)
				if !ok {
					return fmt.Errorf("the watch of %s has told of a %T", f.name, event.Object)
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

// ownCluster is the ManagedCluster of a name.
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

// accepted is whether the hub lets a cluster act, and has done all that takes.
func accepted(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp == nil
}
