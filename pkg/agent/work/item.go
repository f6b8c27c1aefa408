package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
)

// itemTimeout bounds the requests for one object. Admission webhooks may take up to 30 seconds.
const itemTimeout = 45 * time.Second

// applyItem applies one item unless its last result is still valid.
func (p *pass) applyItem(ctx context.Context, it *decide.Item) {
	if it.Err != nil {
		p.clean = false
		p.results[it.Ordinal].Err = it.Err
		if !p.wait() {
			p.failed = errors.Join(p.failed, fmt.Errorf("manifest %d: %w", it.Ordinal, it.Err))
		}
		return
	}
	state, missing := p.st.items[it.ID()], p.missingRole(it)
	if state == nil || state.hash != it.Hash || missing == nil && state.unbound() {
		state = &itemState{hash: it.Hash}
		p.st.items[it.ID()] = state
	}
	err, tried := state.result.Err, false
	switch {
	case !p.due(it, state, missing):
	case state.round == p.st.round:
		// An earlier slice of this pass has tried the object.
		if err == nil {
			p.soon(staleDelay)
		}
	default:
		p.tried++
		tried, state.round = true, p.st.round
		made := p.attempt(ctx, it, state, missing)
		if p.denied != nil {
			return
		}
		err = made.err
		p.settle(ctx, it, state, made)
	}
	switch {
	case !it.Tracked():
	case state.Borrowed:
		p.uids[it.ID()] = ""
	case state.UID != "":
		p.uids[it.ID()] = state.UID
	}
	p.results[it.Ordinal] = state.result
	if err != nil {
		p.clean = false
		p.skipped = p.skipped || decide.GuardReason(err) != ""
		if retryable(err) && (tried || !p.wait()) {
			p.failed = errors.Join(p.failed, fmt.Errorf("%s: %w", it.ID(), err))
		}
	}
}

// wait reports whether failed items are not due yet.
func (p *pass) wait() bool {
	left := p.st.notBefore.Sub(p.started)
	if left <= 0 {
		return false
	}
	p.waiting = true
	p.soon(left)
	return true
}

// due reports whether an item requires a request. missing is the reason why it must not be applied,
// or nil.
func (p *pass) due(it *decide.Item, state *itemState, missing *decide.RoleNotAppliedError) bool {
	seen, watched := p.watches.seen(refOf(it))
	if !watched {
		p.soon(pollPeriod)
	}
	changed, err := !watched || state.unseen || seen != state.seen, state.result.Err
	if missing != nil {
		last, same := err.(*decide.RoleNotAppliedError)
		stays := !missing.Foreign && state.Applied && err == nil
		return !stays && (!same || *last != *missing || changed)
	}
	if err != nil && retryable(err) {
		return !p.started.Before(p.st.notBefore)
	}
	return changed || err == nil && state.result.Presence == status.Unknown
}

// retryable reports whether a retry can succeed. Other errors end with a change of the object,
// which triggers a pass by its watch.
func retryable(err error) bool {
	return !errors.Is(err, apply.ErrAbsent) && !errors.Is(err, apply.ErrTerminating) && decide.GuardReason(err) == ""
}

// attempt is the result of the requests for one item.
type attempt struct {
	// live is the object, or nil. known is true if live shows whether the object exists.
	live  *unstructured.Unstructured
	known bool
	// err is the reason why the manifest is not applied.
	err error
	// frozen is true if the object was only read, because it is complete. held is true if the manifest was
	// applied before, and the object is not repaired yet.
	frozen, held bool
}

