package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// settleTime is the time for which the managed cluster may still complete a write whose result is
// uncertain. It is the default of --request-timeout of API servers.
const settleTime = time.Minute

func (c *Controller) unsettled(st *workState) bool {
	return c.now().Before(st.unsettled.Add(settleTime))
}

// finalize removes the objects of a deleted ManifestWork, and then its finalizer.
func (c *Controller) finalize(ctx context.Context, key cache.ObjectName, work *workv1.ManifestWork, st *workState) (outcome, error) {
	st.items, st.admitted = map[decide.ObjectID]*itemState{}, admission{}
	if !slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		c.watches.track(key, nil)
		return outcome{state: stateDeleting}, nil
	}
	record, err := c.liveRecord(ctx, work.Name)
	if err != nil {
		return outcome{}, err
	}
	// A record with the name of another cluster shows that no objects were applied under this name.
	if record != nil && c.ours(record) {
		remaining, again, err := c.removeRecord(ctx, key, st, record, work)
		if err != nil || len(remaining) > 0 {
			var message string
			switch {
			case err != nil:
				message = err.Error()
			case c.unsettled(st):
				message = "A write was interrupted; waiting until the managed cluster has completed it"
			default:
				message = fmt.Sprintf("%d objects of the ManifestWork still exist, such as %s", len(remaining), decide.EntryID(remaining[0]))
			}
			return outcome{state: stateDeleting, again: again}, errors.Join(err, c.reportDeleting(ctx, work, message))
		}
	}
	c.watches.track(key, nil)
	return outcome{state: stateDeleting}, c.dropFinalizer(ctx, work)
}

// evict removes the objects of a ManifestWork that does not exist on the hub, after a grace period.
// A ManifestWork with the agent's finalizer disappears only if its deletion was forced or the hub
// lost data. The informer does not prove that it does not exist, so the agent reads it from the
// hub.
func (c *Controller) evict(ctx context.Context, key cache.ObjectName, st *workState) (outcome, error) {
	name := key.Name
	st.admitted = admission{}
	record := c.cachedRecord(name)
	if record == nil || !c.wrote(record) {
		return c.forget(key)
	}
	gone, err := c.workGone(ctx, name)
	if err != nil {
		return outcome{}, err
	}
	if !gone {
		return outcome{state: stateDeleting, again: staleDelay}, nil
	}
	if record, err = c.liveRecord(ctx, name); err != nil {
		return outcome{}, err
	}
	if record == nil {
		return c.forget(key)
	}
	if retained, err := c.retainRecord(ctx, st, record); retained || err != nil {
		return outcome{state: stateRetained, again: restored.Pause}, err
	}
	st.confirmed = c.Restored.Release(retainedRef(name)) || st.confirmed
	return c.evictRecord(ctx, key, st, record)
}

// wrote reports whether the agent wrote a record for the current hub.
func (c *Controller) wrote(record *workv1.AppliedManifestWork) bool {
	return record.Spec.HubHash == c.HubHash && record.Spec.AgentID == c.AgentID && record.Name == c.recordName(record.Spec.ManifestWorkName) && c.ours(record)
}

// former reports whether the agent wrote a record while it was registered with another hub. Agents
// of several hubs have different agent IDs.
func (c *Controller) former(record *workv1.AppliedManifestWork) bool {
	return record.Spec.HubHash != c.HubHash && record.Spec.AgentID == c.AgentID && c.ours(record)
}

// evictFormer removes the objects that the agent applied for a previous hub, after the grace
// period. Objects that ManifestWorks of the current hub have adopted stay.
func (c *Controller) evictFormer(ctx context.Context, key cache.ObjectName, st *workState) (outcome, error) {
	record, err := c.recordClient().Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return outcome{}, err
	}
	if err != nil || !c.former(record) {
		return c.forget(key)
	}
	return c.evictRecord(ctx, key, st, record)
}

// evictRecord removes the objects of a record without a ManifestWork, and then the record.
func (c *Controller) evictRecord(ctx context.Context, key cache.ObjectName, st *workState, record *workv1.AppliedManifestWork) (outcome, error) {
	if left, err := c.grace(ctx, st, record); err != nil || left > 0 {
		return outcome{state: stateDeleting, again: min(left, resyncPeriod)}, err
	}
	if remaining, again, err := c.removeRecord(ctx, key, st, record, nil); err != nil || len(remaining) > 0 {
		return outcome{state: stateDeleting, again: again}, err
	}
	klog.FromContext(ctx).Info("Removed the objects of a ManifestWork that does not exist", "record", record.Name, "hubHash", record.Spec.HubHash)
	return c.forget(key)
}

func (c *Controller) forget(key cache.ObjectName) (outcome, error) {
	c.Restored.Release(retainedRef(key.Name))
	c.watches.track(key, nil)
	c.states.forget(key)
	return outcome{state: stateGone}, nil
}

