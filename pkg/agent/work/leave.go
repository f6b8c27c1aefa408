package work

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// RemoveAll lets go of everything that was applied for the hub, as the delete option of
// each work says, by what is on record on the managed cluster alone. It returns an error
// as long as something is left, and is then to be called again. The controller must not
// run meanwhile.
func (c *Controller) RemoveAll(ctx context.Context) error {
	records, err := c.managed.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		// Without a CRD for records, nothing was ever applied.
		return nil
	}
	if err != nil {
		return fmt.Errorf("list AppliedManifestWorks: %w", err)
	}
	var mu sync.Mutex
	var errs []error
	workers := errgroup.Group{}
	workers.SetLimit(c.workers)
	for i := range records.Items {
		record := &records.Items[i]
		if record.Spec.HubHash != c.hubHash || record.Spec.AgentID != c.agentID || record.Name != c.recordName(record.Spec.ManifestWorkName) || !c.ours(record) {
			continue
		}
		workers.Go(func() error {
			removeCtx, cancel := context.WithTimeout(ctx, passTimeout)
			defer cancel()
			if err := c.removeRecord(removeCtx, record); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("work %s: %w", record.Spec.ManifestWorkName, err))
			}
			return nil
		})
	}
	_ = workers.Wait() // no worker returns an error
	if len(errs) > 1 {
		return fmt.Errorf("%d works are not removed, among them %w", len(errs), errs[0])
	}
	return errors.Join(errs...)
}

// removeRecord lets go of the objects of a record, and of the record when they are gone.
func (c *Controller) removeRecord(ctx context.Context, record *workv1.AppliedManifestWork) error {
	orphan, err := recordedOrphans(record)
	if err != nil {
		return err
	}
	st := &workState{}
	entries := record.Status.AppliedResources
	remaining, err := c.removeAll(ctx, record, entries, letGo{ownedOnly: true, orphan: orphan})
	if err != nil || len(remaining) > 0 {
		if _, writeErr := c.setApplied(ctx, st, record, remaining); writeErr != nil {
			klog.FromContext(ctx).V(2).Info("The AppliedManifestWork is not up to date", "record", record.Name, "err", writeErr)
		}
		if err == nil {
			err = fmt.Errorf("%d objects are not gone yet, the first is %s", len(remaining), entryID(remaining[0]))
		}
		return err
	}
	return c.dropRecord(ctx, st, record)
}

// LetGo takes the agent's finalizer off the works on the hub, so that a hub which waits for
// its agents before it forgets a cluster need not wait. A hub that lets the agent see or
// change nothing any more does not wait for it either.
func (c *Controller) LetGo(ctx context.Context) error {
	works, err := c.hub.WorkV1().ManifestWorks(c.clusterName).List(ctx, metav1.ListOptions{})
	if noAccess(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list ManifestWorks: %w", err)
	}
	for i := range works.Items {
		if err := c.dropFinalizer(ctx, &workState{}, &works.Items[i]); err != nil && !noAccess(err) {
			return fmt.Errorf("work %s: %w", works.Items[i].Name, err)
		}
	}
	return nil
}

// noAccess is whether the hub says that the agent has no business there.
func noAccess(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
