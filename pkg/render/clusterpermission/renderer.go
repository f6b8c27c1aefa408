package clusterpermission

import (
	"encoding/json"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	kindRole               = "Role"
	kindClusterRole        = "ClusterRole"
	kindRoleBinding        = "RoleBinding"
	kindClusterRoleBinding = "ClusterRoleBinding"
)

const (
	selectorReason = "this release does not deliver by namespaceSelector"
	roleRefsReason = "this release does not deliver roles of the hub"
)

var specPath = field.NewPath("spec")

type objectKey struct {
	kind, namespace, name string
}

// renderer gathers the manifests of one ClusterPermission.
type renderer struct {
	cp          *v1alpha1.ClusterPermission
	accounts    Accounts
	manifests   []workv1.Manifest
	configs     []workv1.ManifestConfigOption
	undelivered []Undelivered
	errs        field.ErrorList

	seen map[objectKey]bool
	// bound are the roles that delivered bindings refer to, in their order.
	bound []objectKey
}

// render goes by the order in which the managed cluster should get the objects:
// a role before the bindings that refer to it, cluster-scoped before namespaced.
func (r *renderer) render() {
	spec := &r.cp.Spec
	if spec.ClusterRole != nil {
		r.add(objectKey{kind: kindClusterRole, name: r.cp.Name}, specPath.Child("clusterRole"),
			&rbacv1.ClusterRole{Rules: rules(spec.ClusterRole.Rules)})
	}
	if spec.ClusterRoleBinding != nil {
		r.clusterRoleBinding(spec.ClusterRoleBinding, specPath.Child("clusterRoleBinding"))
	}
	if spec.ClusterRoleBindings != nil {
		for i := range *spec.ClusterRoleBindings {
			r.clusterRoleBinding(&(*spec.ClusterRoleBindings)[i], specPath.Child("clusterRoleBindings").Index(i))
		}
	}
	if spec.Roles != nil {
		for i := range *spec.Roles {
			r.role(&(*spec.Roles)[i], specPath.Child("roles").Index(i))
		}
	}
	if spec.RoleBindings != nil {
		for i := range *spec.RoleBindings {
			r.roleBinding(&(*spec.RoleBindings)[i], specPath.Child("roleBindings").Index(i))
		}
	}
	if spec.RoleRefs != nil {
		for i := range *spec.RoleRefs {
			r.leaveOut(specPath.Child("roleRefs").Index(i), roleRefsReason)
		}
	}
	if spec.Validate != nil && *spec.Validate {
		r.observeBoundRoles()
	}
}

func (r *renderer) clusterRoleBinding(binding *v1alpha1.ClusterRoleBinding, fldPath *field.Path) {
	roleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindClusterRole, Name: r.cp.Name}
	if ref := binding.RoleRef; ref != nil {
		r.require(ref.APIGroup, fldPath.Child("roleRef", "apiGroup"))
		r.requireKind(ref.Kind, fldPath.Child("roleRef", "kind"), kindClusterRole)
		r.require(ref.Name, fldPath.Child("roleRef", "name"))
		roleRef = *ref
	}
	subjects := r.subjects(binding.Subject, binding.Subjects, fldPath)
	if len(subjects) == 0 {
		return
	}
	r.add(objectKey{kind: kindClusterRoleBinding, name: r.nameOr(binding.Name)}, fldPath.Child("name"),
		&rbacv1.ClusterRoleBinding{RoleRef: roleRef, Subjects: subjects})
	r.bound = append(r.bound, objectKey{kind: roleRef.Kind, name: roleRef.Name})
}

func (r *renderer) role(role *v1alpha1.Role, fldPath *field.Path) {
	if !r.placed(role.Namespace, role.NamespaceSelector, fldPath) {
		return
	}
	r.add(objectKey{kind: kindRole, namespace: role.Namespace, name: r.cp.Name}, fldPath.Child("namespace"),
		&rbacv1.Role{Rules: rules(role.Rules)})
}

func (r *renderer) roleBinding(binding *v1alpha1.RoleBinding, fldPath *field.Path) {
	ref := binding.RoleRef
	r.requireKind(ref.Kind, fldPath.Child("roleRef", "kind"), kindClusterRole, kindRole)
	if (ref.APIGroup == "") != (ref.Name == "") {
		r.require(ref.APIGroup, fldPath.Child("roleRef", "apiGroup"))
		r.require(ref.Name, fldPath.Child("roleRef", "name"))
	}
	if !r.placed(binding.Namespace, binding.NamespaceSelector, fldPath) {
		return
	}
	subjects := r.subjects(binding.Subject, binding.Subjects, fldPath)
	if len(subjects) == 0 {
		return
	}
	roleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: ref.Kind, Name: r.nameOr(ref.Name)}
	if ref.APIGroup != "" {
		roleRef.APIGroup = ref.APIGroup
	}
	r.add(objectKey{kind: kindRoleBinding, namespace: binding.Namespace, name: r.nameOr(binding.Name)}, fldPath.Child("name"),
		&rbacv1.RoleBinding{RoleRef: roleRef, Subjects: subjects})

	bound := objectKey{kind: roleRef.Kind, name: roleRef.Name}
	if roleRef.Kind == kindRole {
		bound.namespace = binding.Namespace
	}
	r.bound = append(r.bound, bound)
}

