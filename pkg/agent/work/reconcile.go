package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// maxWorkName is the maximum length of a ManifestWork name. The name of its AppliedManifestWork
// also contains a hash and a hyphen.
const maxWorkName = validation.DNS1123SubdomainMaxLength - 65

// outcome is the result of a pass.
type outcome struct {
	// state is the state in the metric.
	state string
	// again is the maximum delay of the next pass. If it is zero, no pass is due.
	again time.Duration
	// waiting is true if a manifest that failed before waits for its next attempt.
	waiting bool
	// partial is true if the pass left objects to the next turn of the ManifestWork.
	partial bool
}

// wakeup is the reason for a pass.
type wakeup struct {
	// woken is true if the permissions of the executor may have changed.
	woken bool
	// priority is true if a worker of the priority lane makes the pass.
	priority bool
}

// reconcile makes one pass over a ManifestWork, or over a record of a previous hub.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName, why wakeup) (came outcome, err error) {
	st := c.states.get(key)
	if key.Namespace == "" {
		return c.evictFormer(ctx, key, st)
	}
	work := c.cachedWork(key.Name, st)
	if work == nil {
		return c.evict(ctx, key, st)
	}
	st.seen = true
	ctx, span := c.tracer.start(ctx, work, st)
	defer func() { span.end(came, err) }()
	if work.DeletionTimestamp != nil {
		return c.finalize(ctx, key, work, st)
	}
	if st.generation != work.Generation {
		st.generation, st.notBefore = work.Generation, time.Time{}
		c.loop.Forget(key)
	}
	c.endWait(key, st)
	if why.woken && st.denied {
		st.notBefore = time.Time{}
		c.loop.Forget(key)
	}
	executor, _ := ExecutorOf(work)
	if st.executor != executor {
		// The new executor may lack permissions that the previous one had.
		former := st.executor
		st.executor, st.items = executor, map[decide.ObjectID]*itemState{}
		c.dropExecutor(former)
	}

	items := decide.Plan(ctx, c.mapper, work)
	if len(work.Name) > maxWorkName {
		err := fmt.Errorf("not applied: the name of the ManifestWork is longer than %d characters", maxWorkName)
		return outcome{state: stateFailed}, c.report(ctx, st, work, items, failedAll(items, err), false)
	}
	p := &pass{
		Controller: c, key: key, st: st, work: work, items: items, roles: decide.RolesOf(items), started: c.now(),
		results: make([]status.Result, len(items)), again: resyncPeriod, budget: bounded.NewBudget(),
	}
	p.acting = p.acts(decide.Order(items))
	client, err := p.admit(ctx)
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return c.refuse(ctx, p, refusal)
	}
	if err != nil {
		return c.unadmitted(ctx, p, err)
	}
	if why.woken && why.priority && p.acting {
		// The executor keeps its permissions, so no permission was revoked. A worker of the
		// ordinary lane applies the ManifestWork.
		return outcome{partial: true}, nil
	}
	if p.work, err = c.ensureFinalizer(ctx, st, work); err != nil {
		return outcome{}, err
	}
	return p.run(ctx, client)
}

