package registration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	// drainPeriod is how often the server looks whether the agent of a deleted cluster has
	// removed what the hub delivered.
	drainPeriod = time.Second
	// namedWorks is how many ManifestWorks a message names.
	namedWorks = 10
	// lastPriority is the highest cleanup priority, which is deleted last.
	lastPriority = 100
)

// Draining reports whether a deleted cluster keeps its access, so that its agent can remove
// what the hub delivered. A cluster that is denied does not.
func Draining(cluster *clusterv1.ManagedCluster) bool {
	draining, _ := cluster.Draining()
	return draining
}

// drain deletes the ManifestWorks of a deleted cluster while its agent still has access, and
// reports whether that is over: none is left, or the time for it has passed.
func (c *Controller) drain(ctx context.Context, cluster *clusterv1.ManagedCluster) (over bool, again time.Duration, _ error) {
	latest, err := c.current(ctx, cluster.Name)
	if err != nil {
		return false, 0, err
	}
	if latest == nil || latest.UID != cluster.UID {
		return false, waitPeriod, nil // the cache lags
	}
	if !Draining(latest) {
		return true, 0, nil
	}
	left, failure := c.deleteWorks(ctx, cluster.Name)
	overdue := c.clock.Since(latest.DeletionTimestamp.Time) >= c.drainTimeout
	switch {
	case failure != nil && !overdue:
		if err := c.setDeleting(ctx, latest, clusterv1.ReasonDeletingError, failure.Error()); err != nil {
			return false, 0, err
		}
		return false, 0, failure
	case len(left) > 0 && !overdue:
		return false, drainPeriod, c.setDeleting(ctx, latest, clusterv1.ReasonResourceRemaining, "Waiting for the agent to remove "+enumerate(left)+".")
	case len(left) > 0 || failure != nil:
		message := fmt.Sprintf("The agent did not remove within %s what the hub delivered. It may remain on the cluster: %s.", c.drainTimeout, enumerate(left))
		if failure != nil {
			message = fmt.Sprintf("The server could not delete within %s what the hub delivered, which may remain on the cluster: %v", c.drainTimeout, failure)
		}
		klog.FromContext(ctx).Info("deleting a cluster although its agent has not removed everything", "cluster", cluster.Name, "message", message)
		c.events.Eventf(latest, nil, corev1.EventTypeWarning, clusterv1.ReasonDrainTimedOut, "Deleting", "%s", message)
		return true, 0, c.setDeleting(ctx, latest, clusterv1.ReasonDrainTimedOut, message)
	}
	return true, 0, c.setDeleting(ctx, latest, clusterv1.ReasonNoResource, "The agent has removed what the hub delivered.")
}

// deleteWorks deletes the ManifestWorks of a cluster that have the lowest cleanup priority of
// those that are left, and returns the names of all that are left.
func (c *Controller) deleteWorks(ctx context.Context, cluster string) (left []string, err error) {
	works, err := c.cachedWorks.ManifestWorks(cluster).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	if len(works) == 0 {
		// The cache may not have the newest.
		stored, err := c.works.ManifestWorks(cluster).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return nil, fmt.Errorf("listing the ManifestWorks of cluster %s: %w", cluster, err)
		}
		for i := range stored.Items {
			works = append(works, &stored.Items[i])
		}
	}
	first := lastPriority
	for _, work := range works {
		left = append(left, work.Name)
		first = min(first, cleanupPriority(work))
	}
	slices.Sort(left)
	for _, work := range works {
		if work.DeletionTimestamp != nil || cleanupPriority(work) != first {
			continue
		}
		err := c.works.ManifestWorks(cluster).Delete(ctx, work.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &work.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return left, fmt.Errorf("deleting ManifestWork %s/%s: %w", cluster, work.Name, err)
		}
	}
	return left, nil
}

// cleanupPriority returns when a ManifestWork is deleted with its cluster: 0 first, 100 last. One
// without a valid annotation is deleted first, as on hubs that run OCM.
func cleanupPriority(work *workv1.ManifestWork) int {
	priority, err := strconv.Atoi(work.Annotations[clusterv1.CleanupPriorityAnnotation])
	if err != nil || priority < 0 || priority > lastPriority {
		return 0
	}
	return priority
}

// enumerate names the first ManifestWorks of a list.
func enumerate(names []string) string {
	more := len(names) - namedWorks
	if more <= 0 {
		return "ManifestWorks " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("ManifestWorks %s and %d more", strings.Join(names[:namedWorks], ", "), more)
}

func (c *Controller) setDeleting(ctx context.Context, cluster *clusterv1.ManagedCluster, reason, message string) error {
	return c.setCondition(ctx, cluster, condition(clusterv1.ManagedClusterConditionDeleting, metav1.ConditionTrue, reason, message), Draining)
}