// placed reports whether an object goes into one namespace.
func (r *renderer) placed(namespace string, selector *metav1.LabelSelector, fldPath *field.Path) bool {
	switch {
	case namespace == "" && selector == nil:
		r.errs = append(r.errs, field.Required(fldPath.Child("namespace"), "either namespace or namespaceSelector is needed"))
	case namespace != "" && selector != nil:
		r.errs = append(r.errs, field.Forbidden(fldPath.Child("namespaceSelector"), "may not be given together with namespace"))
	case selector != nil:
		r.leaveOut(fldPath.Child("namespaceSelector"), selectorReason)
	default:
		return true
	}
	return false
}

// subjects gives the subjects of a binding as they are on the managed cluster.
// Without any, the binding is left out: it would grant nothing.
func (r *renderer) subjects(subject *rbacv1.Subject, subjects []rbacv1.Subject, fldPath *field.Path) []rbacv1.Subject {
	type placedSubject struct {
		rbacv1.Subject
		path *field.Path
	}
	var given []placedSubject
	for i := range subjects {
		given = append(given, placedSubject{subjects[i], fldPath.Child("subjects").Index(i)})
	}
	if subject != nil {
		single := placedSubject{*subject, fldPath.Child("subject")}
		repeated := false
		for _, s := range given {
			repeated = repeated || withGroup(s.Subject) == withGroup(*subject)
		}
		if !repeated && len(given) > 0 {
			r.errs = append(r.errs, field.Forbidden(single.path, "must be one of subjects when both are given"))
		}
		if !repeated {
			given = append(given, single)
		}
	}
	if len(given) == 0 {
		r.errs = append(r.errs, field.Required(fldPath.Child("subjects"), "at least one subject is needed; give subject or subjects"))
	}

	var delivered []rbacv1.Subject
	for _, s := range given {
		subject := withGroup(s.Subject)
		if isAccount(s.Subject) {
			var absent string
			if subject, absent = r.accounts.subject(s.Subject); absent != "" {
				r.leaveOut(s.path, absent)
				continue
			}
			// Two subjects may stand for one ServiceAccount, which RBAC lists once.
			if slices.Contains(delivered, subject) {
				continue
			}
		}
		delivered = append(delivered, subject)
	}
	if len(delivered) == 0 && len(given) > 0 {
		r.leaveOut(fldPath, "no subject of this binding is delivered")
	}
	return delivered
}

// withGroup completes a subject as the managed cluster's API server would, or
// else the delivered object would look changed there.
func withGroup(s rbacv1.Subject) rbacv1.Subject {
	if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
		s.APIGroup = rbacv1.GroupName
	}
	return s
}

// rules makes sure that an empty list is written as one; a null would be changed by the managed cluster's API server.
func rules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if rules == nil {
		return []rbacv1.PolicyRule{}
	}
	return rules
}

// observeBoundRoles adds each role that a binding refers to and that this work
// does not deliver, by name only and never written, so that the agent reports
// whether it exists.
func (r *renderer) observeBoundRoles() {
	for _, key := range r.bound {
		if r.seen[key] {
			continue
		}
		var stub runtime.Object = &rbacv1.ClusterRole{}
		resource := "clusterroles"
		if key.kind == kindRole {
			stub, resource = &rbacv1.Role{}, "roles"
		}
		r.add(key, specPath.Child("validate"), stub)
		r.configs = append(r.configs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{
				Group:     rbacv1.GroupName,
				Resource:  resource,
				Namespace: key.namespace,
				Name:      key.name,
			},
			UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
		})
	}
}

func (r *renderer) nameOr(name string) string {
	if name != "" {
		return name
	}
	return r.cp.Name
}

func (r *renderer) require(value string, fldPath *field.Path) {
	if value == "" {
		r.errs = append(r.errs, field.Required(fldPath, ""))
	}
}

func (r *renderer) requireKind(kind string, fldPath *field.Path, supported ...string) {
	if !slices.Contains(supported, kind) {
		r.errs = append(r.errs, field.NotSupported(fldPath, kind, supported))
	}
}

func (r *renderer) leaveOut(fldPath *field.Path, reason string) {
	r.undelivered = append(r.undelivered, Undelivered{Path: fldPath.String(), Reason: reason})
}

// add appends the object under its key. No two manifests of a work may be the
// same object: the later would silently replace the earlier.
func (r *renderer) add(key objectKey, fldPath *field.Path, obj runtime.Object) {
	if r.seen[key] {
		r.errs = append(r.errs, field.Duplicate(fldPath, key.name))
		return
	}
	r.seen[key] = true
	raw, err := encode(key, obj)
	if err != nil {
		r.errs = append(r.errs, field.InternalError(fldPath, err))
		return
	}
	r.manifests = append(r.manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
}

// encode writes an object with sorted keys and without what only a server sets.
func encode(key objectKey, obj runtime.Object) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": key.name}
	if key.namespace != "" {
		metadata["namespace"] = key.namespace
	}
	content["apiVersion"] = rbacv1.SchemeGroupVersion.String()
	content["kind"] = key.kind
	content["metadata"] = metadata
	if content["rules"] == nil {
		delete(content, "rules")
	}
	return json.Marshal(content)
}

func (r *renderer) sizeBytes() int64 {
	var size int64
	for i := range r.manifests {
		size += int64(len(r.manifests[i].Raw))
	}
	return size
}
