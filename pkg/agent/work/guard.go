package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// A ClusterPermission may be written by somebody who may grant only what they
// hold. The agent holds everything, so the work of a ClusterPermission is
// guarded: it changes and removes the objects that it made and no others, and
// binds nobody to a role under whose name somebody else's is on the cluster.

const (
	// ReasonObjectNotOwned is the reason of Applied for an object that is on the
	// cluster and was not made by the ClusterPermission.
	ReasonObjectNotOwned = "AppliedManifestObjectNotOwned"
	// ReasonRoleNotApplied is the reason of Applied for a binding whose role the
	// ClusterPermission delivers as well, but which is not applied.
	ReasonRoleNotApplied = "AppliedManifestRoleNotApplied"
)

// sharedGrace is how long a binding stays whose role, delivered by several
// ClusterPermissions, has other content than its own one gives. Where all follow
// one role of the hub, each of them is changed a moment before or after the others.
const sharedGrace = 20 * time.Second

// guardedAnnotation marks the AppliedManifestWork of a guarded work. The owner
// reference of the work is not enough to tell: it goes when the
// ClusterPermission is deleted without its work.
const guardedAnnotation = "work.open-cluster-management.io/guarded"

// delivers reports whether a work delivers a ClusterPermission. One that an earlier
// server made tells it by its owner reference only, which goes when the
// ClusterPermission is deleted without its work.
func delivers(work *workv1.ManifestWork) bool {
	if _, marked := work.Annotations[rbacv1alpha1.DeliveredAnnotation]; marked {
		return true
	}
	owner := metav1.GetControllerOf(work)
	if owner == nil || owner.Kind != "ClusterPermission" {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == rbacv1alpha1.GroupName
}

// guarded reports whether a work delivers a ClusterPermission, or did so once.
func guarded(work *workv1.ManifestWork, record *workv1.AppliedManifestWork) bool {
	_, marked := record.Annotations[guardedAnnotation]
	return marked || delivers(work)
}

// notOwnedError is the error of an object that a guarded work leaves alone.
type notOwnedError struct {
	object string
	// shared is whether another work has applied the object.
	shared bool
}

func (e *notOwnedError) Error() string {
	maker := "was not made by this ClusterPermission"
	if e.shared {
		maker = "was made by another work, not by this ClusterPermission"
	}
	return fmt.Sprintf("%s exists on the cluster with other content and %s, so it is left as it is; delete it there, or deliver it under another name", e.object, maker)
}

// roleNotAppliedError is the error of a binding that would bind to something
// else than the role that its work delivers.
type roleNotAppliedError struct {
	role string
	// taken is whether the role on the cluster is somebody else's, shared whether
	// another work has applied it.
	taken, shared bool
}

func (e *roleNotAppliedError) Error() string {
	if e.taken {
		return fmt.Sprintf("nobody is bound: %s on the cluster is not the one of this ClusterPermission; delete it there, or deliver the role under another name", e.role)
	}
	return fmt.Sprintf("nobody is bound while %s of this ClusterPermission is not applied", e.role)
}

// guardReason returns the reason of Applied for an error of a guarded work,
// empty if it is none.
func guardReason(err error) string {
	var notOwned *notOwnedError
	var roleNotApplied *roleNotAppliedError
	switch {
	case errors.As(err, &notOwned):
		return ReasonObjectNotOwned
	case errors.As(err, &roleNotApplied):
		return ReasonRoleNotApplied
	}
	return ""
}

// errGuardedApply is the error of a manifest that a guarded work may not apply
// server-side: such a request does not tell who made the object.
var errGuardedApply = errors.New("the work of a ClusterPermission cannot apply server-side")

// judge finds out whether a guarded work made a live object. If it did not,
// there must be nothing to change.
func (a *applier) judge(t *task, live *unstructured.Unstructured) error {
	if !a.guarded {
		return nil
	}
	t.state.borrowed = !a.made(t, live)
	if !t.state.borrowed || a.asGiven(t, live) {
		return nil
	}
	return &notOwnedError{object: describe(t.meta()), shared: len(recordOwners(live)) > 0}
}

// made reports whether a live object is this work's own. Of the works that own
// an object, the first has made it; when that lets go, the next inherits it.
// An owner reference without a UID on record is that of an object which the
// agent created just before it died.
func (a *applier) made(t *task, live *unstructured.Unstructured) bool {
	if _, adopted := live.GetAnnotations()[AdoptedAnnotation]; adopted {
		return false
	}
	if owners := recordOwners(live); len(owners) > 0 {
		return owners[0].UID == a.owner.UID
	}
	return t.recordedUID != "" && t.recordedUID == live.GetUID()
}

// asGiven reports whether a live object is exactly what the manifest gives, so
// that applying it would overwrite nothing, and it grants nothing else.
func (a *applier) asGiven(t *task, live *unstructured.Unstructured) bool {
	if t.gvk.Group == rbacGroup {
		for _, field := range []string{"aggregationRule", "roleRef", "rules", "subjects"} {
			if _, given := t.object.Object[field]; !given && !empty(live.Object[field]) {
				return false
			}
		}
	}
	return sameObject(live, a.updateContent(t, live))
}

func empty(value any) bool {
	list, isList := value.([]any)
	return value == nil || isList && len(list) == 0
}

// untouched reports whether not even an owner reference is put on a live
// object: it belongs to no work, and must not begin to look as if it did.
func (a *applier) untouched(t *task, live *unstructured.Unstructured) bool {
	return t.state.borrowed && len(recordOwners(live)) == 0
}

// roleKey names a role as a roleRef in a namespace does.
type roleKey struct{ kind, namespace, name string }

func newRoleKey(kind, namespace, name string) roleKey {
	if kind != "Role" {
		namespace = ""
	}
	return roleKey{kind, namespace, name}
}

// rolesOf returns the items that deliver roles, also those that could not be
// resolved. Roles that are only looked at are not delivered.
func rolesOf(items []*item) map[roleKey]*item {
	roles := map[roleKey]*item{}
	for _, it := range items {
		if it.gvk.Group != rbacGroup || it.object != nil && !it.tracked() {
			continue
		}
		key := newRoleKey(it.gvk.Kind, it.namespace, it.name)
		if roles[key] == nil {
			roles[key] = it
		}
	}
	return roles
}

// missingRole returns why a binding of a guarded work must not be applied, nil
// if it may: the role that it binds is to come from the same work and did not.
// Roles are applied before bindings.
func (p *applyPass) missingRole(binding *item) *roleNotAppliedError {
	ref, isBinding := binding.object.Object["roleRef"].(map[string]any)
	if !isBinding || !p.applier.guarded || !binding.tracked() {
		return nil
	}
	kind, _ := ref["kind"].(string)
	name, _ := ref["name"].(string)
	role := p.roles[newRoleKey(kind, binding.namespace, name)]
	if role == nil {
		return nil
	}
	came := p.results[role.ordinal]
	if came.err == nil && came.presence != presenceUnknown {
		return nil
	}
	var notOwned *notOwnedError
	taken := errors.As(came.err, &notOwned)
	return &roleNotAppliedError{role: describe(role.meta()), taken: taken, shared: taken && notOwned.shared}
}

// inGrace reports whether a binding that was applied stays a while, although
// another work has changed its role.
func (p *applyPass) inGrace(state *itemState) bool {
	if state.sharedSince.IsZero() {
		state.sharedSince = p.now()
	}
	left := sharedGrace - p.now().Sub(state.sharedSince)
	if left <= 0 {
		return false
	}
	p.soon(left)
	return true
}

// unbind keeps a binding from binding to a role that is not the work's. One
// that is on the cluster already stays as it is while the role is only not
// known to be applied, and is let go of when the role is somebody else's. It
// reports whether it has looked at the binding.
func (p *applyPass) unbind(ctx context.Context, it *item, state *itemState, why *roleNotAppliedError) bool {
	if state.applied && state.result.err == nil && (!why.taken || why.shared && p.inGrace(state)) {
		return false
	}
	seen, watched := p.watches.seen(it.ref())
	if last, same := state.result.err.(*roleNotAppliedError); same && *last == *why && watched && seen == state.seen {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	var err error = why
	if why.taken {
		if _, failed := p.remove(ctx, p.applier.owner, p.entry(it), letGo{orphan: func(objectID) bool { return false }}); failed != nil {
			p.checkReachable(failed)
			err = fmt.Errorf("%s; the binding on the cluster cannot be removed: %w", why, failed)
		}
	}
	t := &task{item: it, recordedUID: types.UID(p.entry(it).UID)}
	live, readErr := p.read(ctx, t)
	*state = itemState{hash: it.hash, borrowed: live != nil && !p.applier.made(t, live)}
	p.setResult(ctx, it, state, live, err, readErr == nil)
	return true
}
