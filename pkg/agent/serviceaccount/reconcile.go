package serviceaccount

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// reportPause is the delay before the agent overwrites a status that another writer has
	// changed.
	reportPause = 30 * time.Second

	stateReported = "reported"
	stateRetained = "retained"
)

type outcome struct {
	// state is the state in the metric. It is empty for an account that does not exist.
	state string
	// again is the maximum delay of the next pass. If it is zero, no pass is due.
	again time.Duration
	// waiting is true if the account is not up to date yet.
	waiting bool
	// looked is true if the pass read or wrote any object.
	looked bool
	// conflict is true if an object of another owner has the name.
	conflict bool
}

func (c *Controller) reconcile(ctx context.Context, name string, st *accountState) (outcome, error) {
	owner, _ := c.owners.Get(name) // the only error is that the informer does not contain it
	if owner == nil || owner.DeletionTimestamp != nil {
		// An account that the session has seen existed on the restored hub.
		retained, err := c.revoke(ctx, name, owner != nil, st.uid != "")
		if retained {
			return outcome{state: stateRetained, again: restored.Pause}, err
		}
		if err == nil && owner == nil {
			c.states.Delete(name)
		}
		return outcome{}, err
	}
	if st.uid != owner.UID {
		*st = accountState{uid: owner.UID}
		c.loop.Forget(cache.ObjectName{Name: name})
	}
	now := c.Clock.Now()
	present := c.triggerOf(owner)
	if left := st.notBefore.Sub(now); left > 0 && present == st.tried {
		return outcome{state: stateOf(owner), again: left, waiting: true}, nil
	}
	st.tried, st.notBefore = present, time.Time{}

	r := &report{}
	ensureCtx, cancel := context.WithTimeout(ctx, passTimeout*2/3)
	result, err := c.ensure(ensureCtx, st, owner, r)
	cancel()
	if ctx.Err() != nil {
		return result, err
	}
	if pause := st.reportedAt.Add(reportPause).Sub(now); !result.looked && err == nil && pause > 0 && st.reported == owner.Generation {
		// Another writer has changed the status since the last report, and may do so again.
		if !c.reportedAlready(owner, r) {
			result.again = min(result.again, pause)
		}
	} else {
		var failed error
		owner, failed = c.writeStatus(ctx, st, owner, r)
		err = errors.Join(err, failed)
	}
	result.state = stateOf(owner)
	// Changes by the pass itself must not trigger another pass.
	st.tried = c.triggerOf(owner)
	return result, err
}

func (c *Controller) triggerOf(owner *v1beta1.ManagedServiceAccount) trigger {
	t := trigger{generation: owner.Generation, nudge: nudge(&owner.Status), ca: c.ca.Load().content}
	if account := c.knownAccount(owner.Name); account != nil {
		t.account, t.version = account.UID, account.ResourceVersion
	}
	return t
}

// stateOf returns the state of an account for the metric.
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

// ensure brings the ServiceAccount, the token and the Secret of an account up to date, and fills
// the report.
func (c *Controller) ensure(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount, r *report) (outcome, error) {
	account, err := c.ensureAccount(ctx, st, owner)
	if err == nil {
		err = c.cleanFormerNamespace(ctx, owner.Status.ServiceAccountRef)
	}
	if err == nil {
		r.account = &v1beta1.ServiceAccountReference{Namespace: account.Namespace, Name: account.Name, UID: account.UID}
		t := &task{Controller: c, st: st, owner: owner, account: account, report: r}
		return t.keepToken(ctx)
	}
	var conflict *foreignError
	var missing *missingError
	switch {
	case errors.Is(err, reconcile.ErrOutdated):
		return outcome{}, err
	case errors.As(err, &conflict):
		r.accountFailed = finding{v1beta1.ReasonServiceAccountConflict, conflict.message}
		r.tokenFailed, r.disowned, r.dead = r.accountFailed, true, true
		return outcome{conflict: true}, err
	default:
		r.accountFailed = finding{v1beta1.ReasonServiceAccountFailed, describe(err)}
		r.dead = errors.As(err, &missing)
		if r.dead || !meta.IsStatusConditionTrue(owner.Status.Conditions, v1beta1.ConditionTokenReported) {
			r.tokenFailed = finding{v1beta1.ReasonTokenReportFailed, "The ServiceAccount does not exist: " + describe(err)}
		}
	}
	return outcome{}, err
}

// accountState is the state of one account that the agent keeps in memory between passes. After a
// restart, it is rebuilt. Only passes over the account use it.
type accountState struct {
	// uid is the UID of the ManagedServiceAccount to which the other fields belong.
	uid types.UID
	// unlabelled is true if a ServiceAccount with the name exists without the label, and so is not
	// watched.
	unlabelled bool
	// unstored is true if no Secret can exist yet.
	unstored bool
	// spare is a token that could not be stored. It is kept so that a retry does not request
	// another token.
	spare *minted
	// checked describes the Secret when it was last up to date.
	checked *checked
	// waitingSince is the time since which the agent waits for access to a Secret or for its
	// removal.
	waitingSince time.Time
	// notBefore is the time at which a failed pass is retried, unless its trigger differs from
	// tried.
	notBefore time.Time
	tried     trigger
	// conflict is true if the last pass found an object of another owner.
	conflict bool
	// reported is the generation of the last report without failures, at the time reportedAt. It is
	// zero after a failure.
	reported   int64
	reportedAt time.Time
}

// trigger contains all inputs of a pass except the time.
type trigger struct {
	generation int64
	nudge      string
	account    types.UID
	version    string
	ca         string
}

// state returns the state of an account, which it creates if necessary.
func (c *Controller) state(name string) *accountState {
	st, _ := c.states.LoadOrStore(name, &accountState{})
	return st.(*accountState)
}
