// Package refusal names the causes of refusals that clients act upon.
package refusal

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QuotaExceeded is the cause in the details of a 403 that a quota of the hub is the reason of.
const QuotaExceeded metav1.CauseType = "QuotaExceeded"

// IsQuotaExceeded reports whether the hub has refused a write because of a quota.
func IsQuotaExceeded(err error) bool {
	return apierrors.HasStatusCause(err, QuotaExceeded)
}
