// Package manifestwork contains the controllers of ManifestWorks on the hub: the deletion after their TTL,
// and the access of agents to them while the namespace of a cluster is deleted.
package manifestwork

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	workinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// NewTTLController returns a controller that deletes finished ManifestWorks after
// deleteOption.ttlSecondsAfterFinished. The caller starts the informer.
func NewTTLController(client workclient.ManifestWorksGetter, works workinformers.ManifestWorkInformer) *reconcile.Deadline[*workv1.ManifestWork] {
	return &reconcile.Deadline[*workv1.ManifestWork]{
		Name:     "manifestwork-expiry",
		Informer: works.Informer(),
		Due:      expiry,
		Delete: func(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
			return client.ManifestWorks(namespace).Delete(ctx, name, options)
		},
		Clock: clock.RealClock{},
	}
}

// expiry returns the time at which a finished ManifestWork must be deleted, if it has a TTL.
func expiry(work *workv1.ManifestWork) (time.Time, bool) {
	option := work.Spec.DeleteOption
	if work.DeletionTimestamp != nil || option == nil || option.TTLSecondsAfterFinished == nil {
		return time.Time{}, false
	}
	// The controller of the ManifestWorkReplicaSet would create the ManifestWork again.
	if _, owned := work.Labels[workv1.ManifestWorkReplicaSetLabel]; owned {
		return time.Time{}, false
	}
	complete := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete)
	if complete == nil || complete.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	return complete.LastTransitionTime.Add(time.Duration(*option.TTLSecondsAfterFinished) * time.Second), true
}
