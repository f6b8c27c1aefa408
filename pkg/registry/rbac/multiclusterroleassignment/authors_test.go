package multiclusterroleassignment

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
)

// assigned returns a MulticlusterRoleAssignment with a role assignment for each pair of a name and a role.
func assigned(subject string, roles ...string) *rbac.MulticlusterRoleAssignment {
	a := &rbac.MulticlusterRoleAssignment{Spec: rbacv1beta1.MulticlusterRoleAssignmentSpec{Subject: rbacv1beta1.Subject{Kind: "User", Name: subject}}}
	for i := 0; i < len(roles); i += 2 {
		a.Spec.RoleAssignments = append(a.Spec.RoleAssignments, rbacv1beta1.RoleAssignment{Name: roles[i], ClusterRole: roles[i+1]})
	}
	return a
}

func TestRecordAuthors(t *testing.T) {
	as := func(name string) context.Context {
		return request.WithUser(t.Context(), &user.DefaultInfo{
			Name: name, Groups: []string{"g"}, Extra: map[string][]string{user.CredentialIDKey: {"x"}, "scopes": {name}},
		})
	}
	stored := assigned("ann", "a", "view", "b", "edit")
	recordAuthors(as("bob"), stored, nil)
	for name, test := range map[string]struct {
		change *rbac.MulticlusterRoleAssignment
		want   string
	}{
		"no change":      {assigned("ann", "a", "view", "b", "edit"), "bob[a b] "},
		"addition":       {assigned("ann", "a", "view", "b", "edit", "c", "view"), "bob[a b] carl[c] "},
		"other order":    {assigned("ann", "b", "edit", "a", "view"), "bob[b a] "},
		"change":         {assigned("ann", "a", "admin", "b", "edit"), "carl[a] bob[b] "},
		"removal":        {assigned("ann", "b", "edit"), "bob[b] "},
		"other name":     {assigned("ann", "x", "view", "b", "edit"), "carl[x] bob[b] "},
		"other subject":  {assigned("amy", "a", "view", "b", "edit"), "carl[a b] "},
		"all are others": {assigned("ann", "a", "edit", "b", "view"), "carl[a b] "},
	} {
		t.Run(name, func(t *testing.T) {
			// The strategy keeps the stored status before it calls recordAuthors.
			test.change.Status = *stored.Status.DeepCopy()
			recordAuthors(as("carl"), test.change, stored)
			got := ""
			for _, author := range test.change.Status.Authors {
				got += fmt.Sprintf("%s%v ", author.Username, author.RoleAssignments)
				if len(author.Groups) != 1 || len(author.Extra) != 1 || author.Extra["scopes"][0] != author.Username {
					t.Errorf("author %s = %+v, want groups and scopes without the credential", author.Username, author)
				}
			}
			if got != test.want {
				t.Errorf("recordAuthors() = %s, want %s", got, test.want)
			}
			if fmt.Sprint(stored.Status.Authors[0].RoleAssignments) != "[a b]" {
				t.Errorf("recordAuthors() changed the stored object: %v", stored.Status.Authors)
			}
		})
	}
}
