package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	// admittedFor is the time after which permissions are checked again even if nothing is written.
	// With the jitter of half of it and the age of answers, a lost permission is reported after a minute
	// at most.
	admittedFor = 30 * time.Second
	// firstRecheck is the delay after which a refused ManifestWork is checked again. The delays grow
	// to admittedFor.
	firstRecheck = time.Second
)

// admit returns the client that reads and writes the objects of the ManifestWork. It checks the
// permissions of the executor if the ManifestWork has changed, or if the last check is too old.
// Before the first write, mayWrite checks them in any case.
func (p *pass) admit(ctx context.Context) (dynamic.Interface, error) {
	executor, named := ExecutorOf(p.work)
	targets := targets(p.work, p.items)
	known := p.st.admitted
	if known.client != nil && known.generation == p.work.Generation && known.executor == executor && known.targets == len(targets) && p.started.Before(known.until) {
		p.soon(known.until.Sub(p.started))
		return known.client, nil
	}
	client, err := p.Executors.Admit(ctx, AdmitRequest{Work: p.work, Targets: targets})
	p.st.admitted, p.checked = admission{}, true
	if !named {
		return client, err
	}
	p.soon(admittedFor)
	p.st.admitted.until = p.now().Add(admittedFor)
	if err == nil {
		p.st.refused = time.Time{}
		p.st.admitted = admission{client: client, generation: p.work.Generation, executor: executor, targets: len(targets), until: p.st.admitted.until}
	}
	return client, err
}

// mayWrite is called before each write. It returns an error, which ends the pass, if the executor lacks
// permissions just before the first write of the pass, or if they are unknown.
func (p *pass) mayWrite(ctx context.Context) error {
	if !p.checked {
		if _, err := p.Executors.Admit(ctx, AdmitRequest{Work: p.work, Targets: targets(p.work, p.items)}); err != nil {
			p.denied = err
			return err
		}
	}
	p.checked, p.writing = true, true
	return nil
}

// recheck returns an error, which ends the pass, if the cluster has refused a request for an item because
// the executor lacks permissions, or if they are unknown. Quotas and webhooks refuse requests too, so the
// permissions for all items are only checked if those for this one are lost.
func (p *pass) recheck(ctx context.Context, it *decide.Item) error {
	all := targets(p.work, p.items)
	own := slices.DeleteFunc(slices.Clone(all), func(target Target) bool { return target.Ordinal != it.Ordinal })
	_, err := p.Executors.Admit(ctx, AdmitRequest{Work: p.work, Targets: own, Fresh: true})
	if errors.As(err, new(*Refusal)) {
		_, err = p.Executors.Admit(ctx, AdmitRequest{Work: p.work, Targets: all, Fresh: true})
	}
	return err
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
func (p *pass) refuse(ctx context.Context, refusal *Refusal) (outcome, error) {
	p.watches.track(p.key, nil)
	if p.st.refused.IsZero() {
		p.st.refused = p.started
	}
	// Previous results must not be reported until the objects have been read again.
	p.st.admitted, p.st.items = admission{}, map[decide.ObjectID]*itemState{}
	p.results = make([]status.Result, len(p.items))
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
	again := min(max(p.now().Sub(p.st.refused), firstRecheck), admittedFor)
	return outcome{state: stateRefused, again: again}, errors.Join(p.keepRecord(ctx, p.work, p.st), p.report(ctx, p.work, p.items, p.results, frozen))
}

// unadmitted reports a ManifestWork that is not allowed to act, or whose permissions are unknown. Nothing
// more is written.
func (p *pass) unadmitted(ctx context.Context, err error) (outcome, error) {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return p.refuse(ctx, refusal)
	}
	err = fmt.Errorf("not applied: the permissions of the executor are unknown: %w", err)
	if ctx.Err() != nil || isConnectionError(err) {
		return outcome{}, err
	}
	return outcome{state: stateFailed}, errors.Join(err, p.report(ctx, p.work, p.items, skippedAll(p.st, p.items, err), decide.WorkComplete(p.work, p.items)))
}

// Executors decides with which permissions ManifestWorks act. The permission to remove objects is
// decided when the objects are applied.
type Executors interface {
	// Admit returns the client that reads and writes the objects of a ManifestWork. If the error is
	// a *Refusal, no object of the ManifestWork is read or written, and the applied objects stay.
	// Other errors are retried.
	Admit(ctx context.Context, request AdmitRequest) (dynamic.Interface, error)
}

// AdmitRequest describes the objects of a pass.
type AdmitRequest struct {
	Work *workv1.ManifestWork
	// Targets are the objects of all manifests that could be resolved.
	Targets []Target
	// Fresh is true if earlier answers about permissions must not be used, because the cluster has
	// refused a request.
	Fresh bool
}

// Target is one object of a ManifestWork.
type Target struct {
	// Ordinal is the index of the manifest in the ManifestWork.
	Ordinal         int
	Resource        schema.GroupVersionResource
	Namespace, Name string
	// Object is the manifest. It must not be changed.
	Object *unstructured.Unstructured
	// Strategy determines which requests apply the object.
	Strategy workv1.UpdateStrategyType
	// Removed is true if the object is removed with the ManifestWork.
	Removed bool
}

// Refusal is the error of a ManifestWork that is not allowed to act.
type Refusal struct {
	// Message is the reason for the ManifestWork as a whole.
	Message string
	// Manifests are the reasons for single manifests, by ordinal. Message applies to the other
	// manifests.
	Manifests map[int]string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// ExecutorOf returns the ServiceAccount of the managed cluster as which a ManifestWork acts, or
// false if the ManifestWork acts as the agent.
func ExecutorOf(work *workv1.ManifestWork) (types.NamespacedName, bool) {
	executor := work.Spec.Executor
	if executor == nil || executor.Subject.ServiceAccount == nil {
		return types.NamespacedName{}, executor != nil
	}
	return types.NamespacedName{Namespace: executor.Subject.ServiceAccount.Namespace, Name: executor.Subject.ServiceAccount.Name}, true
}
