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

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

const (
	statusAttempts = 5
	// maxMessage is how much of an error is reported.
	maxMessage = 1024
)

// finding is why a condition is False; none leaves the condition as it is.
type finding struct{ reason, message string }

// report is what a pass found. What it says nothing about stays in the status.
type report struct {
	// account is the ServiceAccount, if it is there; accountFailed why it is not.
	account       *v1beta1.ServiceAccountReference
	accountFailed finding
	// disowned is whether the ServiceAccount of the name is not ours.
	disowned bool

	// stored is the Secret, if all is well with it.
	stored *v1beta1.TokenSecretReference
	// expires is when the token in it expires.
	expires time.Time
	// secretFailed is why there is no Secret.
	secretFailed finding
	// tokenFailed is why there is no token, or no new one.
	tokenFailed finding
	// dead is whether the token of the status is known to be of no use.
	dead bool
}

// on returns a status with the report in it. Now is by the managed cluster's
// clock, since tokens expire by it.
func (r *report) on(before v1beta1.ManagedServiceAccountStatus, generation int64, now time.Time) v1beta1.ManagedServiceAccountStatus {
	status := *before.DeepCopy()
	set := func(kind string, value metav1.ConditionStatus, reason, message string) {
		if len(message) > maxMessage {
			message = strings.ToValidUTF8(message[:maxMessage], "")
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
			fmt.Sprintf("ServiceAccount %s/%s is present", r.account.Namespace, r.account.Name))
	case r.accountFailed != finding{}:
		set(v1beta1.ConditionAllServiceAccountPresent, metav1.ConditionFalse, r.accountFailed.reason, r.accountFailed.message)
	}
	if r.disowned {
		status.ServiceAccountRef = nil
	}

	if r.stored != nil {
		status.TokenSecretRef, status.ExpirationTimestamp = r.stored, &metav1.Time{Time: r.expires}
		set(v1beta1.ConditionSecretCreated, metav1.ConditionTrue, v1beta1.ReasonSecretCreated, "The Secret is on the hub")
		set(v1beta1.ConditionTokenReported, metav1.ConditionTrue, v1beta1.ReasonTokenReported, "The Secret holds a valid token")
		return status
	}

	if r.secretFailed != (finding{}) {
		set(v1beta1.ConditionSecretCreated, metav1.ConditionFalse, r.secretFailed.reason, r.secretFailed.message)
	} else if r.tokenFailed != (finding{}) && undecided(status.Conditions, v1beta1.ConditionSecretCreated) {
		set(v1beta1.ConditionSecretCreated, metav1.ConditionFalse, r.tokenFailed.reason, "There is no token to put into a Secret")
	}
	if r.tokenFailed == (finding{}) {
		return status
	}
	why := r.tokenFailed
	held := status.TokenSecretRef != nil && status.ExpirationTimestamp != nil
	expired := held && !now.Before(status.ExpirationTimestamp.Time)
	if !held {
		// It is still that it expired, once the reference to it is gone.
		last := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionTokenReported)
		expired = last != nil && last.Status == metav1.ConditionFalse && last.Reason == v1beta1.ReasonTokenExpired
	}
	if expired && why.reason == v1beta1.ReasonTokenReportFailed {
		why = finding{v1beta1.ReasonTokenExpired, "The token has expired and could not be replaced: " + why.message}
	}
	set(v1beta1.ConditionTokenReported, metav1.ConditionFalse, why.reason, why.message)
	if !held || expired || r.dead || r.secretFailed != (finding{}) || nudge(&status) == v1beta1.ReasonSecretMissing {
		status.TokenSecretRef, status.ExpirationTimestamp = nil, nil
	}
	return status
}

// undecided reports whether nobody has decided about a condition yet, or only
// that there is no token to decide about.
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

// reportedAlready reports whether a report changes nothing.
func (c *Controller) reportedAlready(owner *v1beta1.ManagedServiceAccount, r *report) bool {
	return equality.Semantic.DeepEqual(owner.Status, r.on(owner.Status, owner.Generation, c.managedNow()))
}

// writeStatus puts a report into the status on the hub, if that changes it.
func (c *Controller) writeStatus(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount, r *report) error {
	client := c.hub.AuthenticationV1beta1().ManagedServiceAccounts(c.clusterName)
	generation, live := owner.Generation, owner
	for range statusAttempts {
		status := r.on(live.Status, generation, c.managedNow())
		if equality.Semantic.DeepEqual(live.Status, status) {
			st.owner = live
			return nil
		}
		changed := live.DeepCopy()
		changed.Status = status
		updated, err := client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		if err == nil {
			st.owner, st.reported, st.reportedAt = updated, 0, c.clock.Now()
			if r.stored != nil {
				st.reported = generation
			}
			return nil
		}
		if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
			return nil // the deletion comes by the watch
		}
		if !apierrors.IsConflict(err) {
			failures.WithLabelValues("status").Inc()
			return fmt.Errorf("update status: %w", err)
		}
		if live, err = client.Get(ctx, owner.Name, metav1.GetOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("update status: %w", err)
		}
		if live.UID != owner.UID || live.DeletionTimestamp != nil {
			return nil
		}
	}
	return errAgain
}

// describe returns what a person should know of an error. It is the same for
// the same trouble every time, so that retries do not change the status.
func describe(err error) string {
	var status apierrors.APIStatus
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return prefix(err) + "no answer in time"
	case errors.As(err, &status):
		return err.Error()
	case errors.As(err, &network):
		// Without the addresses: the local port is another one every time.
		return prefix(err) + network.Op + ": " + network.Err.Error()
	}
	return err.Error()
}

// prefix is what this package says of an error before the error itself.
func prefix(err error) string {
	text := err.Error()
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		if before, found := strings.CutSuffix(text, inner.Error()); found && before != "" {
			return before
		}
	}
	return ""
}