// run writes the record, applies manifests, removes objects and reports the status.
func (p *pass) run(ctx context.Context, client dynamic.Interface) (outcome, error) {
	st, work, items := p.st, p.work, p.items
	ordered := decide.Order(items)
	manager := decide.FieldManager(p.recordName(work.Name))
	record, former, err := p.ensureRecord(ctx, work, st, decide.FieldSetsOf(items, manager, nil))
	if err == nil && record.DeletionTimestamp != nil {
		return p.rebuildRecord(ctx, p.key, st, record)
	}
	if err == nil {
		record, err = p.setApplied(ctx, st, record, decide.Intents(record.Status.AppliedResources, ordered))
	}
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
			return outcome{}, err
		}
		err = fmt.Errorf("not applied: cannot write the AppliedManifestWork: %w", err)
		return outcome{state: stateFailed}, errors.Join(err, p.report(ctx, st, work, items, skippedAll(st, items, err), false))
	}
	if st.owner != record.UID {
		st.owner, st.items = record.UID, map[decide.ObjectID]*itemState{}
	}

	// The watches start before the first write, so that they receive every change.
	p.watches.track(p.key, p.refsOf(items, record.Status.AppliedResources, st.waits))
	_, named := ExecutorOf(work)
	p.record, p.former = record, former
	p.frozen, p.uids = decide.WorkComplete(work, items), map[decide.ObjectID]types.UID{}
	p.applier = &apply.Applier{
		Client: client, Owner: decide.OwnerRef(record), Manager: manager, Guard: p.guard(work, record),
		Now: p.now, Named: named, MayReplace: p.mayReplace, Held: p.held, Budget: p.budget,
	}
	p.clean = !p.frozen
	if !st.cut {
		st.round++
	}
	st.cut = false
	for _, it := range ordered {
		if p.outdated() {
			// The next pass is admitted again, and continues with the result of this pass.
			return outcome{state: stateFailed, again: time.Millisecond, waiting: true}, nil
		}
		if p.tried > 0 && p.now().Sub(p.started) >= p.sliceTime {
			st.cut = true
			return outcome{partial: true}, nil
		}
		p.apply(ctx, it)
	}
	p.forgetLeft(items)
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}

	errs := []error{p.failed}
	current, left := decide.Outcomes(record.Status.AppliedResources, ordered, p.uids)
	until := p.started.Add(p.sliceTime)
	kept, left, err := p.retain(ctx, decide.Without(left, current))
	if err != nil {
		errs = append(errs, err)
	}
	remaining, err := p.removeLeft(ctx, record, left, until)
	current = append(current, kept...)
	if err != nil {
		errs = append(errs, err)
	} else if len(remaining) > 0 {
		p.soon(p.resume(until))
	}
	if record, err = p.setApplied(ctx, st, record, append(current, remaining...)); err != nil {
		return outcome{}, err
	}
	waits := map[objectRef]version{}
	st.denied = false
	for _, result := range p.results {
		st.denied = st.denied || isDenied(result.Err) || isDenied(result.PresenceErr)
		if ref := waitsFor(result.Err); ref != nil {
			waits[*ref] = version{}
		}
	}
	p.watches.track(p.key, p.refsOf(items, record.Status.AppliedResources, waits))
	p.setWaits(p.key, st, waits)
	if p.clean {
		if _, err = p.updateRecord(ctx, st, record, work, decide.FieldSetsOf(items, manager, former)); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, p.report(ctx, st, work, items, p.results, p.frozen))
	err = errors.Join(errs...)
	if err != nil && errors.Join(errs[1:]...) == nil {
		err = reconcile.Reported(err) // the conditions of the manifests contain it
	}
	state := stateApplied
	if err != nil || p.waiting || p.kept {
		state = stateFailed
	}
	return outcome{state: state, again: p.again, waiting: p.waiting}, err
}

// refsOf returns the objects to watch: the objects of the items, the objects that are being
// removed, and the objects that failed manifests wait for. Resources that cannot be watched are
// omitted.
func (c *Controller) refsOf(items []*decide.Item, entries []workv1.AppliedManifestResourceMeta, waits map[objectRef]version) sets.Set[objectRef] {
	refs := sets.KeySet(waits)
	known := sets.New[decide.ObjectID]()
	for _, it := range items {
		if it.Object != nil {
			refs.Insert(refOf(it))
			known.Insert(it.ID())
		}
	}
	for _, entry := range entries {
		if !known.Has(decide.EntryID(entry)) {
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

func refOf(it *decide.Item) objectRef {
	return objectRef{gvr: it.GVR, key: types.NamespacedName{Namespace: it.Namespace, Name: it.Name}}
}

// removeLeft removes recorded objects that have no manifest any more. It returns the entries of the
// objects that still exist.
func (p *pass) removeLeft(ctx context.Context, record *workv1.AppliedManifestWork, left []workv1.AppliedManifestResourceMeta, until time.Time) ([]workv1.AppliedManifestResourceMeta, error) {
	if len(left) == 0 {
		return nil, nil
	}
	readOnly := sets.New[decide.ObjectID]()
	var unresolved []*decide.Item
	for _, it := range p.items {
		switch {
		case it.Object == nil:
			unresolved = append(unresolved, it)
		case !it.Tracked():
			readOnly.Insert(it.ID())
		}
	}
	var removable, kept []workv1.AppliedManifestResourceMeta
	for _, entry := range left {
		if decide.MayBeAbout(unresolved, entry) {
			kept = append(kept, entry)
		} else {
			removable = append(removable, entry)
		}
	}
	_, named := ExecutorOf(p.work)
	remaining, err := p.remover.RemoveAll(ctx, record, removable, removal.Options{Until: until, OwnedOnly: named, Orphan: func(id decide.ObjectID) bool {
		return readOnly.Has(id) || decide.Orphans(p.work.Spec.DeleteOption, id)
	}})
	return append(kept, remaining...), err
}
