package worksync

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	workinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/work/v1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// Expirer deletes finished ManifestWorks whose deleteOption.ttlSecondsAfterFinished
// has passed. One of it acts on a hub at a time.
type Expirer struct {
	works  workclient.ManifestWorksGetter
	lister worklisters.ManifestWorkLister
	clock  clock.PassiveClock
	loop   reconcile.Loop
}

// NewExpirer returns an Expirer that is fed by the given informer, which the
// caller starts.
func NewExpirer(client workclient.ManifestWorksGetter, works workinformers.ManifestWorkInformer) *Expirer {
	e := &Expirer{works: client, lister: works.Lister(), clock: clock.RealClock{}}
	e.loop = reconcile.Loop{
		Name:      "manifestwork-expiry",
		Reconcile: e.reconcile,
		Feeds:     []reconcile.Feed{{Informer: works.Informer(), Keys: expiringKeys}},
	}
	return e
}

// Run deletes until ctx ends, and returns once every worker has stopped.
func (e *Expirer) Run(ctx context.Context) { e.loop.Run(ctx) }

func expiringKeys(obj any) []cache.ObjectName {
	work, ok := obj.(*workv1.ManifestWork)
	if !ok {
		return nil
	}
	if _, expires := expiry(work); !expires {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(work)}
}

// expiry is when a finished work is due to be deleted.
func expiry(work *workv1.ManifestWork) (time.Time, bool) {
	option := work.Spec.DeleteOption
	if work.DeletionTimestamp != nil || option == nil || option.TTLSecondsAfterFinished == nil {
		return time.Time{}, false
	}
	complete := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete)
	if complete == nil || complete.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	return complete.LastTransitionTime.Add(time.Duration(*option.TTLSecondsAfterFinished) * time.Second), true
}

func (e *Expirer) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	work, err := e.lister.ManifestWorks(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	due, expires := expiry(work)
	if !expires {
		return 0, nil
	}
	if left := due.Sub(e.clock.Now()); left > 0 {
		return left, nil
	}
	// The work as it was read is what has expired; one that was changed since is looked at again.
	err = e.works.ManifestWorks(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &work.UID, ResourceVersion: &work.ResourceVersion},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("deleting an expired ManifestWork: %w", err)
	}
	return 0, nil
}
