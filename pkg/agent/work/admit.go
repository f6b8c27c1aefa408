package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// executorIndex is the name of the index of ManifestWorks by executor.
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

// executorChanged triggers a pass over the ManifestWorks of an executor whose permissions may
// have changed. It does not block.
func (c *Controller) executorChanged(executor types.NamespacedName) {
	keys, err := c.byExecutor.IndexKeys(executorIndex, executor.String())
	if err != nil {
		// New has added the index, so this error does not occur.
		klog.Background().Error(err, "Failed to find the ManifestWorks of an executor", "executor", executor)
		return
	}
	for _, text := range keys {
		key, err := cache.ParseObjectName(text)
		if err != nil {
			continue
		}
		c.mu.Lock()
		c.woken.Insert(key)
		c.mu.Unlock()
		c.loop.Add(key)
	}
}

// dropExecutor removes the state of an executor, unless the executor is empty or a ManifestWork
// still names it.
func (c *Controller) dropExecutor(executor types.NamespacedName) {
	if executor == (types.NamespacedName{}) {
		return
	}
	if keys, err := c.byExecutor.IndexKeys(executorIndex, executor.String()); err == nil && len(keys) == 0 {
		c.executors.Forget(executor)
		// A ManifestWork that named it in the meantime would otherwise miss changes of its
		// permissions.
		c.executorChanged(executor)
	}
}

// takeWoken reports whether the executor of a ManifestWork has changed since the last call.
func (c *Controller) takeWoken(key cache.ObjectName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	woken := c.woken.Has(key)
	c.woken.Delete(key)
	return woken
}

// outdated reports whether the ManifestWork was deleted, or the permissions of its executor have
// changed since it was admitted. The API server checks the permissions of an impersonated executor
// with each request. It does not check them if the agent acts as itself for the executor.
func (p *pass) outdated() bool {
	if p.schedule.ending(p.key) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acting && p.woken.Has(p.key)
}

// isDenied reports whether an error is caused by missing permissions.
func isDenied(err error) bool {
	var refusal *Refusal
	return apierrors.IsForbidden(err) || errors.As(err, &refusal)
}

// targets returns the objects of a ManifestWork. Complete objects are only read.
func targets(work *workv1.ManifestWork, items []*decide.Item) []Target {
	frozen := decide.WorkComplete(work, items)
	var targets []Target
	for _, it := range items {
		if it.Object == nil {
			continue
		}
		strategy := it.Config.Strategy.Type
		if frozen || decide.ItemComplete(work, it) {
			strategy = workv1.UpdateStrategyTypeReadOnly
		}
		targets = append(targets, Target{
			Ordinal: it.Ordinal, Resource: it.GVR, Namespace: it.Namespace, Name: it.Name, Object: it.Object,
			Strategy: strategy, Removed: !it.Orphan && strategy != workv1.UpdateStrategyTypeReadOnly,
		})
	}
	return targets
}

// refuse reports a ManifestWork that is not allowed to act. The applied objects stay, but they are
// neither read nor watched.
func (c *Controller) refuse(ctx context.Context, p *pass, refusal *Refusal) (outcome, error) {
	c.watches.track(p.key, nil)
	p.st.denied = true
	// Previous results must not be reported until the objects have been read again.
	p.st.items = map[decide.ObjectID]*itemState{}
	frozen := decide.WorkComplete(p.work, p.items)
	for i, it := range p.items {
		if it.Err != nil {
			p.results[i].Err = it.Err
			continue
		}
		complete := decide.ItemComplete(p.work, it)
		p.results[i] = status.Result{Err: errors.New(cmp.Or(refusal.Manifests[i], refusal.Message)), Frozen: frozen || complete}
		if complete {
			// Without this condition, a completed job would run again when the permission is
			// granted.
			p.results[i].Rules = []metav1.Condition{{
				Type: workv1.WorkComplete, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated,
				Message: "The object was complete when it was last read",
			}}
		}
	}
	return outcome{state: stateRefused, again: resyncPeriod}, errors.Join(c.keepRecord(ctx, p.work, p.st), c.report(ctx, p.st, p.work, p.items, p.results, frozen))
}

// unadmitted reports a ManifestWork whose permissions are unknown. Nothing is written.
func (c *Controller) unadmitted(ctx context.Context, p *pass, err error) (outcome, error) {
	p.st.denied = true
	err = fmt.Errorf("not applied: the permissions of the executor are unknown: %w", err)
	if ctx.Err() != nil || isConnectionError(err) {
		return outcome{}, err
	}
	return outcome{state: stateFailed}, errors.Join(err, c.report(ctx, p.st, p.work, p.items, skippedAll(p.st, p.items, err), decide.WorkComplete(p.work, p.items)))
}

// acts reports whether the pass will read or write any object. It has no side effects.
func (p *pass) acts(ordered []*decide.Item) bool {
	record := p.cachedRecord(p.work.Name, p.st)
	if record == nil || record.DeletionTimestamp != nil || record.UID != p.st.owner {
		return true
	}
	p.applier = &apply.Applier{Guard: p.guard(p.work, record)}
	defer func() { p.applier, p.results = nil, make([]status.Result, len(p.results)) }()
	for _, it := range ordered {
		if it.Err != nil {
			p.results[it.Ordinal].Err = it.Err
			continue
		}
		state := p.st.items[it.ID()]
		if state == nil || state.hash != it.Hash {
			return true
		}
		missing := p.missingRole(it)
		if missing == nil && state.unbound() || p.due(it, state, missing) {
			return true
		}
		p.results[it.Ordinal] = state.result
	}
	return false
}

// mayReplace returns an error if the executor is not allowed to delete a binding. Admission checks
// the permission to delete only for objects that are removed with the ManifestWork.
func (p *pass) mayReplace(ctx context.Context, it *decide.Item) error {
	asked := targets(p.work, p.items)
	for i := range asked {
		asked[i].Removed = asked[i].Removed || asked[i].Ordinal == it.Ordinal
	}
	_, err := p.executors.Admit(ctx, AdmitRequest{Work: p.work, Targets: asked, Acting: true})
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return &Refusal{Message: "the role of a binding is immutable, so the binding has to be replaced: " + cmp.Or(refusal.Manifests[it.Ordinal], refusal.Message)}
	}
	return err
}
