package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// itemTimeout bounds the requests for one object. Admission webhooks may take
// up to 30 seconds.
const itemTimeout = 45 * time.Second

// applyPass is the apply step of one pass.
type applyPass struct {
	*Controller
	st      *workState
	work    *workv1.ManifestWork
	items   []*item
	started time.Time
	// budget is what the expressions of the work may still cost in this pass.
	budget *bounded.Budget
	// acting is whether the work was admitted to read and write its objects. If
	// not, nothing was due when it was.
	acting bool
	record *workv1.AppliedManifestWork
	// entries are the resources of record; nil until one is asked for.
	entries map[objectID]workv1.AppliedManifestResourceMeta
	former  givenFields
	applier *applier
	// frozen is whether the work is complete, and nothing of it is applied.
	frozen bool

	// uids are those of the objects that the work has applied.
	uids    map[objectID]types.UID
	results []result
	// failed joins the errors that are worth trying again.
	failed error
	// roles are the items that deliver roles.
	roles map[roleKey]*item
	// kept is whether a guarded work left out what it must not apply.
	kept bool
	// unreachable is set once the managed cluster does not answer.
	unreachable error
	// clean is whether every manifest holds as given.
	clean bool
	// waiting is whether something that failed is left for its next try.
	waiting bool
	again   time.Duration
	// tried is how many objects the pass has tried to apply.
	tried int
}

// over reports whether the pass has used its slice of time.
func (p *applyPass) over() bool { return p.now().Sub(p.started) >= p.sliceTime }

func (p *applyPass) soon(after time.Duration) { p.again = min(p.again, after) }

// apply applies one item, or finds that there is nothing to do.
func (p *applyPass) apply(ctx context.Context, it *item) {
	if it.err != nil {
		p.clean = false
		p.results[it.ordinal] = result{err: it.err}
		if !p.wait() {
			p.failed = errors.Join(p.failed, fmt.Errorf("manifest %d: %w", it.ordinal, it.err))
		}
		return
	}
	state := p.st.items[it.id()]
	if state == nil || state.hash != it.hash {
		state = &itemState{hash: it.hash}
		p.st.items[it.id()] = state
	}
	missing := p.missingRole(it)
	if missing == nil && state.unbound() {
		*state = itemState{hash: it.hash}
	}
	if _, watched := p.watches.seen(it.ref()); !watched {
		p.soon(pollPeriod)
	}
	tried := p.due(it, state, missing)
	if tried && state.round == p.st.round {
		// An earlier slice of this pass has tried it.
		tried = false
		if state.result.err == nil {
			p.soon(staleDelay)
		}
	} else if tried {
		p.tried++
		state.round = p.st.round
	}
	switch {
	case !tried:
	case !p.acting:
		// It changed just now, and whether the work may act on it was not asked.
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
	case !it.tracked():
	case state.borrowed:
		p.uids[it.id()] = ""
	case state.uid != "":
		p.uids[it.id()] = state.uid
	}
	p.results[it.ordinal] = state.result
	if err := state.result.err; err != nil {
		p.clean = false
		p.kept = p.kept || guardReason(err) != ""
		if retryable(err) && (tried || !p.wait()) {
			p.failed = errors.Join(p.failed, fmt.Errorf("%s: %w", it.id(), err))
		}
	}
}

// wait reports whether what failed is left for its next try.
func (p *applyPass) wait() bool {
	left := p.st.notBefore.Sub(p.started)
	if left <= 0 {
		return false
	}
	p.waiting = true
	p.soon(left)
	return true
}

// due reports whether an item takes a request, to apply it or to find out how it
// is. missing is why it must not be applied, if it must not.
func (p *applyPass) due(it *item, state *itemState, missing *roleNotAppliedError) bool {
	seen, watched := p.watches.seen(it.ref())
	if missing == nil {
		return !p.settled(state, seen, watched)
	}
	if !missing.taken && state.applied && state.result.err == nil {
		return false
	}
	last, same := state.result.err.(*roleNotAppliedError)
	return !same || *last != *missing || !watched || seen != state.seen
}

// settled reports whether the last result still holds.
func (p *applyPass) settled(state *itemState, seen version, watched bool) bool {
	if state.result.presence == presenceUnknown && state.result.err == nil {
		return false
	}
	if state.result.err != nil && retryable(state.result.err) {
		return p.started.Before(p.st.notBefore)
	}
	return watched && seen == state.seen
}

// retryable reports whether trying again can help by itself. The other errors
// end with a change of the object, which its watch reports.
func retryable(err error) bool {
	return !errors.Is(err, errAbsent) && !errors.Is(err, errTerminating) && guardReason(err) == ""
}

