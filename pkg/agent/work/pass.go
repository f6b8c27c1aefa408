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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// itemTimeout bounds the requests for one object. Admission webhooks may take up to 30 seconds.
const itemTimeout = 45 * time.Second

// pass is one pass over a ManifestWork, or one slice of it.
type pass struct {
	*Controller
	key     cache.ObjectName
	st      *workState
	work    *workv1.ManifestWork
	items   []*decide.Item
	started time.Time
	// budget bounds the expressions that the ManifestWork evaluates in this pass.
	budget *bounded.Budget
	// acting is true if the ManifestWork was admitted to read and write its objects. If it is
	// false, no object was due at that time.
	acting bool
	record *workv1.AppliedManifestWork
	// entries are the entries of record. It is nil until an entry is read.
	entries map[decide.ObjectID]workv1.AppliedManifestResourceMeta
	former  decide.FieldSets
	applier *apply.Applier
	// frozen is true if the ManifestWork is complete and so is not applied.
	frozen bool
	// roles are the items that contain roles.
	roles decide.Roles

	// uids are the UIDs of the applied objects.
	uids    map[decide.ObjectID]types.UID
	results []status.Result
	// failed joins the errors that are retried.
	failed error
	// kept is true if a guarded ManifestWork skipped objects that it must not change.
	kept bool
	// unreachable is the error if the managed cluster does not respond.
	unreachable error
	// clean is true if all manifests are applied.
	clean bool
	// waiting is true if a failed manifest waits for its next attempt.
	waiting bool
	// again is the delay of the next pass.
	again time.Duration
	// delay is the reason why interceptors are not created yet. It is nil until it is needed.
	delay *error
	// tried is the number of objects that the pass has tried to apply.
	tried int
}

func (p *pass) soon(after time.Duration) { p.again = min(p.again, after) }

// apply applies one item unless its last result is still valid.
func (p *pass) apply(ctx context.Context, it *decide.Item) {
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
	case !p.acting:
		// The object changed after the ManifestWork was admitted as not acting.
		tried = false
		p.clean = false
		p.soon(time.Millisecond)
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
	return watched && seen == state.seen
}

// retryable reports whether a retry can succeed. Other errors end with a change of the object,
// which triggers a pass by its watch.
func retryable(err error) bool {
	return !errors.Is(err, apply.ErrAbsent) && !errors.Is(err, apply.ErrTerminating) && decide.GuardReason(err) == ""
}

// attempt applies an item, or only reads it if it is complete.
func (p *pass) attempt(ctx context.Context, it *decide.Item, state *itemState) {
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	frozen := p.frozen || decide.ItemComplete(p.work, it)
	t := &apply.Task{
		Item: it, State: &state.State, Former: p.former[it.ID().String()], RecordedUID: p.recordedUID(it, state),
		Complete: func(live *unstructured.Unstructured) bool {
			return it.Completable() && p.evaluator.Complete(ctx, p.budget, live, it.Config.ConditionRules)
		},
	}
	var live *unstructured.Unstructured
	var err error
	spanCtx, span := startItem(ctx, it)
	early := p.early(it, state)
	if frozen || early != nil {
		live, err = p.applier.Read(spanCtx, t)
	}
	switch {
	case frozen:
	case early != nil && err == nil && live == nil:
		err = early
	case err == nil:
		live, err = p.applier.Apply(spanCtx, t)
	}
	endItem(span, err)

	var held *apply.HeldBackError
	if errors.As(err, &held) {
		// The manifest was applied. A change by another writer is an error only if the object is a
		// role to which subjects are bound.
		p.soon(max(held.Until.Sub(p.now()), time.Millisecond))
		p.clean = false
		state.seen = version{resourceVersion: "held back"}
		state.result = p.observe(ctx, it, state, live, p.applier.Guard.Contested(it))
		return
	}
	if err != nil {
		if ctx.Err() == nil && retryable(err) {
			applyErrors.WithLabelValues(reasonOf(err)).Inc()
		}
		if removal.NotServed(err) {
			p.mapper.stale()
		}
		p.checkReachable(err)
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
		state.seen = version{}
		if live != nil {
			state.seen = versionOf(live)
		}
		state.result = p.observe(ctx, it, state, live, err)
		if !known {
			state.result.Presence, state.result.PresenceErr = status.Unknown, err
		}
		state.result.Frozen, state.result.Keep = true, live == nil
		return
	}
	p.setResult(ctx, it, state, live, err, known)
}

// entry returns the entry of an item in the record.
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
		state.seen = version{}
		state.result.Presence, state.result.PresenceErr = status.Unknown, err
		p.failed = errors.Join(p.failed, fmt.Errorf("%s: %w", it.ID(), err))
		p.clean = false
		return
	}
	state.seen = version{}
	if live != nil {
		state.seen = versionOf(live)
	}
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

// observe evaluates feedback and condition rules for a live object.
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

// forgetLeft removes the state of objects that have no manifest any more.
func (p *pass) forgetLeft(items []*decide.Item) {
	current := sets.New[decide.ObjectID]()
	for _, it := range items {
		current.Insert(it.ID())
	}
	for id := range p.st.items {
		if !current.Has(id) {
			delete(p.st.items, id)
		}
	}
}
