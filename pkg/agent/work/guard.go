package work

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// guard returns the guard of a ManifestWork, or nil if it does not deliver a ClusterPermission and never did.
func (c *Controller) guard(work *workv1.ManifestWork, record *workv1.AppliedManifestWork) *decide.Guard {
	if !decide.IsGuarded(record) && !decide.Delivers(work) {
		return nil
	}
	return &decide.Guard{Owner: decide.OwnerRef(record), Record: c.recordOf}
}

// recordOf returns the record of an owner reference, or nil. A record that is not known yet triggers a
// pass when its ManifestWork writes the object.
func (c *Controller) recordOf(owner metav1.OwnerReference) *workv1.AppliedManifestWork {
	record, err := c.records.Get(owner.Name)
	if err != nil || record.UID != owner.UID {
		return nil
	}
	return record
}

// held reports whether another ManifestWork applies a live object. If the object stays when that
// ManifestWork is deleted, it has no owner reference. Only records of this agent contain the delete option.
func (p *pass) held(id decide.ObjectID, live *unstructured.Unstructured) bool {
	records, _ := p.records.List(labels.Everything()) // a lister does not fail
	return slices.ContainsFunc(records, func(record *workv1.AppliedManifestWork) bool {
		if record.UID == p.record.UID || decide.EntryOf(record, id) == nil {
			return false
		}
		if record.Spec.AgentID != p.AgentID || decide.HasOwner(live, decide.OwnerRef(record)) {
			return true
		}
		options, err := removalOptions(record, nil)
		return err != nil || options.Orphan(id)
	})
}

// missingRole returns an error if a binding of a guarded ManifestWork must not be applied, or nil
// otherwise. Roles are applied before bindings.
func (p *pass) missingRole(binding *decide.Item) *decide.RoleNotAppliedError {
	if p.applier.Guard == nil {
		return nil
	}
	role := p.roles.Bound(binding)
	if role == nil {
		return nil
	}
	result := p.results[role.Ordinal]
	return decide.MissingRole(role, result.Presence != status.Unknown, result.Err)
}

// unbind prevents a binding to a role that its ManifestWork has not applied. An existing binding
// stays while it is unknown whether the role is applied (see due). It is removed if another writer
// created the role.
func (p *pass) unbind(ctx context.Context, it *decide.Item, state *itemState, missing *decide.RoleNotAppliedError) attempt {
	t := &apply.Task{Item: it, RecordedUID: p.recordedUID(it, state)}
	var err error = missing
	if recorded := decide.EntryOf(p.record, it.ID()); missing.Foreign && recorded != nil {
		entry := *recorded
		entry.UID = string(t.RecordedUID)
		if _, failed := p.remover.Remove(ctx, p.record, []workv1.AppliedManifestResourceMeta{entry}, removal.Options{}); failed != nil {
			p.checkReachable(failed)
			err = fmt.Errorf("%w; the existing binding cannot be removed: %w", missing, failed)
		}
	}
	live, readErr := p.applier.Read(ctx, t)
	*state = itemState{hash: it.Hash, round: state.round}
	state.Borrowed = live != nil && !p.applier.Guard.Created(it.ID(), t.RecordedUID, live)
	return attempt{live: live, known: readErr == nil, err: err}
}
