package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 1024

// finding is the reason and the message of a condition that is False. The zero value does not
// change the condition.
type finding struct{ reason, message string }

// report contains the findings of a pass. Fields without a finding keep their value in the status.
type report struct {
	// account is the ServiceAccount if it exists. Otherwise accountFailed contains the reason.
	account       *v1beta1.ServiceAccountReference
	accountFailed finding
	// disowned is true if the ServiceAccount with the name has another owner.
	disowned bool

	// stored is the Secret if it contains a valid token.
	stored *v1beta1.TokenSecretReference
	// expires is the expiry of the token in the Secret.
	expires time.Time
	// secretFailed is the reason why the Secret does not exist.
	secretFailed finding
	// tokenFailed is the reason why there is no token, or no new token.
	tokenFailed finding
	// dead is true if the token in the status is known to be invalid.
	dead bool
}

// on returns a status with the report applied. now is the time of the managed cluster, which
// determines the expiry of tokens.
func (r *report) on(before v1beta1.ManagedServiceAccountStatus, generation int64, now time.Time) v1beta1.ManagedServiceAccountStatus {
	status := *before.DeepCopy()
	set := func(kind string, value metav1.ConditionStatus, reason, message string) {
		if len(message) > maxMessage {
			// The end often contains the reason.
			message = strings.ToValidUTF8(message[:maxMessage/3], "") + "…" + strings.ToValidUTF8(message[len(message)-maxMessage/2:], "")
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: message, ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now),
		})
	}

	switch {
	case r.account != nil:
		status.ServiceAccountRef = r.account
		set(v1beta1.ConditionAllServiceAccountPresent, metav1.ConditionTrue, v1beta1.ReasonServiceAccountPresent,
			fmt.Sprintf("ServiceAccount %s/%s exists", r.account.Namespace, r.account.Name))
	case r.accountFailed != finding{}:
		set(v1beta1.ConditionAllServiceAccountPresent, metav1.ConditionFalse, r.accountFailed.reason, r.accountFailed.message)
	}
	if r.disowned {
		status.ServiceAccountRef = nil
	}

	if r.stored != nil {
		status.TokenSecretRef, status.ExpirationTimestamp = r.stored, &metav1.Time{Time: r.expires}
		set(v1beta1.ConditionSecretCreated, metav1.ConditionTrue, v1beta1.ReasonSecretCreated, "The Secret exists on the hub")
		set(v1beta1.ConditionTokenReported, metav1.ConditionTrue, v1beta1.ReasonTokenReported, "The Secret contains a valid token")
		return status
	}

	if r.secretFailed != (finding{}) {
		set(v1beta1.ConditionSecretCreated, metav1.ConditionFalse, r.secretFailed.reason, r.secretFailed.message)
	} else if r.tokenFailed != (finding{}) && undecided(status.Conditions, v1beta1.ConditionSecretCreated) {
		set(v1beta1.ConditionSecretCreated, metav1.ConditionFalse, r.tokenFailed.reason, "There is no token for a Secret")
	}
	if r.tokenFailed == (finding{}) {
		return status
	}
	why := r.tokenFailed
	held := status.TokenSecretRef != nil && status.ExpirationTimestamp != nil
	expired := held && !now.Before(status.ExpirationTimestamp.Time)
	if !held {
		// The status no longer refers to the expired token.
		last := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionTokenReported)
		expired = last != nil && last.Status == metav1.ConditionFalse && last.Reason == v1beta1.ReasonTokenExpired
	}
	if expired && why.reason == v1beta1.ReasonTokenReportFailed {
		why = finding{v1beta1.ReasonTokenExpired, "The token has expired and cannot be replaced: " + why.message}
	}
	set(v1beta1.ConditionTokenReported, metav1.ConditionFalse, why.reason, why.message)
	if !held || expired || r.dead || r.secretFailed != (finding{}) || nudge(&status) == v1beta1.ReasonSecretMissing {
		status.TokenSecretRef, status.ExpirationTimestamp = nil, nil
	}
	return status
}

// undecided reports whether a condition is not set, or is False only because there is no token.
func undecided(conditions []metav1.Condition, kind string) bool {
	switch condition := meta.FindStatusCondition(conditions, kind); {
	case condition == nil:
		return true
	case condition.Status == metav1.ConditionTrue:
		return false
	default:
		return condition.Reason != v1beta1.ReasonSecretMissing && condition.Reason != v1beta1.ReasonSecretChanged && condition.Reason != v1beta1.ReasonSecretConflict
	}
}

func (c *Controller) reportedAlready(owner *v1beta1.ManagedServiceAccount, r *report) bool {
	return equality.Semantic.DeepEqual(owner.Status, r.on(owner.Status, owner.Generation, c.managedNow()))
}

// writeStatus writes a report to the status on the hub if the report changes the status. It returns the last known
// version of the ManagedServiceAccount.
func (c *Controller) writeStatus(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount, r *report) (*v1beta1.ManagedServiceAccount, error) {
	client := c.Hub.AuthenticationV1beta1().ManagedServiceAccounts(c.ClusterName)
	live := owner
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		status := r.on(live.Status, owner.Generation, c.managedNow())
		if live.UID != owner.UID || live.DeletionTimestamp != nil || equality.Semantic.DeepEqual(live.Status, status) {
			return nil
		}
		changed := live.DeepCopy()
		changed.Status = status
		updated, err := client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			if updated, failed := client.Get(ctx, owner.Name, metav1.GetOptions{}); failed == nil {
				live = updated
			}
		}
		if err != nil {
			return err
		}
		live, st.reported, st.reportedAt = updated, 0, c.Clock.Now()
		if r.stored != nil {
			st.reported = owner.Generation
		}
		return nil
	})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return live, nil // the deletion triggers another pass
	case apierrors.IsConflict(err):
		return live, reconcile.ErrOutdated
	case err != nil:
		return live, fmt.Errorf("update status: %w", err)
	}
	return live, nil
}

// describe returns the text of an error for the status. The text must not differ between retries,
// because every difference is written to the status.
func describe(err error) string {
	var status apierrors.APIStatus
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return prefix(err) + "timed out"
	case errors.As(err, &status):
		return err.Error()
	case errors.As(err, &network):
		// The addresses contain a local port, which differs for each connection.
		return prefix(err) + network.Op + ": " + network.Err.Error()
	}
	return err.Error()
}

// prefix returns the text before the innermost error.
func prefix(err error) string {
	text := err.Error()
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		if before, found := strings.CutSuffix(text, inner.Error()); found && before != "" {
			return before
		}
	}
	return ""
}
