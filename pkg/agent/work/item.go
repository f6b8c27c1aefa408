package work

import (
	"cmp"
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
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
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
	state := p.st.items[it.ID()]
	if state == nil || state.hash != it.Hash {
		state = &itemState{hash: it.Hash}
		p.st.items[it.ID()] = state
	}
	missing := p.missingRole(it)
	if missing == nil && state.unbound() {
		*state = itemState{hash: it.Hash}
	}
	if _, watched := p.watches.seen(refOf(it)); !watched {
		p.soon(pollPeriod)
	}
	tried := p.due(it, state, missing)
	if tried && state.round == p.st.round {
		// An earlier slice of this pass has tried the object.
		tried = false
		if state.result.Err == nil {
			p.soon(staleDelay)
		}
	} else if tried {
		p.tried++
		state.round = p.st.round
	}
	switch {
	case !tried:
	case p.unreachable != nil:
		p.setResult(ctx, it, state, nil, p.unreachable, false)
	case missing != nil:
		p.unbind(ctx, it, state, missing)
	default:
		p.attempt(ctx, it, state)
	}
	switch {
	case !it.Tracked():
	case state.Borrowed:
		p.uids[it.ID()] = ""
	case state.UID != "":
		p.uids[it.ID()] = state.UID
	}
	p.results[it.Ordinal] = state.result
	if err := state.result.Err; err != nil {
		p.clean = false
		p.kept = p.kept || decide.GuardReason(err) != ""
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
	if missing == nil {
		return !p.settled(state, seen, watched)
	}
	if !missing.Foreign && state.Applied && state.result.Err == nil {
		return false
	}
	last, same := state.result.Err.(*decide.RoleNotAppliedError)
	return !same || *last != *missing || !watched || seen != state.seen
}

// settled reports whether the last result is still valid.
func (p *pass) settled(state *itemState, seen version, watched bool) bool {
	if state.result.Presence == status.Unknown && state.result.Err == nil {
		return false
	}
	if state.result.Err != nil && retryable(state.result.Err) {
		return p.started.Before(p.st.notBefore)
	}
	return watched && !state.unseen && seen == state.seen
}

// retryable reports whether a retry can succeed. Other errors end with a change of the object,
// which triggers a pass by its watch.
func retryable(err error) bool {
	return !errors.Is(err, apply.ErrAbsent) && !errors.Is(err, apply.ErrTerminating) && decide.GuardReason(err) == ""
}

// attempt applies an item, or only reads it if it is complete.
func (p *pass) attempt(ctx context.Context, it *decide.Item, state *itemState) {
	passCtx := ctx
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	frozen := p.frozen || decide.ItemComplete(p.work, it)
	t := &apply.Task{
		Item: it, State: &state.State, RecordedUID: p.recordedUID(it, state),
		Complete: func(live *unstructured.Unstructured) bool {
			return it.Completable() && p.evaluator.Complete(ctx, p.budget, live, it.Config.ConditionRules)
		},
	}
	var live *unstructured.Unstructured
	p.writing = false
	err := traceItem(ctx, it, func(ctx context.Context) (err error) {
		live, err = p.request(ctx, t, frozen)
		return err
	})
	if p.applier.Named && p.denied == nil && apierrors.IsForbidden(err) {
		p.denied = p.recheck(passCtx, it)
	}
	if p.denied != nil {
		return
	}
	var held *apply.HeldBackError
	if errors.As(err, &held) {
		// The manifest was applied. A change by another writer is an error only if the object is a
		// role to which subjects are bound.
		p.soon(max(held.Until.Sub(p.now()), time.Millisecond))
		p.clean = false
		state.see(nil)
		state.unseen = true
		state.result = p.observe(ctx, it, state, live, p.applier.Guard.Contested(it))
		return
	}
	if err != nil {
		p.failing(err)
	}
	if live == nil && err != nil && retryable(err) && p.unreachable == nil {
		// The status reports whether the object exists, even if it cannot be applied.
		live, readErr := p.applier.Read(ctx, t)
		if readErr != nil {
			live = nil
		}
		p.setResult(ctx, it, state, live, err, readErr == nil)
		return
	}
	known := live != nil || err == nil || errors.Is(err, apply.ErrAbsent)
	if frozen {
		state.see(live)
		state.result = p.observe(ctx, it, state, live, err)
		if !known {
			state.result.Presence, state.result.PresenceErr = status.Unknown, err
		}
		state.result.Frozen, state.result.Keep = true, live == nil
		return
	}
	p.setResult(ctx, it, state, live, err, known)
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

func (p *pass) failing(err error) {
	if p.writing && uncertain(err) {
		p.st.unsettled = p.now()
	}
	if removal.NotServed(err) {
		p.mapper.stale()
	}
	p.checkReachable(err)
}

func (p *pass) entry(it *decide.Item) workv1.AppliedManifestResourceMeta {
	if p.entries == nil {
		p.entries = make(map[decide.ObjectID]workv1.AppliedManifestResourceMeta, len(p.record.Status.AppliedResources))
		for _, entry := range p.record.Status.AppliedResources {
			if _, known := p.entries[decide.EntryID(entry)]; !known {
				p.entries[decide.EntryID(entry)] = entry
			}
		}
	}
	return p.entries[it.ID()]
}

// recordedUID returns the UID of the applied object of an item. The record contains it only after the
// pass in which the object was created.
func (p *pass) recordedUID(it *decide.Item, state *itemState) types.UID {
	return cmp.Or(state.UID, types.UID(p.entry(it).UID))
}

// checkReachable sets unreachable if an error is not a response of the managed cluster.
func (p *pass) checkReachable(err error) {
	if _, answered := err.(apierrors.APIStatus); !answered && isConnectionError(err) {
		p.unreachable = err
	}
}

// setResult stores the result of an attempt. known is true if live shows whether the object exists.
func (p *pass) setResult(ctx context.Context, it *decide.Item, state *itemState, live *unstructured.Unstructured, err error, known bool) {
	if err != nil && !known && state.Applied && state.result.Err == nil {
		// The object is still applied, but it cannot be read now.
		state.see(nil)
		state.result.Presence, state.result.PresenceErr = status.Unknown, err
		p.failed = errors.Join(p.failed, fmt.Errorf("%s: %w", it.ID(), err))
		p.clean = false
		return
	}
	state.see(live)
	if err == nil && it.Tracked() {
		state.Applied = true
		// A complete object may have been created by another writer. The removal of a guarded
		// ManifestWork deletes each recorded object, so an object that the executor may not be
		// allowed to delete is not recorded.
		orphan := it.Orphan && (p.applier.Guard == nil || !p.applier.Named)
		if live != nil && !state.Borrowed && (orphan || decide.HasOwner(live, p.applier.Owner)) {
			state.UID = live.GetUID()
		}
	}
	state.result = p.observe(ctx, it, state, live, err)
	if !known {
		state.result.Presence, state.result.PresenceErr = status.Unknown, err
	}
}

func (p *pass) observe(ctx context.Context, it *decide.Item, state *itemState, live *unstructured.Unstructured, err error) status.Result {
	result := status.Result{Err: err, Presence: status.Absent}
	if live != nil {
		result.Presence = status.Present
		result.Feedback, result.FeedbackErr = decide.Feedback(p.budget, live, it.Config.FeedbackRules, p.feedbackPaths)
		result.Rules = p.evaluator.Rules(ctx, p.budget, live, it.Config.ConditionRules)
		if state.note == nil {
			state.note = ptr.To(decide.IgnoresNothing(ctx, p.budget, it))
		}
		result.Note = *state.note
	}
	return result
}