// attempt applies an item, or only reads it if it is complete. missing is the reason why it must not be
// applied, or nil.
func (p *pass) attempt(ctx context.Context, it *decide.Item, state *itemState, missing *decide.RoleNotAppliedError) attempt {
	made, passCtx := attempt{frozen: p.frozen || decide.ItemComplete(p.work, it), err: p.unreachable}, ctx
	if made.err != nil {
		return made
	}
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	if missing != nil {
		return p.unbind(ctx, it, state, missing)
	}
	t := &apply.Task{
		Item: it, State: &state.State, RecordedUID: p.recordedUID(it, state),
		Complete: func(live *unstructured.Unstructured) bool {
			return it.Completable() && p.evaluator.Complete(ctx, p.budget, live, it.Config.ConditionRules)
		},
	}
	p.writing = false
	made.err = traceItem(ctx, it, func(ctx context.Context) (err error) {
		made.live, err = p.request(ctx, t, made.frozen)
		return err
	})
	if p.applier.Named && p.denied == nil && apierrors.IsForbidden(made.err) {
		p.denied = p.recheck(passCtx, it)
	}
	if p.denied != nil {
		return made
	}
	var held *apply.HeldBackError
	if errors.As(made.err, &held) {
		// A change by another writer is an error only if the object is a role to which subjects are bound.
		p.soon(max(held.Until.Sub(p.now()), time.Millisecond))
		p.clean = false
		made.held, made.known, made.err = true, true, p.applier.Guard.Contested(it)
		return made
	}
	if p.writing && uncertain(made.err) {
		p.st.unsettled = p.now()
	}
	if removal.NotServed(made.err) {
		p.mapper.stale()
	}
	p.checkReachable(made.err)
	made.known = made.live != nil || made.err == nil || errors.Is(made.err, apply.ErrAbsent)
	if !made.known && !made.frozen && p.unreachable == nil {
		// The status reports whether the object exists, even if it cannot be applied.
		if live, err := p.applier.Read(ctx, t); err == nil {
			made.live, made.known = live, true
		}
	}
	return made
}

// settle updates the state of an item after an attempt.
func (p *pass) settle(ctx context.Context, it *decide.Item, state *itemState, made attempt) {
	state.seen, state.unseen = version{}, made.held
	if !made.known && !made.frozen && state.Applied && state.result.Err == nil {
		// The object is still applied, but it cannot be read now.
		state.result.Presence, state.result.PresenceErr = status.Unknown, made.err
		return
	}
	if made.live != nil && !made.held {
		state.seen = versionOf(made.live)
	}
	if made.err == nil && !made.frozen && !made.held && it.Tracked() {
		state.Applied = true
		// A complete object may have been created by another writer. The removal of a guarded
		// ManifestWork deletes each recorded object, so an object that the executor may not be
		// allowed to delete is not recorded.
		orphan := it.Orphan && (p.applier.Guard == nil || !p.applier.Named)
		if made.live != nil && !state.Borrowed && (orphan || decide.HasOwner(made.live, p.applier.Owner)) {
			state.UID = made.live.GetUID()
		}
	}
	result := status.Result{Err: made.err, Frozen: made.frozen, Keep: made.frozen && made.live == nil, Presence: status.Absent}
	switch {
	case made.live != nil:
		result.Presence = status.Present
		result.Feedback, result.FeedbackErr = decide.Feedback(p.budget, made.live, it.Config.FeedbackRules, p.feedbackPaths)
		result.Rules = p.evaluator.Rules(ctx, p.budget, made.live, it.Config.ConditionRules)
		if state.note == nil {
			state.note = ptr.To(decide.IgnoresNothing(ctx, p.budget, it))
		}
		result.Note = *state.note
	case !made.known:
		result.Presence, result.PresenceErr = status.Unknown, made.err
	}
	state.result = result
}

// request applies an item, or only reads it if it is complete. It returns the live object if that is
// known.
func (p *pass) request(ctx context.Context, t *apply.Task, frozen bool) (*unstructured.Unstructured, error) {
	if frozen {
		return p.applier.Read(ctx, t)
	}
	if early := p.early(t.Item, t.State.Applied || t.RecordedUID != ""); early != nil {
		live, err := p.applier.Read(ctx, t)
		if err != nil {
			return nil, err
		}
		if live == nil {
			return nil, early
		}
	}
	return p.applier.Apply(ctx, t)
}

// recordedUID returns the UID of the applied object of an item. The record contains it only after the
// pass in which the object was created.
func (p *pass) recordedUID(it *decide.Item, state *itemState) types.UID {
	if entry := decide.EntryOf(p.record, it.ID()); state.UID == "" && entry != nil {
		return types.UID(entry.UID)
	}
	return state.UID
}

// checkReachable sets unreachable if an error is not a response of the managed cluster.
func (p *pass) checkReachable(err error) {
	if _, answered := err.(apierrors.APIStatus); !answered && isConnectionError(err) {
		p.unreachable = err
	}
}
