package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// outcome is what a pass over a work came to.
type outcome struct {
	// state is the label of the metric.
	state string
	// again is when to look at the work again at the latest, if nothing
	// happens before.
	again time.Duration
	// waiting is whether something that failed before was left for its next try.
	waiting bool
	// partial is whether the pass left objects to the next turn of the work.
	partial bool
}

// wakeup is why a pass is made.
type wakeup struct {
	// woken is whether the permissions of the executor may have changed.
	woken bool
	// priority is whether the pass is one of the priority lane.
	priority bool
}

// reconcile makes one pass over a work.
func (c *Controller) reconcile(ctx context.Context, name string, why wakeup) (outcome, error) {
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
	if why.woken && st.denied {
		st.notBefore = time.Time{}
		c.backoff.Forget(name)
	}
	executor, _ := ExecutorOf(work)
	if st.executor != executor {
		// What one could read or write, the other perhaps cannot.
		former := st.executor
		st.executor, st.items = executor, map[objectID]*itemState{}
		c.dropExecutor(former)
	}

	items := plan(ctx, c.mapper, work)
	if len(work.Name) > maxWorkName {
		err := fmt.Errorf("not applied: the name of the work is longer than %d characters", maxWorkName)
		return outcome{state: stateFailed}, c.report(ctx, st, work, failedAll(items, err), false)
	}
	pass := &applyPass{
		Controller: c, st: st, work: work, items: items, roles: rolesOf(items), started: c.now(),
		results: make([]result, len(items)), again: resyncPeriod, budget: bounded.NewBudget(),
	}
	pass.acting = pass.acts(applyOrder(items))
	client, err := c.executors.Admit(ctx, AdmitRequest{Work: work, Targets: targets(work, items), Acting: pass.acting})
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return c.refuse(ctx, st, work, items, refusal)
	}
	if err != nil {
		return c.unadmitted(ctx, st, work, items, err)
	}

	if why.woken && why.priority && pass.acting {
		// The executor keeps its permissions, so this is no revocation. Applying takes
		// its turn in the ordinary lane.
		return outcome{partial: true}, nil
	}
	if pass.work, err = c.ensureFinalizer(ctx, st, work); err != nil {
		return outcome{}, err
	}
	return c.applyWork(ctx, pass, client)
}

// applyWork records, applies, removes and reports.
func (c *Controller) applyWork(ctx context.Context, pass *applyPass, client dynamic.Interface) (outcome, error) {
	st, work, items := pass.st, pass.work, pass.items
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
	_, named := ExecutorOf(work)
	pass.record, pass.former = record, former
	pass.frozen, pass.uids = workComplete(work, items), map[objectID]types.UID{}
	pass.applier = &applier{
		client: client, owner: ownerRef(record), manager: fieldManager(record.Name), guarded: guarded(work, record), unguarded: c.unguarded, now: c.now,
		named: named, mayReplace: pass.mayReplace, budget: pass.budget,
	}
	pass.clean = !pass.frozen
	if !st.cut {
		st.round++
	}
	st.cut = false
	for _, it := range ordered {
		if pass.outdated() {
			// The rest is for the next pass, which asks anew and finds what is done.
			return outcome{state: stateFailed, again: time.Millisecond, waiting: true}, nil
		}
		if pass.tried > 0 && pass.over() {
			st.cut = true
			return outcome{partial: true}, nil
		}
		pass.apply(ctx, it)
	}
	pass.forgetLeft(items)
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}

	errs := []error{pass.failed}
	current, left := outcomes(record.Status.AppliedResources, ordered, pass.uids)
	until := pass.started.Add(c.sliceTime)
	remaining, err := c.removeLeft(ctx, record, work, items, without(left, current), until)
	if err != nil {
		errs = append(errs, err)
	} else if len(remaining) > 0 {
		pass.soon(c.resume(letGo{until: until}))
	}
	if record, err = c.setApplied(ctx, st, record, append(current, remaining...)); err != nil {
		return outcome{}, err
	}
	waits := map[objectRef]version{}
	st.denied = false
	for _, result := range pass.results {
		st.denied = st.denied || isDenied(result.err) || isDenied(result.presenceErr)
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
func (c *Controller) removeLeft(ctx context.Context, record *workv1.AppliedManifestWork, work *workv1.ManifestWork, items []*item, left []workv1.AppliedManifestResourceMeta, until time.Time) ([]workv1.AppliedManifestResourceMeta, error) {
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
	_, named := ExecutorOf(work)
	remaining, err := c.removeAll(ctx, record, removable, letGo{until: until, ownedOnly: named, orphan: func(id objectID) bool {
		return readOnly[id] || orphans(work.Spec.DeleteOption, id)
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
