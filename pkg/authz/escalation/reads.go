package escalation

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Reads returns nil if the caller of ctx may refer to roles of the hub in the ClusterPermission of this name. The
// ManifestWork shows the rules of these roles, so the caller requires get on each. Otherwise Reads returns a Forbidden
// error that names every such role, an Invalid error if the decision requires more than authz.MaxReviews access
// reviews, or an InternalError.
func Reads(ctx context.Context, a authorizer.Authorizer, name string, refs []rbacv1alpha1.HubRoleRef) error {
	caller, err := authz.Caller(ctx)
	if err != nil {
		return err
	}
	decided := map[authorizationv1.ResourceAttributes]bool{}
	decide := func(access authorizationv1.ResourceAttributes) (bool, error) {
		if allowed, known := decided[access]; known {
			return allowed, nil
		}
		if len(decided) == authz.MaxReviews {
			return false, apierrors.NewInvalid(rbacv1alpha1.SchemeGroupVersion.WithKind("ClusterPermission").GroupKind(), name, field.ErrorList{field.Forbidden(specPath.Child("roleRefs"), fmt.Sprintf(
				"user %q lacks permission to get all ClusterRoles or Roles of the hub, and at most %d access reviews are made; use several ClusterPermissions", caller.GetName(), authz.MaxReviews))})
		}
		allowed, err := authz.Allowed(ctx, a, caller, access)
		if err != nil {
			return false, apierrors.NewInternalError(err)
		}
		decided[access] = allowed
		return allowed, nil
	}
	checked := map[rbac.Key]bool{}
	var lines []string
	for _, ref := range refs {
		key := hubRole(ref)
		if checked[key] {
			continue
		}
		checked[key] = true
		access := authorizationv1.ResourceAttributes{Verb: "get", Group: rbacv1.GroupName, Version: "*", Resource: "clusterroles"}
		if key.Kind == rbac.KindRole {
			access.Resource = "roles"
		}
		// A permission for all roles, or all roles of a namespace, saves the review of each.
		objects := [][2]string{{"", ""}, {key.Namespace, ""}, {key.Namespace, key.Name}}
		if len(refs) == 1 {
			objects = objects[2:]
		}
		allowed := false
		for _, object := range objects {
			access.Namespace, access.Name = object[0], object[1]
			if allowed, err = decide(access); err != nil {
				return err
			}
			if allowed {
				break
			}
		}
		if !allowed {
			lines = append(lines, fmt.Sprintf("%s: grant it with %s", key, rbac.RoleText(access.Namespace, rbac.RuleFor(access))))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return apierrors.NewForbidden(rbacv1alpha1.Resource(resource), name, fmt.Errorf(
		"user %q cannot get these roles of the hub, and so cannot deliver them:\n%s",
		caller.GetName(), strings.Join(rbac.ClipLines(lines, maxLines, maxLineBytes), "\n")))
}

// ReadsNamespaces returns nil if the caller of ctx may see which namespaces of the hub the ClusterPermission of this
// name selects, which requires list on namespaces. Otherwise it returns a Forbidden error, or an InternalError.
func ReadsNamespaces(ctx context.Context, a authorizer.Authorizer, name string) error {
	return authz.Check(ctx, a, authorizationv1.ResourceAttributes{Verb: "list", Version: "*", Resource: "namespaces"},
		rbacv1alpha1.Resource(resource), name, "list the namespaces of the hub, and so cannot see which of them are selected")
}
