package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// grantPatience is the time for which a Secret may be inaccessible before that is reported. The
	// hub grants access to a new Secret within a second.
	grantPatience = 3 * time.Second
	// grantInterval is the interval of attempts to access the Secret during that time.
	grantInterval = 250 * time.Millisecond
	// collectInterval is the interval at which the Secret of a previous account is read until it is
	// removed.
	collectInterval = time.Second
)

// task is the second half of a pass: the ServiceAccount exists, and its token must be stored on the
// hub.
type task struct {
	*Controller
	st      *accountState
	owner   *v1beta1.ManagedServiceAccount
	account *corev1.ServiceAccount
	report  *report

	wanted request
	ca     string
	// quiet is true if a failure of this check does not change the status, because no problem is
	// known.
	quiet bool
	// absence is the finding about a missing Secret if no new Secret can be created.
	absence finding
}

// keepToken ensures that the Secret on the hub contains a valid token of the ServiceAccount.
func (t *task) keepToken(ctx context.Context) (outcome, error) {
	if ref := t.owner.Status.ServiceAccountRef; ref != nil && ref.UID != "" && ref.UID != t.account.UID {
		t.report.dead = true
	}
	var invalid error
	if t.wanted, invalid = requestOf(&t.owner.Spec); invalid != nil {
		t.report.tokenFailed = finding{v1beta1.ReasonInvalidSpec, invalid.Error()}
		t.st.checked, t.st.spare = nil, nil
		if expires := t.owner.Status.ExpirationTimestamp; expires != nil {
			// The status must change when the token expires.
			return outcome{looked: true, again: max(expires.Sub(t.managedNow()), time.Second)}, nil
		}
		return outcome{looked: true}, nil
	}
	bundle := t.Controller.ca.Load()
	if bundle.err != nil {
		return t.fail(fmt.Errorf("CA of the managed cluster: %w", bundle.err))
	}
	t.ca = bundle.content
	due, routine := look(t.st.checked, t.account.UID, t.wanted.text, t.ca, &t.owner.Status, t.Clock.Now(), t.managedNow())
	if !due {
		return t.good(), nil
	}
	t.quiet = routine && quiet(&t.owner.Status, t.managedNow())
	result, err := t.check(ctx)
	result.looked = true
	return result, err
}

func (t *task) check(ctx context.Context) (outcome, error) {
	f := facts{now: t.managedNow(), account: t.account, owner: t.owner, request: t.wanted.text, ca: []byte(t.ca)}
	if !t.st.unstored {
		var err error
		known := t.owner.Status.TokenSecretRef != nil || t.st.checked != nil
		if f.secret, f.ownership, err = t.readSecret(ctx, t.owner, known); err != nil {
			return t.secretFailed(err)
		}
		if f.ownership == taken || f.ownership == hidden || f.ownership == former {
			return t.inTheWay(f.ownership)
		}
	}
	p := judge(f)
	reviewed := t.Clock.Now()
	if p.ask {
		if last := t.st.checked; last != nil && last.version == f.secret.ResourceVersion && reviewed.Before(last.reviewed.Add(t.VerifyInterval/2)) {
			f.verdict, reviewed = accepted, last.reviewed
		} else {
			var err error
			if f.verdict, err = t.review(ctx, f.secret); err != nil {
				return t.fail(err)
			}
		}
		p = judge(f)
	}
	if p.mint {
		t.quiet = false
		t.report.dead = t.report.dead || p.dead
		if f.ownership == absent && (t.owner.Status.TokenSecretRef != nil || nudge(&t.owner.Status) != "") {
			t.absence = finding{v1beta1.ReasonSecretMissing, "The Secret does not exist on the hub"}
		}
		if err := t.ensureSpare(ctx, f.now); err != nil {
			return t.fail(err)
		}
		p.held = t.st.spare.claims
	}
	secret := f.secret
	if p.write {
		var err error
		if secret, err = t.store(ctx, f.secret, p); apierrors.IsAlreadyExists(err) {
			// The next pass determines the ownership of the Secret. The token is kept until then.
			t.st.unstored = false
			return outcome{again: time.Millisecond, waiting: true}, nil
		} else if err != nil {
			return t.secretFailed(err)
		}
	}
	t.st.spare, t.st.unstored, t.st.waitingSince = nil, false, time.Time{}
	t.st.checked = &checked{
		held: p.held, request: t.wanted.text, ca: t.ca, version: secret.ResourceVersion,
		reviewed: reviewed, next: t.Clock.Now().Add(wait.Jitter(t.VerifyInterval*3/4, 2.0/3)),
	}
	return t.good(), nil
}

