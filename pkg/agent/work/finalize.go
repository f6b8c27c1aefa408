package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// finalize removes what a deleted work applied, and lets the work go when all
// of it is gone.
func (c *Controller) finalize(ctx context.Context, work *workv1.ManifestWork, st *workState) (outcome, error) {
	st.items = map[objectID]*itemState{}
	if !slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		c.watches.track(work.Name, nil)
		return outcome{state: stateDeleting}, nil
	}
	record, err := c.liveRecord(ctx, work.Name)
	if err != nil {
		return outcome{}, err
	}
	// The record of a work of the same name under another name of this cluster
	// is none of ours: then nothing of this work was applied.
	if record != nil && c.ours(record) {
		_, named := ExecutorOf(work)
		how := letGo{until: c.slice(), ownedOnly: named, orphan: func(id objectID) bool {
			return orphans(work.Spec.DeleteOption, id)
		}}
		done, err := c.clear(ctx, work.Name, st, record, how)
		if !done || err != nil {
			message := "Objects of the work are being removed"
			if err != nil {
				message = err.Error()
			} else if waits := c.cachedRecord(work.Name, st); waits != nil && len(waits.Status.AppliedResources) > 0 {
				entries := waits.Status.AppliedResources
				message = fmt.Sprintf("%d objects of the work are not gone yet, the first is %s", len(entries), entryID(entries[0]))
			}
			return outcome{state: stateDeleting, again: c.resume(how)}, errors.Join(err, c.reportDeleting(ctx, st, work, message))
		}
	}
	c.watches.track(work.Name, nil)
	return outcome{state: stateDeleting}, c.dropFinalizer(ctx, st, work)
}

// evict removes what is left of a work that the hub does not have, after a
// grace period: a work with our finalizer does not go without us unless it was
// forced to, or the hub has lost its data. The hub itself must say so: the view
// of an informer is no proof.
func (c *Controller) evict(ctx context.Context, name string, st *workState) (outcome, error) {
	if strings.HasPrefix(name, formerKey) {
		return c.evictFormer(ctx, name, st)
	}
	record := c.cachedRecord(name, st)
	if record == nil || record.Spec.HubHash != c.hubHash || record.Spec.AgentID != c.agentID || record.Name != c.recordName(name) || !c.ours(record) {
		c.watches.track(name, nil)
		c.dropState(name, st)
		return outcome{state: stateGone}, nil
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
	if record != nil {
		if left, err := c.grace(ctx, st, record); err != nil || left > 0 {
			return outcome{state: stateDeleting, again: min(left, resyncPeriod)}, err
		}
		orphan, err := recordedOrphans(record)
		if err != nil {
			return outcome{state: stateDeleting}, err
		}
		how := letGo{until: c.slice(), ownedOnly: true, orphan: orphan}
		done, err := c.clear(ctx, name, st, record, how)
		if !done || err != nil {
			return outcome{state: stateDeleting, again: c.resume(how)}, err
		}
	}
	c.watches.track(name, nil)
	c.dropState(name, st)
	return outcome{state: stateGone}, nil
}

// grace returns how long the objects of a lost work still stay. The time counts
// from when the agent first missed the work, which is put on record.
func (c *Controller) grace(ctx context.Context, st *workState, record *workv1.AppliedManifestWork) (time.Duration, error) {
	if c.evictionGrace == 0 || record.DeletionTimestamp != nil {
		return 0, nil
	}
	if start := record.Status.EvictionStartTime; start != nil {
		return max(start.Add(c.evictionGrace).Sub(c.now()), 0), nil
	}
	updated := record.DeepCopy()
	updated.Status.EvictionStartTime = &metav1.Time{Time: c.now()}
	updated, err := c.managed.WorkV1().AppliedManifestWorks().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return 0, c.forgetRecord(st, err)
	}
	st.record = updated
	klog.FromContext(ctx).Info("The hub has lost a work that it had; its objects stay for a while", "work", updated.Spec.ManifestWorkName, "graceperiod", c.evictionGrace)
	return c.evictionGrace, nil
}

// rebuildRecord lets a record go that somebody deleted, along with its
// objects, so that the next pass makes both anew.
func (c *Controller) rebuildRecord(ctx context.Context, name string, st *workState, record *workv1.AppliedManifestWork) (outcome, error) {
	st.items = map[objectID]*itemState{}
	how := letGo{until: c.slice(), ownedOnly: true, orphan: func(objectID) bool { return false }}
	done, err := c.clear(ctx, name, st, record, how)
	if done {
		return outcome{state: stateApplied, again: staleDelay}, err
	}
	return outcome{state: stateDeleting, again: c.resume(how)}, err
}

// clear removes all objects of a record and then the record. It reports
// whether all is gone; while it is not, what remains is watched.
func (c *Controller) clear(ctx context.Context, name string, st *workState, record *workv1.AppliedManifestWork, how letGo) (bool, error) {
	// The watches come first, so that the end of an object is not missed.
	refs := sets.New[objectRef]()
	for _, entry := range record.Status.AppliedResources {
		refs.Insert(entryRef(entry))
	}
	c.watches.track(name, refs)
	remaining, err := c.removeAll(ctx, record, record.Status.AppliedResources, how)
	if err != nil || len(remaining) > 0 {
		_, writeErr := c.setApplied(ctx, st, record, remaining)
		return false, errors.Join(err, writeErr)
	}
	if err := c.dropRecord(ctx, st, record); err != nil {
		return false, err
	}
	return true, nil
}

// liveRecord reads the AppliedManifestWork of a work, nil if there is none.
func (c *Controller) liveRecord(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	record, err := c.managed.WorkV1().AppliedManifestWorks().Get(ctx, c.recordName(name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !resourceNotServed(err) {
		return nil, nil
	}
	return record, err
}
