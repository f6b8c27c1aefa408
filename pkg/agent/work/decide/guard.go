package decide

import (
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// The author of a ClusterPermission may grant only permissions that they hold, but the agent that
// applies it holds all permissions. So the ManifestWork of a ClusterPermission is guarded. It
// changes and removes only objects that it created. If another writer created a role with the name
// of one of its roles, it binds no subject to that role.

// GuardedAnnotation marks the AppliedManifestWork of a guarded ManifestWork. The owner reference
// alone does not suffice, because it is removed if the ClusterPermission is deleted without the
// ManifestWork.
const GuardedAnnotation = "work.open-cluster-management.io/guarded"

// Delivers reports whether a ManifestWork delivers a ClusterPermission. Builds of the server
// before v0.1.0 set only the owner reference, not the annotation.
func Delivers(work *workv1.ManifestWork) bool {
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

// Guarded reports whether a ManifestWork delivers a ClusterPermission, or has delivered one before.
func Guarded(work *workv1.ManifestWork, record *workv1.AppliedManifestWork) bool {
	return IsGuarded(record) || Delivers(work)
}

// IsGuarded reports whether an AppliedManifestWork belongs to a guarded ManifestWork.
func IsGuarded(record *workv1.AppliedManifestWork) bool {
	_, marked := record.Annotations[GuardedAnnotation]
	return marked
}

// NotOwnedError is the error of an object that a guarded ManifestWork must not change.
type NotOwnedError struct {
	object string
	// shared is true if another ManifestWork has applied the object. contested is true if another
	// writer changes it repeatedly.
	shared, contested bool
	// Harmless is true if the object is a role of another ManifestWork that grants no permissions
	// beyond the manifest.
	Harmless bool
}

func (e *NotOwnedError) Error() string {
	switch {
	case e.contested:
		return fmt.Sprintf("another writer changes %s repeatedly, so its rules differ from this ClusterPermission; stop the writer, or deliver the role under another name", e.object)
	case e.shared:
		return fmt.Sprintf("%s already exists with different content and was created by another ManifestWork, so it is not changed; delete the object on the hub that delivers it, or deliver it under another name", e.object)
	}
	return fmt.Sprintf("%s already exists with different content and was not created by this ClusterPermission, so it is not changed; delete it on the managed cluster, or deliver it under another name", e.object)
}

// RoleNotAppliedError is the error of a binding to a role that its ManifestWork contains and has
// not applied.
type RoleNotAppliedError struct {
	role string
	// Foreign is true if the ManifestWork did not create the role on the cluster.
	Foreign bool
}

func (e *RoleNotAppliedError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("not bound: %s on the managed cluster was not created by this ClusterPermission; delete it there, or deliver the role under another name", e.role)
	}
	return fmt.Sprintf("not bound: %s of this ClusterPermission is not applied yet", e.role)
}

// GuardReason returns the reason of the condition Applied for an error of a guarded
// ManifestWork, or an empty string for any other error.
func GuardReason(err error) string {
	var notOwned *NotOwnedError
	var roleNotApplied *RoleNotAppliedError
	switch {
	case errors.As(err, &notOwned):
		return workv1.ReasonAppliedManifestObjectNotOwned
	case errors.As(err, &roleNotApplied):
		return workv1.ReasonAppliedManifestRoleNotApplied
	}
	return ""
}

// Guard decides which objects a guarded ManifestWork may change. A nil Guard belongs to any other
// ManifestWork and allows all changes.
type Guard struct {
	// Owner refers to the AppliedManifestWork.
	Owner metav1.OwnerReference
	// Record returns the AppliedManifestWork of an owner reference, or nil if it is not known.
	Record func(metav1.OwnerReference) *workv1.AppliedManifestWork
}

// Judge decides whether the ManifestWork may change a live object. recorded is the UID in the
// AppliedManifestWork. borrowed is true if the ManifestWork did not create the object. In that case,
// Judge returns an error if applying the manifest would change the object.
func (g *Guard) Judge(it *Item, recorded types.UID, live *unstructured.Unstructured) (borrowed bool, err error) {
	if g == nil || g.Created(it.ID(), recorded, live) {
		return false, nil
	}
	if matches(it, live) {
		return true, nil
	}
	shared := len(RecordOwners(live)) > 0
	return true, &NotOwnedError{object: Describe(it.Meta()), shared: shared, Harmless: shared && grantsNoMore(live, it.Object)}
}

// grantsNoMore reports whether a role grants no permissions beyond the role of a manifest. If
// several ClusterPermissions deliver one role of the hub and the role changes, their manifests
// receive the new content at slightly different times.
func grantsNoMore(live, wanted *unstructured.Unstructured) bool {
	var has, may rbacv1.ClusterRole
	converter := runtime.DefaultUnstructuredConverter
	if live.GroupVersionKind().Group != rbacv1.GroupName || live.Object["aggregationRule"] != nil ||
		converter.FromUnstructured(live.Object, &has) != nil || converter.FromUnstructured(wanted.Object, &may) != nil {
		return false
	}
	missing, compared := rbac.NewBudget().Uncovered(may.Rules, has.Rules)
	return compared && len(missing) == 0
}

// Contested returns the error of a role of a guarded ManifestWork that another writer changes
// repeatedly, or nil if the manifest is not a role. A binding would grant the rules of the other
// writer.
func (g *Guard) Contested(it *Item) error {
	if g == nil || it.GVK.Group != rbacv1.GroupName || it.Object.Object["roleRef"] != nil {
		return nil
	}
	return &NotOwnedError{object: Describe(it.Meta()), contested: true}
}

// Created reports whether the ManifestWork created a live object. The UID is recorded only of an
// object that it created, and subjects of a ClusterPermission, who may be allowed to change the
// metadata of the object, cannot change the record. So a recorded object belongs to the ManifestWork
// until another one has taken it over, whatever its annotations and owner references are.
// The first ManifestWork among the owners of an object without a recorded UID created it just before
// the agent stopped, or inherits it from an owner that has released it.
func (g *Guard) Created(id ObjectID, recorded types.UID, live *unstructured.Unstructured) bool {
	if g == nil {
		return true
	}
	owners := RecordOwners(live)
	own := slices.IndexFunc(owners, sameUID(g.Owner))
	for i, owner := range owners {
		if i != own && g.takenOver(owner, own < 0 || i < own, id, live.GetUID()) {
			return false
		}
	}
	if recorded != "" && recorded == live.GetUID() {
		return true
	}
	_, adopted := live.GetAnnotations()[AdoptedAnnotation]
	return own == 0 && !adopted
}

// takenOver reports whether an object belongs to the ManifestWork of another owner reference: one that
// is not guarded, or an earlier owner that has created it. An AppliedManifestWork that does not list
// the object does not own it.
func (g *Guard) takenOver(owner metav1.OwnerReference, earlier bool, id ObjectID, uid types.UID) bool {
	record := g.Record(owner)
	if record == nil {
		return false
	}
	entry := EntryOf(record, id)
	return entry != nil && (!IsGuarded(record) || earlier && entry.UID == string(uid))
}

// matches reports whether applying the manifest would not change a live object, and the object
// grants no other permissions.
func matches(it *Item, live *unstructured.Unstructured) bool {
	wanted := Enforce(live, it.Object)
	if it.GVK.Group == rbacv1.GroupName {
		revoke(wanted, it.Object, "aggregationRule", "roleRef", "rules", "subjects")
	}
	return SameObject(live, wanted)
}

// Enforce is like the function Enforce, for an object of the ManifestWork. The object grants exactly what the
// manifest grants, whatever else it granted before: its managed fields, which its subjects may be allowed to
// change, do not matter.
func (g *Guard) Enforce(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	result := Enforce(live, want)
	if g == nil || want.GroupVersionKind().Group != rbacv1.GroupName {
		return result
	}
	if want.Object["aggregationRule"] == nil { // otherwise a controller of the cluster computes the rules
		revoke(result, want, "aggregationRule", "rules")
	}
	revoke(result, want, "subjects")
	return result
}

// revoke removes the fields from an object that the manifest does not set.
func revoke(object, manifest *unstructured.Unstructured, fields ...string) {
	for _, field := range fields {
		if _, set := manifest.Object[field]; !set {
			delete(object.Object, field)
		}
	}
}

// roleKey identifies a role like a roleRef in a namespace.
type roleKey struct{ kind, namespace, name string }

func newRoleKey(kind, namespace, name string) roleKey {
	if kind != "Role" {
		namespace = ""
	}
	return roleKey{kind, namespace, name}
}

// Roles are the items of a ManifestWork that contain roles.
type Roles map[roleKey]*Item

// RolesOf returns the items that contain roles, including unresolved items. It omits roles with
// update strategy ReadOnly, because they are not delivered.
func RolesOf(items []*Item) Roles {
	roles := Roles{}
	for _, it := range items {
		if it.GVK.Group != rbacv1.GroupName || it.Object != nil && !it.Tracked() {
			continue
		}
		key := newRoleKey(it.GVK.Kind, it.Namespace, it.Name)
		if roles[key] == nil {
			roles[key] = it
		}
	}
	return roles
}

// Bound returns the item of the role that a binding refers to. It returns nil if there is none or
// the item is not a binding.
func (r Roles) Bound(binding *Item) *Item {
	ref, isBinding := binding.Object.Object["roleRef"].(map[string]any)
	if !isBinding || !binding.Tracked() {
		return nil
	}
	kind, _ := ref["kind"].(string)
	name, _ := ref["name"].(string)
	return r[newRoleKey(kind, binding.Namespace, name)]
}

// MissingRole returns an error if a binding to a role of its ManifestWork must not be applied, or
// nil otherwise. applied is true if the role was applied, and err is the error of the role.
func MissingRole(role *Item, applied bool, err error) *RoleNotAppliedError {
	if applied && err == nil {
		return nil
	}
	var notOwned *NotOwnedError
	foreign := errors.As(err, &notOwned)
	if foreign && notOwned.Harmless {
		return nil
	}
	return &RoleNotAppliedError{role: Describe(role.Meta()), Foreign: foreign}
}

// Describe returns the kind and name of an object for messages.
func Describe(about workv1.ManifestResourceMeta) string {
	if about.Kind == "" {
		return fmt.Sprintf("manifest %d", about.Ordinal)
	}
	if about.Namespace == "" {
		return about.Kind + " " + about.Name
	}
	return about.Kind + " " + about.Namespace + "/" + about.Name
}
