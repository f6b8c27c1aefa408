package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// cachedWork returns the newest known version of a ManifestWork, or nil if the informer does not
// contain it.
func (c *Controller) cachedWork(name string) *workv1.ManifestWork {
	known, _ := c.works.Get(name) // nil if the informer does not contain it
	cached, _, _ := c.workCache.GetByKey(c.key(name).String())
	// The versions of a hub that was restored from a snapshot repeat.
	if work, ok := cached.(*workv1.ManifestWork); ok && known != nil && work.UID == known.UID {
		return work
	}
	return known
}

// patchWork patches a ManifestWork on the hub. The change must contain its UID.
func (c *Controller) patchWork(ctx context.Context, work *workv1.ManifestWork, change map[string]any, subresources ...string) (*workv1.ManifestWork, error) {
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	patched, err := c.Hub.WorkV1().ManifestWorks(c.ClusterName).Patch(ctx, work.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return nil, err
	}
	c.workCache.Mutation(patched)
	return patched, nil
}

// setFinalizers replaces the finalizers of a ManifestWork if its version has not changed.
func (c *Controller) setFinalizers(ctx context.Context, work *workv1.ManifestWork, finalizers []string) (*workv1.ManifestWork, error) {
	return c.patchWork(ctx, work, map[string]any{"metadata": map[string]any{
		"uid": work.UID, "resourceVersion": work.ResourceVersion, "finalizers": finalizers,
	}})
}

func (c *Controller) ensureFinalizer(ctx context.Context, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	if slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		return work, nil
	}
	finalizers := append(slices.Clone(work.Finalizers), workv1.ManifestWorkFinalizer)
	return c.setFinalizers(ctx, work, finalizers)
}

func (c *Controller) dropFinalizer(ctx context.Context, work *workv1.ManifestWork) error {
	if !slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		return nil
	}
	_, err := c.setFinalizers(ctx, work, without(work.Finalizers, workv1.ManifestWorkFinalizer))
	return removal.IgnoreNotFound(err)
}

// without returns a list, which is not nil, of the other finalizers.
func without(finalizers []string, finalizer string) []string {
	return slices.DeleteFunc(append([]string{}, finalizers...), func(other string) bool { return other == finalizer })
}

// setStatus writes the status of a ManifestWork if it differs. It ignores the version of the
// ManifestWork, because only the agent writes the status and each condition contains its
// generation. So an author who changes the spec repeatedly does not prevent the report.
func (c *Controller) setStatus(ctx context.Context, work *workv1.ManifestWork, status workv1.ManifestWorkStatus) error {
	status.ExecutorChoice = work.Status.ExecutorChoice
	if equality.Semantic.DeepEqual(work.Status, status) {
		return nil
	}
	status.ExecutorChoice = nil // only the hub writes it
	if status.Conditions == nil {
		status.Conditions = []metav1.Condition{}
	}
	if status.ResourceStatus.Manifests == nil {
		status.ResourceStatus.Manifests = []workv1.ManifestCondition{}
	}
	// The report is the end of the trace, so it is recorded even if there are many objects.
	ctx, _ = tracing.WithBudget(ctx, reportSpans)
	ctx, span := tracing.Start(ctx, "Report status")
	_, err := c.patchWork(ctx, work, map[string]any{"metadata": map[string]any{"uid": work.UID}, "status": status}, "status")
	tracing.End(span, tracing.Reason(err))
	return err
}

// workGone reports whether a ManifestWork does not exist on the hub.
func (c *Controller) workGone(ctx context.Context, name string) (bool, error) {
	_, err := c.Hub.WorkV1().ManifestWorks(c.ClusterName).Get(ctx, name, metav1.GetOptions{})
	if reconcile.Gone(err, name) {
		return true, nil
	}
	return false, err
}

// skippedAll returns the results of items if a pass ended before the apply step. Items that were
// applied before are still reported as applied.
func skippedAll(st *workState, items []*decide.Item, err error) []status.Result {
	results := make([]status.Result, len(items))
	for i, it := range items {
		results[i].Err = cmp.Or(it.Err, err)
		if state := st.items[it.ID()]; it.Err == nil && state != nil && state.hash == it.Hash && state.Applied {
			results[i] = state.result
		}
	}
	return results
}

func (c *Controller) report(ctx context.Context, work *workv1.ManifestWork, items []*decide.Item, results []status.Result, frozen bool) error {
	return c.setStatus(ctx, work, status.Work(work.Status, work.Generation, items, results, frozen))
}

// reportDeleting writes the reason why a deleted ManifestWork still exists.
func (c *Controller) reportDeleting(ctx context.Context, work *workv1.ManifestWork, message string) error {
	updated := *work.Status.DeepCopy()
	meta.SetStatusCondition(&updated.Conditions, metav1.Condition{
		Type: workv1.WorkDeleting, Status: metav1.ConditionTrue, Reason: workv1.ReasonWorkDeleting,
		Message: status.Truncate(message), ObservedGeneration: work.Generation,
	})
	return c.setStatus(ctx, work, updated)
}

func isConnectionError(err error) bool {
	var urlErr *url.Error
	var netErr net.Error
	return errors.As(err, &urlErr) || errors.As(err, &netErr)
}

// uncertain reports whether the managed cluster may still complete a write that failed: there was no
// response, or it is from a server or a proxy that stopped waiting.
func uncertain(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return isConnectionError(err)
	}
	code := status.Status().Code
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout
}
