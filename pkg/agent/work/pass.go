package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// pass is one pass over a ManifestWork, or one slice of it. What the next pass needs is in st.
type pass struct {
	*Controller
	key     cache.ObjectName
	st      *workState
	work    *workv1.ManifestWork
	items   []*decide.Item
	started time.Time
	// budget bounds the expressions that the ManifestWork evaluates in this pass.
	budget  *bounded.Budget
	record  *workv1.AppliedManifestWork
	applier *apply.Applier
	// frozen is true if the ManifestWork is complete and so is not applied.
	frozen bool
	// roles are the items that contain roles.
	roles decide.Roles
	// checked is true if the permissions of the executor were checked in this pass. denied is the error
	// if they were lost since, or are unknown.
	checked bool
	denied  error
	// writing is true if the attempt to apply the current item has sent a write.
	writing bool

	// uids are the UIDs of the applied objects.
	uids    map[decide.ObjectID]types.UID
	results []status.Result
	// failed joins the errors that are retried.
	failed error
	// skipped is true if a guarded ManifestWork has objects that it must not change.
	skipped bool
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

func (c *Controller) apply(ctx context.Context, key cache.ObjectName, work *workv1.ManifestWork, st *workState) (outcome, error) {
	if st.generation != work.Generation {
		st.generation, st.notBefore, st.refused = work.Generation, time.Time{}, time.Time{}
		c.loop.Forget(key)
	}
	c.endWait(key, st)
	executor, _ := ExecutorOf(work)
	if st.executor != executor {
		// The new executor may lack permissions that the previous one had.
		st.executor, st.items = executor, map[decide.ObjectID]*itemState{}
	}
	items := decide.Plan(ctx, c.mapper, work)
	if len(work.Name) > maxWorkName {
		err := fmt.Errorf("not applied: the name of the ManifestWork is longer than %d characters", maxWorkName)
		return outcome{state: stateFailed}, c.report(ctx, work, items, skippedAll(st, items, err), false)
	}
	p := &pass{
		Controller: c, key: key, st: st, work: work, items: items, roles: decide.RolesOf(items), started: c.now(),
		results: make([]status.Result, len(items)), again: resyncPeriod, budget: bounded.NewBudget(),
		frozen: decide.WorkComplete(work, items), uids: map[decide.ObjectID]types.UID{}, checked: st.cut,
	}
	client, err := p.admit(ctx)
	if err != nil {
		return p.unadmitted(ctx, err)
	}
	if p.work, err = c.ensureFinalizer(ctx, work); err != nil {
		return outcome{}, err
	}
	return p.run(ctx, client)
}

// run writes the record, applies manifests, removes objects and reports the status.
func (p *pass) run(ctx context.Context, client dynamic.Interface) (outcome, error) {
	ordered := decide.Order(p.items)
	if result, err := p.begin(ctx, client, ordered); result != nil {
		return *result, err
	}
	for _, it := range ordered {
		if p.deleted(p.work) {
			return outcome{partial: true}, nil
		}
		if p.tried > 0 && p.now().Sub(p.started) >= p.Slice {
			p.st.cut = true
			return outcome{partial: true}, nil
		}
		p.applyItem(ctx, it)
		if p.denied != nil {
			return p.unadmitted(ctx, p.denied)
		}
	}
	p.forgetLeft()
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	return p.finish(ctx, ordered)
}

// begin writes the record of the objects that the pass may create. If the pass ends with that, it
// returns the outcome.
func (p *pass) begin(ctx context.Context, client dynamic.Interface, ordered []*decide.Item) (*outcome, error) {
	st, work := p.st, p.work
	manager := decide.FieldManager(p.recordName(work.Name))
	record, err := p.ensureRecord(ctx, work, st, p.items)
	if err == nil && record.DeletionTimestamp != nil {
		result, err := p.rebuildRecord(ctx, p.key, st, record)
		return &result, err
	}
	if err == nil {
		record, err = p.setApplied(ctx, record, decide.Intents(record.Status.AppliedResources, ordered))
	}
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
			return &outcome{}, err
		}
		err = fmt.Errorf("not applied: cannot write the AppliedManifestWork: %w", err)
		return &outcome{state: stateFailed}, errors.Join(err, p.report(ctx, work, p.items, skippedAll(st, p.items, err), false))
	}
	if st.owner != record.UID {
		st.owner, st.items = record.UID, map[decide.ObjectID]*itemState{}
	}
	// The watches start before the first write, so that they receive every change.
	p.watches.track(p.key, p.refsOf(p.items, record.Status.AppliedResources, st.waits))
	_, named := ExecutorOf(work)
	p.record, p.clean = record, !p.frozen
	p.applier = &apply.Applier{
		Client: client, Owner: decide.OwnerRef(record), Manager: manager, Guard: p.guard(work, record),
		Now: p.now, Named: named, MayWrite: p.mayWrite, Held: p.held, Budget: p.budget,
		Managers: decide.ManagersOf(record), Stale: record.Annotations[appliedAnnotation] != appliedVersion(p.items),
	}
	if !st.cut {
		st.round++
	}
	st.cut = false
	return nil, nil
}

