package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

var (
	inventories     = schema.GroupResource{Group: "search.open-cluster-management.io", Resource: "inventories"}
	managedClusters = schema.GroupResource{Group: "cluster.open-cluster-management.io", Resource: "managedclusters"}
)

// readFailure returns the API error for a body that cannot be read.
func readFailure(err error) error {
	var known apierrors.APIStatus
	var format *FormatError
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case errors.As(err, &long):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has more than %d bytes", long.Limit))
	case errors.As(err, &format):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded):
		late := newStatus(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the report did not arrive in time")
		late.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(serving.RetryAfter())}
		return late
	case errors.Is(err, io.ErrUnexpectedEOF):
		return apierrors.NewBadRequest("the body is incomplete")
	}
	return apierrors.NewBadRequest("cannot read the body: " + err.Error())
}

func newStatus(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// engineFailure returns the API error for a report that the engine cannot store. Details are only
// logged.
func engineFailure(ctx context.Context, err error) error {
	if errors.Is(err, search.ErrLoading) {
		return serving.Unavailable("the server has just started and is loading the search data; try again later")
	}
	if ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The search engine cannot store a report")
	}
	// The collector should retry after any error of the engine.
	return serving.Unavailable("the search engine cannot store reports at the moment; try again later")
}

// fail responds with a Status and returns its code.
func fail(ctx context.Context, w http.ResponseWriter, err error) int {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if details := status.Details; details != nil && details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(details.RetryAfterSeconds)))
	}
	write(ctx, w, int(status.Code), &status)
	return int(status.Code)
}

func write(ctx context.Context, w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot respond to a report", "err", err)
	}
}
