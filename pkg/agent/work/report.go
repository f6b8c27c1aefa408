package work

import (
	"context"
	"errors"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// itemResults is what came of each item, in the same order.
type itemResults struct {
	items   []*item
	results []result
}

// failedAll is the result of a work of which nothing was applied in this pass.
func failedAll(items []*item, err error) itemResults {
	results := make([]result, len(items))
	for i := range results {
		results[i] = result{err: err}
	}
	return itemResults{items, results}
}

// unrecorded is the result of a work whose record could not be written: what
// was applied before still is, of the rest nothing was.
func unrecorded(st *workState, items []*item, err error) itemResults {
	all := failedAll(items, err)
	for i, it := range items {
		if it.err != nil {
			all.results[i].err = it.err
		} else if state := st.items[it.id()]; state != nil && state.hash == it.hash && state.applied {
			all.results[i] = state.result
		}
	}
	return all
}

// report writes the status of a work.
func (c *Controller) report(ctx context.Context, st *workState, work *workv1.ManifestWork, came itemResults, frozen bool) error {
	manifests := make([]workv1.ManifestCondition, len(came.items))
	for i, it := range came.items {
		previous := previousOf(work.Status.ResourceStatus.Manifests, it.meta())
		manifests[i] = manifestStatus(previous, work.Generation, it, came.results[i])
	}
	boundFeedback(manifests)
	return c.setStatus(ctx, st, work, workStatus(work.Status, work.Generation, manifests, frozen))
}

// reportDeleting tells the hub what a deleted work waits for.
func (c *Controller) reportDeleting(ctx context.Context, st *workState, work *workv1.ManifestWork, message string) error {
	status := *work.Status.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: workv1.WorkDeleting, Status: metav1.ConditionTrue, Reason: workv1.ReasonWorkDeleting,
		Message: truncate(message), ObservedGeneration: work.Generation,
	})
	return c.setStatus(ctx, st, work, status)
}

// reasonOf is the label of the metric of apply errors: a reason of the API, or
// one of a few words of ours.
func reasonOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	if isConnectionError(err) {
		return "Unreachable"
	}
	return "Other"
}

// isConnectionError reports whether a request failed without an answer.
func isConnectionError(err error) bool {
	var urlErr *url.Error
	var netErr net.Error
	return errors.As(err, &urlErr) || errors.As(err, &netErr)
}
