package clusterpermission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var specPath = field.NewPath("spec")

// renderer collects the objects of one ClusterPermission in one pass through its spec.
type renderer struct {
	cp     *v1alpha1.ClusterPermission
	in     *Inputs
	budget budget
	// byKey contains the objects, and byKind those of each kind in the order in which they were added.
	byKey  map[ObjectKey]*object
	byKind map[string][]*object
	// selections caches the sorted names of the namespaces that a selector matches.
	selections map[string][]string
	// names contains the parts of the spec that define bindings.
	names map[ObjectKey]claim
	// absent contains, by name, the reasons why accounts have no ServiceAccount.
	absent map[string]string
	result *Result
}

// claim is the part of the spec that defines a binding.
type claim struct {
	path    string
	roleRef rbacv1.RoleRef
}

func newRenderer(cp *v1alpha1.ClusterPermission, in *Inputs) *renderer {
	return &renderer{
		cp:         cp,
		in:         in,
		budget:     budget{limitBytes: in.SizeLimitBytes},
		byKey:      map[ObjectKey]*object{},
		byKind:     map[string][]*object{},
		selections: map[string][]string{},
		names:      map[ObjectKey]claim{},
		absent:     map[string]string{},
		result:     &Result{},
	}
}

func (r *renderer) collect(spec *v1alpha1.ClusterPermissionSpec) {
	if spec.ClusterRole != nil {
		key := ObjectKey{Kind: kindClusterRole, Name: r.cp.Name}
		r.add(key, nil, newRules(spec.ClusterRole.Rules))
	}
	if spec.ClusterRoleBinding != nil {
		r.clusterRoleBinding(spec.ClusterRoleBinding, specPath.Child("clusterRoleBinding"))
	}
	for i, binding := range ptr.Deref(spec.ClusterRoleBindings, nil) {
		r.clusterRoleBinding(&binding, specPath.Child("clusterRoleBindings").Index(i))
	}
	for i, role := range ptr.Deref(spec.Roles, nil) {
		r.role(&role, specPath.Child("roles").Index(i))
	}
	r.claimBindings(ptr.Deref(spec.RoleBindings, nil))
	for i, binding := range ptr.Deref(spec.RoleBindings, nil) {
		r.roleBinding(&binding, specPath.Child("roleBindings").Index(i))
	}
	for i, ref := range ptr.Deref(spec.RoleRefs, nil) {
		r.hubRole(ref, specPath.Child("roleRefs").Index(i))
	}
	for _, name := range slices.Sorted(maps.Keys(r.absent)) {
		r.result.AbsentSubjects = append(r.result.AbsentSubjects, r.absent[name])
	}
}

func (r *renderer) clusterRoleBinding(binding *v1alpha1.ClusterRoleBinding, fldPath *field.Path) {
	roleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindClusterRole, Name: r.cp.Name}
	if ref := binding.RoleRef; ref != nil {
		roleRef = *ref
	}
	key := ObjectKey{Kind: kindClusterRoleBinding, Name: r.nameOr(binding.Name)}
	// Validation rejects two bindings of one name.
	if holder, claimed := r.names[key]; claimed && holder.roleRef != roleRef {
		r.leaveOut(fldPath, fmt.Sprintf("ClusterRoleBinding %s conflicts with %s", key.Name, holder.path))
		return
	}
	r.names[key] = claim{path: fldPath.String(), roleRef: roleRef}
	if subjects := r.subjects(binding.Subject, binding.Subjects, fldPath); len(subjects) > 0 {
		r.add(key, &roleRef, newSubjects(subjects))
	}
}

func (r *renderer) role(role *v1alpha1.Role, fldPath *field.Path) {
	rules := newRules(role.Rules)
	for _, namespace := range r.namespaces(role.Namespace, role.NamespaceSelector, fldPath) {
		key := ObjectKey{Kind: kindRole, Namespace: namespace, Name: r.cp.Name}
		r.add(key, nil, rules)
	}
}

// manifests encodes the collected objects. If validate is true, it adds the other roles
// that bindings refer to as read-only manifests, so that the agent reports whether they exist.
func (r *renderer) manifests(validate bool) (workv1.ManifestsTemplate, []workv1.ManifestConfigOption) {
	if r.budget.exceeded() {
		return workv1.ManifestsTemplate{}, nil
	}
	objects := r.inOrder()
	var configs []workv1.ManifestConfigOption
	if validate {
		for _, key := range r.missingRoles() {
			objects = append(objects, newObject(key, nil, nil))
			configs = append(configs, readOnly(key))
		}
	}
	// Up to here the budget contains the first part of each object only.
	r.budget.bytes = 0
	manifests := make([]workv1.Manifest, 0, len(objects))
	for _, obj := range objects {
		if !r.afford(obj) {
			break
		}
		manifests = append(manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: obj.manifest()}})
	}
	return workv1.ManifestsTemplate{Manifests: manifests}, configs
}

// afford adds the cost of an object to the budget, and reports whether it is within the limits.
func (r *renderer) afford(obj *object) bool {
	if obj.content != nil {
		r.budget.steps += obj.content.steps()
	}
	if r.budget.exceeded() {
		return false
	}
	r.budget.bytes += obj.sizeBytes()
	r.budget.manifests++
	return !r.budget.exceeded()
}

func readOnly(role ObjectKey) workv1.ManifestConfigOption {
	id := workv1.ResourceIdentifier{Group: new(rbacv1.GroupName), Resource: "clusterroles", Name: role.Name}
	if role.Kind == kindRole {
		id.Resource, id.Namespace = "roles", &role.Namespace
	}
	return workv1.ManifestConfigOption{
		ResourceIdentifier: id,
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
	}
}

func (r *renderer) nameOr(name string) string {
	return cmp.Or(name, r.cp.Name)
}

func (r *renderer) leaveOut(fldPath *field.Path, reason string) {
	r.result.Undelivered = append(r.result.Undelivered, Undelivered{Path: fldPath.String(), Reason: reason})
}
