package work

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// cachedWork returns the newest known version of a ManifestWork, or nil if the informer does not
// contain it.
func (c *Controller) cachedWork(name string, st *workState) *workv1.ManifestWork {
	cached, err := c.works.Get(name)
	if err != nil {
		st.hub = nil
		return nil
	}
	if work := newer(cached, st.hub); work != cached {
		return work
	}
	st.hub = nil
	return cached
}

// patchWork patches a ManifestWork on the hub. The change must contain its UID.
func (c *Controller) patchWork(ctx context.Context, st *workState, work *workv1.ManifestWork, change map[string]any, subresources ...string) (*workv1.ManifestWork, error) {
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	patched, err := c.Hub.WorkV1().ManifestWorks(c.ClusterName).Patch(ctx, work.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return nil, err
	}
	st.hub = patched
	return patched, nil
}

// setFinalizers replaces the finalizers of a ManifestWork if its version has not changed.
func (c *Controller) setFinalizers(ctx context.Context, st *workState, work *workv1.ManifestWork, finalizers []string) (*workv1.ManifestWork, error) {
	return c.patchWork(ctx, st, work, map[string]any{"metadata": map[string]any{
		"uid": work.UID, "resourceVersion": work.ResourceVersion, "finalizers": finalizers,
	}})
}

// ensureFinalizer adds the agent's finalizer to a ManifestWork.
func (c *Controller) ensureFinalizer(ctx context.Context, st *workState, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	if slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		return work, nil
	}
	finalizers := append(slices.Clone(work.Finalizers), workv1.ManifestWorkFinalizer)
	return c.setFinalizers(ctx, st, work, finalizers)
}

// dropFinalizer removes the agent's finalizer from a ManifestWork.
func (c *Controller) dropFinalizer(ctx context.Context, st *workState, work *workv1.ManifestWork) error {
	kept := slices.DeleteFunc(slices.Clone(work.Finalizers), func(f string) bool { return f == workv1.ManifestWorkFinalizer })
	if len(kept) == len(work.Finalizers) {
		return nil
	}
	if kept == nil {
		kept = []string{}
	}
	_, err := c.setFinalizers(ctx, st, work, kept)
	return removal.IgnoreNotFound(err)
}

// setStatus writes the status of a ManifestWork if it differs. It ignores the version of the
// ManifestWork, because only the agent writes the status and each condition contains its
// generation. So an author who changes the spec repeatedly does not prevent the report.
func (c *Controller) setStatus(ctx context.Context, st *workState, work *workv1.ManifestWork, status workv1.ManifestWorkStatus) error {
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
	_, err := c.patchWork(ctx, st, work, map[string]any{"metadata": map[string]any{"uid": work.UID}, "status": status}, "status")
	tracing.End(span, tracing.Reason(err))
	return err
}

// workGone reports whether a ManifestWork does not exist on the hub. A response that does not
// concern the ManifestWork is an error, such as the response of a hub that does not serve the
// resource.
func (c *Controller) workGone(ctx context.Context, name string) (bool, error) {
	_, err := c.Hub.WorkV1().ManifestWorks(c.ClusterName).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return false, nil
	}
	status, ok := err.(apierrors.APIStatus)
	if apierrors.IsNotFound(err) && !removal.NotServed(err) && ok && status.Status().Details != nil && status.Status().Details.Name == name {
		return true, nil
	}
	return false, err
}
