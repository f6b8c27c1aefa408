// Package refusal defines the causes of rejections that clients of the server handle.
package refusal

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QuotaExceeded is the cause in the details of a 403 response if a write exceeds a quota of the hub.
const QuotaExceeded metav1.CauseType = "QuotaExceeded"

// IsQuotaExceeded reports whether the hub rejected a write because of a quota.
func IsQuotaExceeded(err error) bool {
	return apierrors.HasStatusCause(err, QuotaExceeded)
}
