package serviceaccount

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

const (
	// reportPause is how long a report stands before it is repeated against
	// another writer of the status.
	reportPause = 30 * time.Second

	stateReported = "reported"
)

// outcome is how a pass left an account.
type outcome struct {
	// state is for the metric; empty for an account that is gone.
	state string
	// again is when to look again without a reason; zero for never.
	again time.Duration
	// waiting is whether the account still is not what it should be.
	waiting bool
	// looked is whether anything was read or written.
	looked bool
	// conflict is whether something of somebody else is in the way.
	conflict bool
}

// reconcile makes one pass over an account.
func (c *Controller) reconcile(ctx context.Context, name string, st *accountState) (outcome, error) {
	owner := c.newest(name, st)
	if owner == nil || owner.DeletionTimestamp != nil {
		err := c.revoke(ctx, name, owner != nil)
		if err == nil && owner == nil {
			c.states.drop(name)
		}
		return outcome{}, err
	}
	if st.uid != owner.UID {
		*st = accountState{uid: owner.UID}
		c.backoff.Forget(name)
	}
	now := c.clock.Now()
	present := c.triggerOf(owner)
	if left := st.notBefore.Sub(now); left > 0 && present == st.tried {
		return outcome{state: stateOf(owner), again: left, waiting: true}, nil
	}
	st.tried, st.notBefore = present, time.Time{}

	r := &report{}
	bringCtx, cancel := context.WithTimeout(ctx, passTimeout*2/3)
	came, err := c.bring(bringCtx, st, owner, r)
	cancel()
	if ctx.Err() != nil {
		return came, err
	}
	if pause := st.reportedAt.Add(reportPause).Sub(now); !came.looked && err == nil && pause > 0 && st.reported == owner.Generation {
		// Nothing has happened since the last report, so that a status that
		// differs from it was changed by somebody else, who may not agree.
		if !c.reportedAlready(owner, r) {
			came.again = min(came.again, pause)
		}
	} else {
		err = errors.Join(err, c.writeStatus(ctx, st, owner, r))
	}
	if st.owner != nil {
		owner = st.owner
	}
	came.state = stateOf(owner)
	// What the pass itself has changed is no reason for another.
	st.tried = c.triggerOf(owner)
	return came, err
}

func (c *Controller) triggerOf(owner *v1beta1.ManagedServiceAccount) trigger {
	_, version, _ := c.ca.get()
	t := trigger{generation: owner.Generation, nudge: nudge(&owner.Status), ca: version}
	if account := c.knownAccount(owner.Name); account != nil {
		t.account, t.version = account.UID, account.ResourceVersion
	}
	return t
}

// stateOf is the state of an account in the metric.
func stateOf(owner *v1beta1.ManagedServiceAccount) string {
	switch reported := meta.FindStatusCondition(owner.Status.Conditions, v1beta1.ConditionTokenReported); {
	case reported == nil:
		return v1beta1.ReasonPending
	case reported.Status == metav1.ConditionTrue:
		return stateReported
	default:
		return reported.Reason
	}
}

// bring makes an account what it should be and reports on it.
func (c *Controller) bring(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount, r *report) (outcome, error) {
	account, err := c.ensureAccount(ctx, st, owner)
	if err == nil {
		err = c.leaveNamespace(ctx, owner.Status.ServiceAccountRef)
	}
	var conflict *foreignError
	var missing *missingError
	switch {
	case err == nil:
	case errors.Is(err, errAgain):
		return outcome{}, err
	case errors.As(err, &conflict):
		r.accountFailed = finding{v1beta1.ReasonServiceAccountConflict, conflict.message}
		r.tokenFailed, r.disowned, r.dead = r.accountFailed, true, true
		return outcome{conflict: true}, err
	default:
		failures.WithLabelValues("serviceaccount").Inc()
		r.accountFailed = finding{v1beta1.ReasonServiceAccountFailed, describe(err)}
		r.dead = errors.As(err, &missing)
		if r.dead || !meta.IsStatusConditionTrue(owner.Status.Conditions, v1beta1.ConditionTokenReported) {
			r.tokenFailed = finding{v1beta1.ReasonTokenReportFailed, "There is no ServiceAccount: " + describe(err)}
		}
		return outcome{}, err
	}
	r.account = &v1beta1.ServiceAccountReference{Namespace: account.Namespace, Name: account.Name, UID: account.UID}
	t := &task{Controller: c, st: st, owner: owner, account: account, report: r}
	return t.keepToken(ctx)
}
