package work

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// failedAll returns the results of items if no item was applied.
func failedAll(items []*decide.Item, err error) []status.Result {
	results := make([]status.Result, len(items))
	for i := range results {
		results[i].Err = err
	}
	return results
}

// skippedAll returns the results of items if a pass ended before the apply step. Items that were
// applied before are still reported as applied.
func skippedAll(st *workState, items []*decide.Item, err error) []status.Result {
	results := failedAll(items, err)
	for i, it := range items {
		if it.Err != nil {
			results[i].Err = it.Err
		} else if state := st.items[it.ID()]; state != nil && state.hash == it.Hash && state.Applied {
			results[i] = state.result
		}
	}
	return results
}

// report writes the status of a ManifestWork.
func (c *Controller) report(ctx context.Context, st *workState, work *workv1.ManifestWork, items []*decide.Item, results []status.Result, frozen bool) error {
	return c.setStatus(ctx, st, work, status.Work(work.Status, work.Generation, items, results, frozen))
}

// reportDeleting writes the reason why a deleted ManifestWork still exists.
func (c *Controller) reportDeleting(ctx context.Context, st *workState, work *workv1.ManifestWork, message string) error {
	updated := *work.Status.DeepCopy()
	meta.SetStatusCondition(&updated.Conditions, metav1.Condition{
		Type: workv1.WorkDeleting, Status: metav1.ConditionTrue, Reason: workv1.ReasonWorkDeleting,
		Message: status.Truncate(message), ObservedGeneration: work.Generation,
	})
	return c.setStatus(ctx, st, work, updated)
}

// reasonOf returns the label of an error in the metric of apply errors: the reason of the API
// error, or Unreachable or Other.
func reasonOf(err error) string {
	if isConnectionError(err) {
		return "Unreachable"
	}
	if reason := tracing.Reason(err); reason != "Error" {
		return reason
	}
	return "Other"
}

// isConnectionError reports whether a request failed without a response.
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
