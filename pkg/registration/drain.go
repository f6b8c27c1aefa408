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
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// drainPeriod is the interval between checks of a cluster that is drained.
	drainPeriod = time.Second
	// namedObjects bounds the objects of a kind that a message names.
	namedObjects = 10
	// lastPriority is the highest cleanup priority, which is deleted last.
	lastPriority = 100
)

// Draining reports whether a deleted cluster keeps its access, so that its agent can remove the
// delivered objects. A denied cluster does not keep it.
func Draining(cluster *clusterv1.ManagedCluster) bool {
	draining, _ := cluster.Draining()
	return draining
}

// drain deletes the ManagedClusterAddOns of a deleted cluster and then its ManifestWorks, while its agent still has
// access. It returns true when none is left or the timeout has passed.
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
	kind, left, failure := c.deleteDelivered(ctx, cluster.Name)
	if failure == nil && len(left) == 0 {
		return true, 0, c.setDeleting(ctx, latest, clusterv1.ReasonNoResource, "The agent has removed all delivered objects.")
	}
	if c.Clock.Since(latest.DeletionTimestamp.Time) < c.DrainTimeout {
		if failure == nil {
			return false, drainPeriod, c.setDeleting(ctx, latest, clusterv1.ReasonResourceRemaining, "Waiting until these are removed: "+kind+" "+enumerate(left)+".")
		}
		if err := c.setDeleting(ctx, latest, clusterv1.ReasonDeletingError, failure.Error()); err != nil {
			return false, 0, err
		}
		return false, 0, failure
	}
	message := fmt.Sprintf("The agent did not remove the delivered objects within %s. They may remain on the cluster: %s %s.", c.DrainTimeout, kind, enumerate(left))
	if failure != nil {
		message = fmt.Sprintf("The server could not delete the delivered objects within %s. They may remain on the cluster: %v", c.DrainTimeout, failure)
	}
	klog.FromContext(ctx).Info("Deleting a cluster although its agent has not removed all objects", "cluster", cluster.Name, "message", message)
	c.Events.Eventf(latest, nil, corev1.EventTypeWarning, clusterv1.ReasonDrainTimedOut, "Deleting", "%s", message)
	return true, 0, c.setDeleting(ctx, latest, clusterv1.ReasonDrainTimedOut, message)
}

// deleteDelivered deletes the objects that are next in order, and returns the kind and the names of those that remain. The
// manager of an add-on may need its ManifestWorks to clean up, so ManifestWorks follow after the last add-on.
func (c *Controller) deleteDelivered(ctx context.Context, cluster string) (kind string, left []string, err error) {
	if left, err = c.deleteAddons(ctx, cluster); err != nil || len(left) > 0 {
		return "ManagedClusterAddOns", left, err
	}
	left, err = c.deleteWorks(ctx, cluster)
	return "ManifestWorks", left, err
}

// deleteAddons deletes the ManagedClusterAddOns of a cluster, and returns the names of those that remain.
func (c *Controller) deleteAddons(ctx context.Context, cluster string) (left []string, err error) {
	addons, err := c.Addons.ManagedClusterAddOns(cluster).List(ctx, metav1.ListOptions{})
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
		err := c.Addons.ManagedClusterAddOns(cluster).Delete(ctx, addon.Name, *metav1.NewPreconditionDeleteOptions(string(addon.UID)))
		if err = reconcile.IgnoreOutdated(err); err != nil {
			return left, fmt.Errorf("deleting ManagedClusterAddOn %s/%s: %w", cluster, addon.Name, err)
		}
	}
	return left, nil
}

// deleteWorks deletes the remaining ManifestWorks with the lowest cleanup priority, and returns the names of all that
// remain.
func (c *Controller) deleteWorks(ctx context.Context, cluster string) (left []string, err error) {
	works, err := c.CachedWorks.ManifestWorks(cluster).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	if len(works) == 0 {
		// The cache may not contain the newest ManifestWorks.
		stored, err := c.Works.ManifestWorks(cluster).List(ctx, metav1.ListOptions{Limit: 1})
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
		err := c.Works.ManifestWorks(cluster).Delete(ctx, work.Name, *metav1.NewPreconditionDeleteOptions(string(work.UID)))
		if err = reconcile.IgnoreOutdated(err); err != nil {
			return left, fmt.Errorf("deleting ManifestWork %s/%s: %w", cluster, work.Name, err)
		}
	}
	return left, nil
}

// cleanupPriority returns the priority of a ManifestWork: 0 is deleted first and 100 last. It is 0 without a valid
// annotation, as on hubs that run OCM.
func cleanupPriority(work *workv1.ManifestWork) int {
	priority, err := strconv.Atoi(work.Annotations[clusterv1.CleanupPriorityAnnotation])
	if err != nil || priority < 0 || priority > lastPriority {
		return 0
	}
	return priority
}

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
