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

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

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
	var mu sync.Mutex
	var errs []error
	workers := errgroup.Group{}
	workers.SetLimit(c.Workers)
	for i := range records.Items {
		record := &records.Items[i]
		if record.Spec.HubHash != c.HubHash || record.Spec.AgentID != c.AgentID || record.Name != c.recordName(record.Spec.ManifestWorkName) || !c.ours(record) {
			continue
		}
		workers.Go(func() error {
			removeCtx, cancel := context.WithTimeout(ctx, passTimeout)
			defer cancel()
			if err := c.removeRecord(removeCtx, record); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("ManifestWork %s: %w", record.Spec.ManifestWorkName, err))
			}
			return nil
		})
	}
	_ = workers.Wait() // no worker returns an error
	if len(errs) > 1 {
		return fmt.Errorf("%d ManifestWorks are not removed, such as %w", len(errs), errs[0])
	}
	return errors.Join(errs...)
}

// removeRecord removes the objects of a record, and then the record.
func (c *Controller) removeRecord(ctx context.Context, record *workv1.AppliedManifestWork) error {
	orphan, err := recordedOrphans(record)
	if err != nil {
		return err
	}
	st := &workState{}
	remaining, err := c.remover.RemoveAll(ctx, record, record.Status.AppliedResources, removal.Options{OwnedOnly: true, Orphan: orphan})
	if err == nil && len(remaining) == 0 {
		return c.dropRecord(ctx, st, record)
	}
	if _, writeErr := c.setApplied(ctx, st, record, remaining); writeErr != nil {
		klog.FromContext(ctx).V(2).Info("Failed to update the AppliedManifestWork", "record", record.Name, "err", writeErr)
	}
	if err == nil {
		err = fmt.Errorf("%d objects still exist, such as %s", len(remaining), decide.EntryID(remaining[0]))
	}
	return err
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
		if err := c.dropFinalizer(ctx, &workState{}, &works.Items[i]); err != nil && !noAccess(err) {
			return fmt.Errorf("ManifestWork %s: %w", works.Items[i].Name, err)
		}
	}
	return nil
}

// noAccess reports whether an error shows that the hub denies the agent access.
func noAccess(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
