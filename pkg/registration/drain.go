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
	// namedObjects is how many objects of a kind a message names.
	namedObjects = 10
	// lastPriority is the highest cleanup priority, which is deleted last.
	lastPriority = 100
)

// Draining reports whether a deleted cluster keeps its access, so that its agent can remove
// what the hub delivered. A cluster that is denied does not.
func Draining(cluster *clusterv1.ManagedCluster) bool {
	draining, _ := cluster.Draining()
	return draining
}

// drain deletes the ManagedClusterAddOns of a deleted cluster, and then its ManifestWorks, while its
// agent still has access. It reports whether that is over: none is left, or the time for it has
// passed.
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
	left, failure := c.deleteDelivered(ctx, cluster.Name)
	overdue := c.clock.Since(latest.DeletionTimestamp.Time) >= c.drainTimeout
	switch {
	case failure != nil && !overdue:
		if err := c.setDeleting(ctx, latest, clusterv1.ReasonDeletingError, failure.Error()); err != nil {
			return false, 0, err
		}
		return false, 0, failure
	case !left.empty() && !overdue:
		return false, drainPeriod, c.setDeleting(ctx, latest, clusterv1.ReasonResourceRemaining, "Waiting until these are removed: "+left.String()+".")
	case !left.empty() || failure != nil:
		message := fmt.Sprintf("What the hub delivered was not removed within %s. It may remain on the cluster: %s.", c.drainTimeout, left)
		if failure != nil {
			message = fmt.Sprintf("The server could not delete within %s what the hub delivered, which may remain on the cluster: %v", c.drainTimeout, failure)
		}
		klog.FromContext(ctx).Info("deleting a cluster although its agent has not removed everything", "cluster", cluster.Name, "message", message)
		c.events.Eventf(latest, nil, corev1.EventTypeWarning, clusterv1.ReasonDrainTimedOut, "Deleting", "%s", message)
		return true, 0, c.setDeleting(ctx, latest, clusterv1.ReasonDrainTimedOut, message)
	}
	return true, 0, c.setDeleting(ctx, latest, clusterv1.ReasonNoResource, "The agent has removed what the hub delivered.")
}

// remaining names what the hub has of a cluster that is drained.
type remaining struct {
	addons, works []string
}

func (r remaining) empty() bool { return len(r.addons)+len(r.works) == 0 }

// String names the first ones.
func (r remaining) String() string {
	var parts []string
	if len(r.addons) > 0 {
		parts = append(parts, "ManagedClusterAddOns "+enumerate(r.addons))
	}
	if len(r.works) > 0 {
		parts = append(parts, "ManifestWorks "+enumerate(r.works))
	}
	return strings.Join(parts, "; ")
}

// deleteDelivered deletes what goes next, and returns what is left. ManifestWorks of an addon may be
// what its manager needs to clean up on the cluster, so that addons go first, and works only once
// none is left.
func (c *Controller) deleteDelivered(ctx context.Context, cluster string) (left remaining, err error) {
	if left.addons, err = c.deleteAddons(ctx, cluster); err != nil || len(left.addons) > 0 {
		return left, err
	}
	left.works, err = c.deleteWorks(ctx, cluster)
	return left, err
}

// deleteAddons deletes the ManagedClusterAddOns of a cluster, and returns the names of all that are left.
func (c *Controller) deleteAddons(ctx context.Context, cluster string) (left []string, err error) {
	addons, err := c.addons.ManagedClusterAddOns(cluster).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // a hub without the CustomResourceDefinition
	}
	if err != nil {
		return nil, fmt.Errorf("listing the ManagedClusterAddOns of cluster %s: %w", cluster, err)
	}
	for i := range addons.Items {
		addon := &addons.Items[i]
		left = append(left, addon.Name)
		if addon.DeletionTimestamp != nil {
			continue
		}
		err := c.addons.ManagedClusterAddOns(cluster).Delete(ctx, addon.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &addon.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return left, fmt.Errorf("deleting ManagedClusterAddOn %s/%s: %w", cluster, addon.Name, err)
		}
	}
	return left, nil
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

// enumerate names the first of a list.
func enumerate(names []string) string {
	more := len(names) - namedObjects
	if more <= 0 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namedObjects], ", "), more)
}

func (c *Controller) setDeleting(ctx context.Context, cluster *clusterv1.ManagedCluster, reason, message string) error {
	return c.setCondition(ctx, cluster, condition(clusterv1.ManagedClusterConditionDeleting, metav1.ConditionTrue, reason, message), Draining)
}
