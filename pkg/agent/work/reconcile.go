package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// itemTimeout bounds the requests for one object. Admission webhooks may take
// up to 30 seconds.
const itemTimeout = 45 * time.Second

// outcome is what a pass over a work came to.
type outcome struct {
	// state is the label of the metric.
	state string
	// again is when to look at the work again at the latest, if nothing
	// happens before.
	again time.Duration
	// waiting is whether something that failed before was left for its next try.
	waiting bool
}

// reconcile makes one pass over a work.
func (c *Controller) reconcile(ctx context.Context, name string) (outcome, error) {
	st := c.states.get(name)
	work := c.cachedWork(name, st)
	switch {
	case work == nil:
		return c.evict(ctx, name, st)
	case work.DeletionTimestamp != nil:
		return c.finalize(ctx, work, st)
	}
	if st.generation != work.Generation {
		st.generation, st.notBefore = work.Generation, time.Time{}
		c.backoff.Forget(name)
	}
	c.wake(name, st)

	items := plan(ctx, c.mapper, work)
	if len(work.Name) > maxWorkName {
		err := fmt.Errorf("not applied: the name of the work is longer than %d characters", maxWorkName)
		return outcome{state: stateFailed}, c.report(ctx, st, work, failedAll(items, err), false)
	}
	client, err := c.executors.Admit(ctx, AdmitRequest{Work: work, Targets: targets(items), Acting: true})
	var refusal *Refusal
	if errors.As(err, &refusal) {
		c.watches.track(name, nil)
		return outcome{state: stateRefused}, errors.Join(c.keepDeleteOption(ctx, work, st), c.report(ctx, st, work, failedAll(items, refusal), false))
	}
	if err != nil {
		return outcome{}, err
	}

	if work, err = c.ensureFinalizer(ctx, st, work); err != nil {
		return outcome{}, err
	}
	return c.applyWork(ctx, st, work, items, client)
}

func targets(items []*item) []Target {
	var targets []Target
	for _, it := range items {
		if it.object != nil {
			targets = append(targets, it.target())
		}
	}
	return targets
}

// applyWork records, applies, removes and reports.
func (c *Controller) applyWork(ctx context.Context, st *workState, work *workv1.ManifestWork, items []*item, client dynamic.Interface) (outcome, error) {
	ordered := applyOrder(items)
	record, former, err := c.ensureRecord(ctx, work, st, givenBy(items))
	if err == nil && record.DeletionTimestamp != nil {
		return c.rebuildRecord(ctx, work.Name, st, record)
	}
	if err == nil {
		record, err = c.setApplied(ctx, st, record, intents(record.Status.AppliedResources, ordered))
	}
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
			return outcome{}, err
		}
		err = fmt.Errorf("nothing is applied: the AppliedManifestWork cannot be written: %w", err)
		return outcome{state: stateFailed}, errors.Join(err, c.report(ctx, st, work, unrecorded(st, items, err), false))
	}
	if st.owner != record.UID {
		st.owner, st.items = record.UID, map[objectID]*itemState{}
	}

	// Watched from before the first write, so that no change goes unseen.
	c.watches.track(work.Name, c.refsOf(items, record.Status.AppliedResources, st.waits))
	pass := &applyPass{
		Controller: c, st: st, work: work, record: record, former: former,
		frozen: workComplete(work, items), uids: map[objectID]types.UID{},
		results: make([]result, len(items)), again: resyncPeriod,
		applier: &applier{client: client, owner: ownerRef(record), manager: fieldManager(record.Name), guarded: guarded(work, record), unguarded: c.unguarded, now: c.now},
		roles:   rolesOf(items),
	}
	pass.clean = !pass.frozen
	for _, it := range ordered {
		pass.apply(ctx, it)
	}
	pass.forgetLeft(items)
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}

	errs := []error{pass.failed}
	current, left := outcomes(record.Status.AppliedResources, ordered, pass.uids)
	remaining, err := c.removeLeft(ctx, record, work, items, without(left, current))
	if err != nil {
		errs = append(errs, err)
	} else if len(remaining) > 0 {
		pass.soon(pollPeriod)
	}
	if record, err = c.setApplied(ctx, st, record, append(current, remaining...)); err != nil {
		return outcome{}, err
	}
	waits := map[objectRef]version{}
	for _, result := range pass.results {
		if ref := waitsFor(result.err); ref != nil {
			waits[*ref] = version{}
		}
	}
	c.watches.track(work.Name, c.refsOf(items, record.Status.AppliedResources, waits))
	c.rest(work.Name, st, waits)
	if pass.clean {
		if _, err = c.updateRecord(ctx, st, record, work, givenBy(items)); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.report(ctx, st, work, itemResults{items, pass.results}, pass.frozen))
	err = errors.Join(errs...)
	state := stateApplied
	if err != nil || pass.waiting || pass.kept {
		state = stateFailed
	}
	return outcome{state: state, again: pass.again, waiting: pass.waiting}, err
}

