package multiclusterroleassignment

import (
	"context"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
)

// recordAuthors records the caller as the author of each role assignment that the write adds or changes. A change of
// the subject changes all role assignments. old is nil for a new object.
func recordAuthors(ctx context.Context, a, old *rbac.MulticlusterRoleAssignment) {
	if old != nil && equality.Semantic.DeepEqual(a.Spec, old.Spec) {
		return
	}
	before := map[string]rbacv1beta1.AssignmentAuthor{}
	if old != nil {
		for _, author := range old.Status.Authors {
			for _, name := range author.RoleAssignments {
				before[name] = author
			}
		}
	}
	caller := callerOf(ctx)
	changed := changedNames(a, old)
	var authors []rbacv1beta1.AssignmentAuthor
	for _, assignment := range a.Spec.RoleAssignments {
		author, known := before[assignment.Name]
		if changed[assignment.Name] || !known {
			author = caller
		}
		author.RoleAssignments = nil
		i := slices.IndexFunc(authors, func(other rbacv1beta1.AssignmentAuthor) bool {
			other.RoleAssignments = nil
			return reflect.DeepEqual(other, author)
		})
		if i < 0 {
			i, authors = len(authors), append(authors, author)
		}
		authors[i].RoleAssignments = append(authors[i].RoleAssignments, assignment.Name)
	}
	a.Status.Authors = authors
}

// callerOf returns the user of the request, without the identity of the credential, which expires.
func callerOf(ctx context.Context) rbacv1beta1.AssignmentAuthor {
	caller, known := request.UserFrom(ctx)
	if !known {
		return rbacv1beta1.AssignmentAuthor{}
	}
	author := rbacv1beta1.AssignmentAuthor{Username: caller.GetName(), UID: caller.GetUID(), Groups: caller.GetGroups()}
	for key, values := range caller.GetExtra() {
		if key == user.CredentialIDKey {
			continue
		}
		if author.Extra == nil {
			author.Extra = map[string][]string{}
		}
		author.Extra[key] = values
	}
	return author
}

// changedNames returns the names of the role assignments that a write adds or changes.
func changedNames(a, old *rbac.MulticlusterRoleAssignment) map[string]bool {
	before := map[string]*rbacv1beta1.RoleAssignment{}
	if old != nil && equality.Semantic.DeepEqual(a.Spec.Subject, old.Spec.Subject) {
		for i := range old.Spec.RoleAssignments {
			before[old.Spec.RoleAssignments[i].Name] = &old.Spec.RoleAssignments[i]
		}
	}
	changed := map[string]bool{}
	for i := range a.Spec.RoleAssignments {
		assignment := &a.Spec.RoleAssignments[i]
		if same := before[assignment.Name]; same == nil || !equality.Semantic.DeepEqual(*same, *assignment) {
			changed[assignment.Name] = true
		}
	}
	return changed
}
