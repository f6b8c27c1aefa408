package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// executorIndex finds the works that name an executor.
const executorIndex = "executor"

func executorIndexer(obj any) ([]string, error) {
	work, ok := obj.(*workv1.ManifestWork)
	if !ok {
		return nil, nil
	}
	executor, named := ExecutorOf(work)
	if !named {
		return nil, nil
	}
	return []string{executor.String()}, nil
}

// executorChanged has the works of an executor looked at, whose permissions may
// have changed. It does not block.
func (c *Controller) executorChanged(executor types.NamespacedName) {
	keys, err := c.byExecutor.IndexKeys(executorIndex, executor.String())
	if err != nil {
		// The index is there since New.
		klog.Background().Error(err, "Works of an executor are not found", "executor", executor)
		return
	}
	for _, key := range keys {
		_, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			continue
		}
		c.mu.Lock()
		c.woken.Insert(name)
		c.mu.Unlock()
		c.queue.Add(name)
	}
}

// dropExecutor forgets an executor that no work names any more; the empty one is
// none. A work that names it again has it judged anew.
func (c *Controller) dropExecutor(executor types.NamespacedName) {
	if executor == (types.NamespacedName{}) {
		return
	}
	if keys, err := c.byExecutor.IndexKeys(executorIndex, executor.String()); err == nil && len(keys) == 0 {
		c.executors.Forget(executor)
		// A work may name it since, which would not be told of changes any more.
		c.executorChanged(executor)
	}
}

// dropState forgets a work that is gone.
func (c *Controller) dropState(name string, st *workState) {
	c.states.drop(name)
	c.schedule.forget(name)
	c.dropExecutor(st.executor)
}

// takeWoken reports whether the executor of a work has changed since the last call.
func (c *Controller) takeWoken(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	woken := c.woken.Has(name)
	c.woken.Delete(name)
	return woken
}

// outdated reports whether the work is deleted, or what the executor may do has
// changed since the work was admitted. An agent that impersonates is judged again with every request, but one
// that acts as itself would go on.
func (p *applyPass) outdated() bool {
	if p.schedule.ending(p.work.Name) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acting && p.woken.Has(p.work.Name)
}

// isDenied reports whether an error is that of somebody who may not do something.
func isDenied(err error) bool {
	var refusal *Refusal
	return apierrors.IsForbidden(err) || errors.As(err, &refusal)
}

// targets returns what a work is about to act on. What is complete is only
// looked at, whatever its strategy was.
func targets(work *workv1.ManifestWork, items []*item) []Target {
	frozen := workComplete(work, items)
	var targets []Target
	for _, it := range items {
		if it.object == nil {
			continue
		}
		target := it.target()
		if frozen || itemComplete(work, it) {
			target.Strategy, target.Removed = workv1.UpdateStrategyTypeReadOnly, false
		}
		targets = append(targets, target)
	}
	return targets
}

// itemComplete reports whether a manifest has run to its end before.
func itemComplete(work *workv1.ManifestWork, it *item) bool {
	if !hasCompleteRule(it.config.ConditionRules) {
		return false
	}
	previous := previousOf(work.Status.ResourceStatus.Manifests, it.meta())
	return previous != nil && meta.IsStatusConditionTrue(previous.Conditions, workv1.WorkComplete)
}

// refuse reports a work that must not act. What it applied before stays, but is
// not looked at: not even its watches are kept.
func (c *Controller) refuse(ctx context.Context, st *workState, work *workv1.ManifestWork, items []*item, refusal *Refusal) (outcome, error) {
	c.watches.track(work.Name, nil)
	st.denied = true
	// What was read must not be reported again before it is read again.
	st.items = map[objectID]*itemState{}
	frozen := workComplete(work, items)
	results := make([]result, len(items))
	for i, it := range items {
		if it.err != nil {
			results[i] = result{err: it.err}
			continue
		}
		results[i] = result{err: errors.New(cmp.Or(refusal.Manifests[i], refusal.Message))}
		complete := itemComplete(work, it)
		results[i].frozen = frozen || complete
		if complete {
			// Else what has run to its end would begin again with the next grant.
			results[i].rules = []metav1.Condition{{
				Type: workv1.WorkComplete, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated,
				Message: "The object was complete when it was read last",
			}}
		}
	}
	came := outcome{state: stateRefused, again: resyncPeriod}
	return came, errors.Join(c.keepRecord(ctx, work, st), c.report(ctx, st, work, itemResults{items, results}, frozen))
}

// unadmitted reports a work of which it could not be told whether it may act.
// Nothing is written; what it applied before still is.
func (c *Controller) unadmitted(ctx context.Context, st *workState, work *workv1.ManifestWork, items []*item, err error) (outcome, error) {
	st.denied = true
	err = fmt.Errorf("nothing is applied: what the executor may do is not known: %w", err)
	if ctx.Err() != nil || isConnectionError(err) {
		return outcome{}, err
	}
	return outcome{state: stateFailed}, errors.Join(err, c.report(ctx, st, work, unrecorded(st, items, err), workComplete(work, items)))
}

// acts reports whether the pass is about to read or write any object. It changes
// nothing, so what is due is found due again afterwards.
func (p *applyPass) acts(ordered []*item) bool {
	record := p.cachedRecord(p.work.Name, p.st)
	if record == nil || record.DeletionTimestamp != nil || record.UID != p.st.owner {
		return true
	}
	p.applier = &applier{guarded: guarded(p.work, record)}
	defer func() { p.applier, p.results = nil, make([]result, len(p.results)) }()
	for _, it := range ordered {
		if it.err != nil {
			p.results[it.ordinal] = result{err: it.err}
			continue
		}
		state := p.st.items[it.id()]
		if state == nil || state.hash != it.hash {
			return true
		}
		missing := p.missingRole(it)
		if missing == nil && state.unbound() || p.due(it, state, missing) {
			return true
		}
		p.results[it.ordinal] = state.result
	}
	return false
}

// mayReplace returns why the executor may not delete a binding that has to be
// replaced, nil if it may. With an object that stays when its work goes, nobody
// has asked yet.
func (p *applyPass) mayReplace(ctx context.Context, it *item) error {
	asked := targets(p.work, p.items)
	for i := range asked {
		asked[i].Removed = asked[i].Removed || asked[i].Ordinal == it.ordinal
	}
	_, err := p.executors.Admit(ctx, AdmitRequest{Work: p.work, Targets: asked, Acting: true})
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return &Refusal{Message: "the role of a binding cannot be changed, so the binding has to be replaced: " + cmp.Or(refusal.Manifests[it.ordinal], refusal.Message)}
	}
	return err
}
