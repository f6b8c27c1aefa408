package work

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/validation"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// A ClusterPermission may be written by somebody who may grant only what they
// hold. The agent holds everything, so the work of a ClusterPermission is
// guarded: it changes and removes the objects that it made and no others, and
// binds nobody to a role under whose name somebody else's is on the cluster.

// maxAtoms bounds what comparing two roles costs; a rule of a few kilobytes allows
// millions of combinations of verb, group and resource.
const maxAtoms = 100_000

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

// unguarded reports whether the record that an owner reference names is of a work
// that may take objects over. One that is not known yet brings an event by
// writing the object, and one that is gone writes nothing.
func (c *Controller) unguarded(owner metav1.OwnerReference) bool {
	record, err := c.records.Get(owner.Name)
	if err != nil || record.UID != owner.UID {
		return false
	}
	_, marked := record.Annotations[guardedAnnotation]
	return !marked
}

// notOwnedError is the error of an object that a guarded work leaves alone.
type notOwnedError struct {
	object string
	// shared is whether another work has applied the object, contested whether
	// somebody changes it again and again.
	shared, contested bool
	// harmless is whether the object is a role of another work that grants nothing
	// beyond what the manifest gives.
	harmless bool
}

func (e *notOwnedError) Error() string {
	switch {
	case e.contested:
		return fmt.Sprintf("%s is changed again and again by somebody else, whose it is as long as that goes on; stop them, or deliver it under another name", e.object)
	case e.shared:
		return fmt.Sprintf("%s exists on the cluster with other content and was made by another work, not by this ClusterPermission, so it is left as it is; delete on the hub what delivers it, or deliver it under another name", e.object)
	}
	return fmt.Sprintf("%s exists on the cluster with other content and was not made by this ClusterPermission, so it is left as it is; delete it there, or deliver it under another name", e.object)
}

// roleNotAppliedError is the error of a binding that would bind to something
// else than the role that its work delivers.
type roleNotAppliedError struct {
	role string
	// taken is whether the role on the cluster is somebody else's.
	taken bool
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
		return workv1.ReasonAppliedManifestObjectNotOwned
	case errors.As(err, &roleNotApplied):
		return workv1.ReasonAppliedManifestRoleNotApplied
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
	shared := len(recordOwners(live)) > 0
	return &notOwnedError{object: describe(t.meta()), shared: shared, harmless: shared && grantsNoMore(live, t.object)}
}

// grantsNoMore reports whether a role grants nothing beyond what another gives.
// Where several ClusterPermissions deliver one role of the hub, and it changes, each
// has the new content a moment before or after the others.
func grantsNoMore(live, given *unstructured.Unstructured) bool {
	var has, may rbacv1.ClusterRole
	converter := runtime.DefaultUnstructuredConverter
	if live.GroupVersionKind().Group != rbacGroup || live.Object["aggregationRule"] != nil ||
		converter.FromUnstructured(live.Object, &has) != nil || converter.FromUnstructured(given.Object, &may) != nil {
		return false
	}
	atoms := 0
	for _, rule := range has.Rules {
		atoms += len(rule.Verbs) * (len(rule.APIGroups)*len(rule.Resources)*max(1, len(rule.ResourceNames)) + len(rule.NonResourceURLs))
	}
	if atoms*max(1, len(may.Rules)) > maxAtoms {
		return false
	}
	covered, _ := validation.Covers(may.Rules, has.Rules)
	return covered
}

// contested is the error of a role of a guarded work that somebody else changes
// again and again; nil if the manifest is none. Whoever binds it now binds theirs.
func (p *applyPass) contested(it *item) error {
	if !p.applier.guarded || it.gvk.Group != rbacGroup || it.object.Object["roleRef"] != nil {
		return nil
	}
	return &notOwnedError{object: describe(it.meta()), contested: true}
}

// made reports whether a live object is this work's own. Of the works that own
// an object, the first has made it, unless one that is not guarded has taken it
// over; when that lets go, the next inherits it.
// An owner reference without a UID on record is that of an object which the
// agent created just before it died.
func (a *applier) made(t *task, live *unstructured.Unstructured) bool {
	if _, adopted := live.GetAnnotations()[AdoptedAnnotation]; adopted {
		return false
	}
	if owners := recordOwners(live); len(owners) > 0 {
		return owners[0].UID == a.owner.UID && !slices.ContainsFunc(owners[1:], a.unguarded)
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
	if taken && notOwned.harmless {
		return nil
	}
	return &roleNotAppliedError{role: describe(role.meta()), taken: taken}
}

// unbind keeps a binding from binding to a role that is not the work's. One
// that is on the cluster already stays as it is while the role is only not
// known to be applied (see due), and is let go of when the role is somebody else's.
func (p *applyPass) unbind(ctx context.Context, it *item, state *itemState, why *roleNotAppliedError) {
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	var err error = why
	if why.taken {
		if failed := p.remove(ctx, p.applier.owner, p.entry(it), letGo{orphan: func(objectID) bool { return false }}).err; failed != nil {
			p.checkReachable(failed)
			err = fmt.Errorf("%s; the binding on the cluster cannot be removed: %w", why, failed)
		}
	}
	t := &task{item: it, recordedUID: types.UID(p.entry(it).UID)}
	live, readErr := p.read(ctx, t)
	*state = itemState{hash: it.hash, borrowed: live != nil && !p.applier.made(t, live)}
	p.setResult(ctx, it, state, live, err, readErr == nil)
}