// grace returns the time that the objects of a record without a ManifestWork still stay. The status
// of the record contains the time when the agent first found that the ManifestWork does not exist.
func (c *Controller) grace(ctx context.Context, st *workState, record *workv1.AppliedManifestWork) (time.Duration, error) {
	if c.EvictionGracePeriod == 0 || record.DeletionTimestamp != nil || st.confirmed {
		return 0, nil
	}
	if start := record.Status.EvictionStartTime; start != nil {
		return max(start.Add(c.EvictionGracePeriod).Sub(c.now()), 0), nil
	}
	updated := record.DeepCopy()
	updated.Status.EvictionStartTime = &metav1.Time{Time: c.now()}
	if _, err := c.writeRecordStatus(ctx, updated); err != nil {
		return 0, err
	}
	klog.FromContext(ctx).Info("A ManifestWork disappeared from the hub; its objects are removed after the grace period", "work", updated.Spec.ManifestWorkName, "gracePeriod", c.EvictionGracePeriod)
	return c.EvictionGracePeriod, nil
}

// rebuildRecord removes a record that another writer deleted, and its objects. The next pass
// creates both again.
func (c *Controller) rebuildRecord(ctx context.Context, key cache.ObjectName, st *workState, record *workv1.AppliedManifestWork) (outcome, error) {
	st.items = map[decide.ObjectID]*itemState{}
	if remaining, again, err := c.removeRecord(ctx, key, st, record, nil); err != nil || len(remaining) > 0 {
		return outcome{state: stateDeleting, again: again}, err
	}
	return outcome{state: stateApplied, again: staleDelay}, nil
}

// removeRecord removes the objects of a record, and then the record unless objects remain. Until then, it
// watches them. work is the ManifestWork, or nil if it is not known. again is the delay until an incomplete
// removal continues.
func (c *Controller) removeRecord(ctx context.Context, key cache.ObjectName, st *workState, record *workv1.AppliedManifestWork, work *workv1.ManifestWork) (remaining []workv1.AppliedManifestResourceMeta, again time.Duration, err error) {
	// The watches start first, so that they receive the deletion of each object.
	refs := sets.New[objectRef]()
	for _, entry := range record.Status.AppliedResources {
		refs.Insert(entryRef(entry))
	}
	c.watches.track(key, refs)
	until := c.now().Add(c.Slice)
	remaining, err = c.removeObjects(ctx, st, record, work, until)
	return remaining, c.resume(until), err
}

// removeObjects is like removeRecord, without watches.
func (c *Controller) removeObjects(ctx context.Context, st *workState, record *workv1.AppliedManifestWork, work *workv1.ManifestWork, until time.Time) ([]workv1.AppliedManifestResourceMeta, error) {
	options, err := removalOptions(record, work)
	if err != nil {
		return nil, err
	}
	options.Until = until
	remaining, err := c.remover.Remove(ctx, record, record.Status.AppliedResources, options)
	if c.unsettled(st) {
		// Without its entry, nothing would remove the object that such a write creates.
		remaining = record.Status.AppliedResources
	}
	if err == nil && len(remaining) == 0 {
		return nil, c.deleteRecord(ctx, record)
	}
	_, writeErr := c.setApplied(ctx, record, remaining)
	return remaining, errors.Join(err, writeErr)
}

// resume returns the delay until an incomplete removal continues, whose slice ends at the given time.
func (c *Controller) resume(until time.Time) time.Duration {
	if c.now().Before(until) {
		return pollPeriod
	}
	return time.Millisecond
}

// RemoveAll removes all objects that were applied for the hub, according to the delete options in
// the AppliedManifestWorks. It sends no request to the hub. It returns an error as long as objects
// remain, and must then be called again. The controller must not run at the same time.
func (c *Controller) RemoveAll(ctx context.Context) error {
	records, err := c.Managed.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		// Without the CRD, no ManifestWork was ever applied.
		return nil
	}
	if err != nil {
		return fmt.Errorf("list AppliedManifestWorks: %w", err)
	}
	errs := make([]error, len(records.Items))
	workqueue.ParallelizeUntil(ctx, c.Workers, len(records.Items), func(i int) {
		removeCtx, cancel := context.WithTimeout(ctx, passTimeout)
		defer cancel()
		record := &records.Items[i]
		if !c.wrote(record) {
			return
		}
		remaining, err := c.removeObjects(removeCtx, &workState{}, record, nil, time.Time{})
		if err == nil && len(remaining) > 0 {
			err = fmt.Errorf("%d objects still exist, such as %s", len(remaining), decide.EntryID(remaining[0]))
		}
		if err != nil {
			errs[i] = fmt.Errorf("ManifestWork %s: %w", record.Spec.ManifestWorkName, err)
		}
	})
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > 1 {
		return fmt.Errorf("%d ManifestWorks are not removed, such as %w", len(errs), errs[0])
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// RemoveFinalizers removes the agent's finalizer from the ManifestWorks on the hub, so that the hub
// can delete the cluster without waiting for the agent. If the hub denies the agent access, it
// returns nil.
func (c *Controller) RemoveFinalizers(ctx context.Context) error {
	works, err := c.Hub.WorkV1().ManifestWorks(c.ClusterName).List(ctx, metav1.ListOptions{})
	if noAccess(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list ManifestWorks: %w", err)
	}
	for i := range works.Items {
		if err := c.dropFinalizer(ctx, &works.Items[i]); err != nil && !noAccess(err) {
			return fmt.Errorf("ManifestWork %s: %w", works.Items[i].Name, err)
		}
	}
	return nil
}

// noAccess reports whether an error shows that the hub denies the agent access.
func noAccess(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