// attempt applies an item by its strategy, or only reads it if it is complete.
func (p *applyPass) attempt(ctx context.Context, it *item, state *itemState) {
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	rules := it.config.ConditionRules
	completable := hasCompleteRule(rules)
	frozen := p.frozen || itemComplete(p.work, it)
	t := &task{
		item: it, state: state, former: p.former[it.id().String()], recordedUID: types.UID(p.entry(it).UID),
		complete: func(live *unstructured.Unstructured) bool {
			return completable && p.evaluator.complete(ctx, p.budget, live, rules)
		},
	}
	var live *unstructured.Unstructured
	var err error
	if frozen {
		live, err = p.read(ctx, t)
	} else {
		live, err = p.applier.apply(ctx, t)
	}

	var held *heldBackError
	if errors.As(err, &held) {
		// The manifest was applied; that it does not last is its failure only if
		// somebody would be bound to what it has become.
		p.soon(max(held.until.Sub(p.now()), time.Millisecond))
		p.clean = false
		state.seen = version{resourceVersion: "held back"}
		state.result = p.observe(ctx, it, live, p.contested(it))
		return
	}
	if err != nil {
		if ctx.Err() == nil && retryable(err) {
			applyErrors.WithLabelValues(reasonOf(err)).Inc()
		}
		if resourceNotServed(err) {
			p.mapper.stale()
		}
		p.checkReachable(err)
	}
	if live == nil && err != nil && retryable(err) && p.unreachable == nil {
		// Whether the object exists is reported even if it cannot be applied.
		var readErr error
		if live, readErr = p.read(ctx, t); readErr != nil {
			live = nil
		}
		p.setResult(ctx, it, state, live, err, readErr == nil)
		return
	}
	known := live != nil || err == nil || errors.Is(err, errAbsent)
	if frozen {
		state.seen = version{}
		if live != nil {
			state.seen = versionOf(live)
		}
		state.result = p.observe(ctx, it, live, err)
		if !known {
			state.result.presence, state.result.presenceErr = presenceUnknown, err
		}
		state.result.frozen, state.result.keep = true, live == nil
		return
	}
	p.setResult(ctx, it, state, live, err, known)
}

// entry returns what is on record about the object of an item. Every object is
// on record but those that are only looked at.
func (p *applyPass) entry(it *item) workv1.AppliedManifestResourceMeta {
	if p.entries == nil {
		p.entries = make(map[objectID]workv1.AppliedManifestResourceMeta, len(p.record.Status.AppliedResources))
		for _, entry := range p.record.Status.AppliedResources {
			if _, known := p.entries[entryID(entry)]; !known {
				p.entries[entryID(entry)] = entry
			}
		}
	}
	return p.entries[it.id()]
}

// checkReachable takes the managed cluster for unreachable if an error is no
// answer of it.
func (p *applyPass) checkReachable(err error) {
	if _, answered := err.(apierrors.APIStatus); !answered && isConnectionError(err) {
		p.unreachable = err
	}
}

// read returns the live object, nil if it does not exist.
func (p *applyPass) read(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	live, err := p.applier.resource(t).Get(ctx, t.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// setResult remembers what an attempt came to. known is whether live says
// whether the object exists.
func (p *applyPass) setResult(ctx context.Context, it *item, state *itemState, live *unstructured.Unstructured, err error, known bool) {
	if err != nil && !known && state.applied && state.result.err == nil {
		// It is applied; that this cannot be verified right now is another matter.
		state.seen = version{}
		state.result.presence, state.result.presenceErr = presenceUnknown, err
		p.failed = errors.Join(p.failed, fmt.Errorf("%s: %w", it.id(), err))
		p.clean = false
		return
	}
	state.seen = version{}
	if live != nil {
		state.seen = versionOf(live)
	}
	if err == nil && it.tracked() {
		state.applied = true
		// An object that was found complete is not ours unless it says so.
		if live != nil && !state.borrowed && (it.orphan || hasOwner(live, p.applier.owner)) {
			state.uid = live.GetUID()
		}
	}
	state.result = p.observe(ctx, it, live, err)
	if !known {
		state.result.presence, state.result.presenceErr = presenceUnknown, err
	}
}

// observe evaluates feedback and condition rules against a live object.
func (p *applyPass) observe(ctx context.Context, it *item, live *unstructured.Unstructured, err error) result {
	res := result{err: err, presence: absent}
	if live == nil {
		return res
	}
	res.presence = present
	res.feedback, res.feedbackErr = feedback(p.budget, live, it.config.FeedbackRules, p.feedbackPaths)
	res.rules = p.evaluator.rules(ctx, p.budget, live, it.config.ConditionRules)
	return res
}

// forgetLeft drops the state of objects that are not in the work any more.
func (p *applyPass) forgetLeft(items []*item) {
	current := map[objectID]bool{}
	for _, it := range items {
		current[it.id()] = true
	}
	for id := range p.st.items {
		if !current[id] {
			delete(p.st.items, id)
		}
	}
}