// finish removes the objects that no longer have a manifest, and reports the status.
func (p *pass) finish(ctx context.Context, ordered []*decide.Item) (outcome, error) {
	st, work := p.st, p.work
	errs := []error{p.failed}
	current, left := decide.Outcomes(p.record.Status.AppliedResources, ordered, p.uids)
	until := p.started.Add(p.Slice)
	retained, left, err := p.retain(ctx, decide.Without(left, current))
	if err != nil {
		errs = append(errs, err)
	}
	remaining, err := p.removeLeft(ctx, p.record, left, until)
	current = append(current, retained...)
	if err != nil {
		errs = append(errs, err)
	} else if len(remaining) > 0 {
		p.soon(p.resume(until))
	}
	record, err := p.setApplied(ctx, p.record, append(current, remaining...))
	if err != nil {
		return outcome{}, err
	}
	waits := map[objectRef]version{}
	for _, result := range p.results {
		if ref := waitsFor(result.Err); ref != nil {
			waits[*ref] = version{}
		}
	}
	p.watches.track(p.key, p.refsOf(p.items, record.Status.AppliedResources, waits))
	p.setWaits(p.key, st, waits)
	if p.clean {
		errs = append(errs, p.markApplied(ctx, record, p.items))
	}
	errs = append(errs, p.report(ctx, work, p.items, p.results, p.frozen))
	err = errors.Join(errs...)
	if err != nil && errors.Join(errs[1:]...) == nil {
		err = reconcile.Reported(err) // the conditions of the manifests contain it
	}
	state := stateApplied
	if err != nil || p.waiting || p.skipped {
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

// removeLeft removes recorded objects that no longer have a manifest. It returns the entries of the
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
	var removable, unclear []workv1.AppliedManifestResourceMeta
	for _, entry := range left {
		if decide.MayBeAbout(unresolved, entry) {
			unclear = append(unclear, entry)
		} else {
			removable = append(removable, entry)
		}
	}
	_, named := ExecutorOf(p.work)
	remaining, err := p.remover.Remove(ctx, record, removable, removal.Options{Until: until, OwnedOnly: named, Orphan: func(id decide.ObjectID) bool {
		return readOnly.Has(id) || decide.Orphans(p.work.Spec.DeleteOption, id)
	}})
	if p.unsettled(p.st) {
		// An interrupted write may still create an object.
		remaining = removable
	}
	return append(unclear, remaining...), err
}

func (p *pass) forgetLeft() {
	current := sets.New[decide.ObjectID]()
	for _, it := range p.items {
		current.Insert(it.ID())
	}
	maps.DeleteFunc(p.st.items, func(id decide.ObjectID, _ *itemState) bool { return !current.Has(id) })
}