// ensureSpare ensures that there is a token to store: a token that could not be stored before, or a
// new one.
func (t *task) ensureSpare(ctx context.Context, now time.Time) error {
	if spare := t.st.spare; spare != nil && spare.accountUID == t.account.UID && spare.request == t.wanted.text && spare.fresh(now) {
		return nil
	}
	var err error
	t.st.spare, err = t.mint(ctx, t.account, t.wanted)
	return err
}

func (t *task) store(ctx context.Context, secret *corev1.Secret, p plan) (*corev1.Secret, error) {
	if secret == nil {
		secret = &corev1.Secret{}
	}
	token := secret.Data[v1beta1.SecretTokenKey]
	if p.mint {
		token = []byte(t.st.spare.token)
	}
	return t.writeSecret(ctx, desired(secret, t.owner, token, []byte(t.ca), t.wanted.text))
}

// good reports a valid token and returns the delay until the next check.
func (t *task) good() outcome {
	have := t.st.checked
	t.report.stored = &v1beta1.TokenSecretReference{
		Name: t.owner.Name, LastRefreshTimestamp: metav1.NewTime(have.held.issued), ResourceVersion: have.version,
	}
	t.report.expires = have.held.expires
	due := have.held.due().Sub(t.managedNow())
	return outcome{again: max(min(due, have.next.Sub(t.Clock.Now())), time.Millisecond)}
}

func (t *task) fail(err error) (outcome, error) {
	if !t.quiet && !errors.Is(err, reconcile.ErrOutdated) {
		t.report.tokenFailed, t.report.secretFailed = finding{v1beta1.ReasonTokenReportFailed, describe(err)}, t.absence
	}
	return outcome{}, err
}

// secretFailed reports an error of a request for the Secret. A rejection is reported only if it
// persists, because the hub grants access with a delay after the account is created.
func (t *task) secretFailed(err error) (outcome, error) {
	if apierrors.IsForbidden(err) && t.patient() {
		return outcome{again: grantInterval, waiting: true}, nil
	}
	t.st.unstored = false
	return t.fail(err)
}

// patient reports whether the agent should continue to wait for the hub to grant access to a Secret
// or to remove it, without a report.
func (t *task) patient() bool {
	now := t.Clock.Now()
	if t.st.waitingSince.IsZero() {
		t.st.waitingSince = now
	}
	return now.Before(t.st.waitingSince.Add(grantPatience))
}

// inTheWay handles a Secret that the agent must not or cannot change. The Secret may be removed
// soon, so it is reported only if it persists.
func (t *task) inTheWay(where ownership) (outcome, error) {
	// The checked state belongs to another Secret, or to an earlier state of this Secret.
	t.st.checked = nil
	if where != taken && t.patient() {
		return outcome{again: grantInterval, waiting: true}, nil
	}
	why := finding{reason: v1beta1.ReasonSecretConflict}
	name := t.owner.Namespace + "/" + t.owner.Name
	switch where {
	case taken:
		why.message = fmt.Sprintf("Secret %s on the hub does not belong to this ManagedServiceAccount and is not changed; delete it, or use another name for the ManagedServiceAccount", name)
		t.report.tokenFailed, t.report.secretFailed = why, why
		return outcome{conflict: true}, errors.New(why.message)
	case former:
		why.message = fmt.Sprintf("Secret %s on the hub belongs to a deleted ManagedServiceAccount with the same name; waiting for the garbage collector of the hub to remove it", name)
	default:
		why.message = fmt.Sprintf("Secret %s on the hub does not show that it belongs to this ManagedServiceAccount, or the hub has not granted the agent access to it yet, so it is not changed; if it is not needed, delete it", name)
	}
	if !t.quiet {
		t.report.tokenFailed = why
		if t.owner.Status.TokenSecretRef == nil {
			t.report.secretFailed = why
		}
	}
	if where == former {
		return outcome{again: collectInterval, waiting: true}, nil
	}
	return outcome{conflict: true}, errors.New(why.message)
}
