package reconcile

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Deadline deletes each object of an informer when it is due.
type Deadline[T metav1.Object] struct {
	// Name is the name of the loop in logs and in the metrics of its queue.
	Name     string
	Informer cache.SharedIndexInformer
	// Due returns the time at which an object must be deleted, or false for never.
	Due func(T) (time.Time, bool)
	// Delete deletes an object.
	Delete func(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error
	Clock  clock.PassiveClock
}

// Run deletes objects until ctx ends, and returns after every worker has stopped.
func (d *Deadline[T]) Run(ctx context.Context) {
	loop := Loop{
		Name: d.Name,
		Feeds: []Feed{{Informer: d.Informer, Keys: func(obj any) []cache.ObjectName {
			if object, ok := obj.(T); ok {
				if _, ever := d.Due(object); ever {
					return Own(obj)
				}
			}
			return nil
		}}},
		Reconcile: d.reconcile,
	}
	loop.Run(ctx)
}

func (d *Deadline[T]) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	obj, exists, err := d.Informer.GetIndexer().GetByKey(name.String())
	object, ok := obj.(T)
	if err != nil || !exists || !ok {
		return 0, err
	}
	due, ever := d.Due(object)
	if !ever {
		return 0, nil
	}
	if left := due.Sub(d.Clock.Now()); left > 0 {
		return left, nil
	}
	// A newer version may not be due.
	uid, version := object.GetUID(), object.GetResourceVersion()
	err = d.Delete(ctx, name.Namespace, name.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("delete the object: %w", err)
	}
	return 0, nil
}