// refsOf returns the objects to watch: those of the items, those that are still
// to be removed, and those waited for, of all resources that can be watched.
func (c *Controller) refsOf(items []*item, entries []workv1.AppliedManifestResourceMeta, waits map[objectRef]version) sets.Set[objectRef] {
	refs := sets.KeySet(waits)
	known := map[objectID]bool{}
	for _, it := range items {
		if it.object != nil {
			refs.Insert(it.ref())
			known[it.id()] = true
		}
	}
	for _, entry := range entries {
		if !known[entryID(entry)] {
			refs.Insert(entryRef(entry))
		}
	}
	for ref := range refs {
		if !c.mapper.watchable(ref.gvr) {
			refs.Delete(ref)
		}
	}
	return refs
}

func (i *item) ref() objectRef {
	return objectRef{gvr: i.gvr, key: types.NamespacedName{Namespace: i.namespace, Name: i.name}}
}

// without returns the entries that are not about an object of current. Two
// groups may serve one object; it must not be removed under its former group.
func without(left, current []workv1.AppliedManifestResourceMeta) []workv1.AppliedManifestResourceMeta {
	uids := sets.New[string]()
	for _, entry := range current {
		uids.Insert(entry.UID)
	}
	uids.Delete("")
	return slices.DeleteFunc(slices.Clone(left), func(entry workv1.AppliedManifestResourceMeta) bool { return uids.Has(entry.UID) })
}

// removeLeft lets go of recorded objects that the work does not have any more.
func (c *Controller) removeLeft(ctx context.Context, record *workv1.AppliedManifestWork, work *workv1.ManifestWork, items []*item, left []workv1.AppliedManifestResourceMeta) ([]workv1.AppliedManifestResourceMeta, error) {
	if len(left) == 0 {
		return nil, nil
	}
	readOnly := map[objectID]bool{}
	var unresolved []*item
	for _, it := range items {
		switch {
		case it.object == nil:
			unresolved = append(unresolved, it)
		case !it.tracked():
			readOnly[it.id()] = true
		}
	}
	var removable, kept []workv1.AppliedManifestResourceMeta
	for _, entry := range left {
		if mayBeAbout(unresolved, entry) {
			kept = append(kept, entry)
		} else {
			removable = append(removable, entry)
		}
	}
	remaining, err := c.removeAll(ctx, record, removable, letGo{orphan: func(id objectID) bool {
		return readOnly[id] || orphans(work.Spec.DeleteOption, id.identifier())
	}})
	return append(kept, remaining...), err
}

// mayBeAbout reports whether an entry may be the object of a manifest that
// cannot be resolved at present.
func mayBeAbout(unresolved []*item, entry workv1.AppliedManifestResourceMeta) bool {
	for _, it := range unresolved {
		if it.name == "" || it.gvk.Group == entry.Group && it.name == entry.Name && (it.namespace == entry.Namespace || entry.Namespace == "") {
			return true
		}
	}
	return false
}

// applyPass is the apply step of one pass.
type applyPass struct {
	*Controller
	st      *workState
	work    *workv1.ManifestWork
	record  *workv1.AppliedManifestWork
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
}

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
	if missing == nil && guardReason(state.result.err) == workv1.ReasonAppliedManifestRoleNotApplied {
		*state = itemState{hash: it.hash}
	}
	seen, watched := p.watches.seen(it.ref())
	if !watched {
		p.soon(pollPeriod)
	}
	tried := !p.settled(state, seen, watched)
	switch {
	case missing != nil && p.unreachable == nil:
		tried = p.unbind(ctx, it, state, missing)
	case tried && p.unreachable != nil:
		p.setResult(ctx, it, state, nil, p.unreachable, false)
	case tried:
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
	left := p.st.notBefore.Sub(p.now())
	if left <= 0 {
		return false
	}
	p.waiting = true
	p.soon(left)
	return true
}

// settled reports whether the last result still holds.
func (p *applyPass) settled(state *itemState, seen version, watched bool) bool {
	if state.result.presence == presenceUnknown && state.result.err == nil {
		return false
	}
	if state.result.err != nil && retryable(state.result.err) {
		return p.now().Before(p.st.notBefore)
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
	previous := previousOf(p.work.Status.ResourceStatus.Manifests, it.meta())
	frozen := p.frozen || completable && previous != nil && meta.IsStatusConditionTrue(previous.Conditions, workv1.WorkComplete)
	t := &task{
		item: it, state: state, former: p.former[it.id().String()], recordedUID: types.UID(p.entry(it).UID),
		complete: func(live *unstructured.Unstructured) bool {
			return completable && p.evaluator.complete(ctx, live, rules)
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
	at := slices.IndexFunc(p.record.Status.AppliedResources, func(entry workv1.AppliedManifestResourceMeta) bool { return entryID(entry) == it.id() })
	if at < 0 {
		return workv1.AppliedManifestResourceMeta{}
	}
	return p.record.Status.AppliedResources[at]
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
	res.feedback, res.feedbackErr = feedback(live, it.config.FeedbackRules)
	res.rules = p.evaluator.rules(ctx, live, it.config.ConditionRules)
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
