package escalation

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// newGrants does not copy all rules for thousands of bindings to a role with thousands of
// rules, but the bindings are still refused.
func TestManyBindingsToManyRules(t *testing.T) {
	selector := func(i int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"n": fmt.Sprint(i)}}
	}
	var rules []rbacv1.PolicyRule
	for i := range 6000 {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{fmt.Sprintf("r%d", i)}, Verbs: []string{"get"}})
	}
	var bindings []rbacv1alpha1.RoleBinding
	for i := range 3000 {
		bindings = append(bindings, rbacv1alpha1.RoleBinding{
			NamespaceSelector: selector(i), RoleRef: rbacv1alpha1.RoleRef{Kind: rbac.KindRole}, Subject: &rbacv1.Subject{Kind: rbacv1.UserKind, Name: "ann"},
		})
	}
	spec := &rbacv1alpha1.ClusterPermissionSpec{
		Roles: &[]rbacv1alpha1.Role{{NamespaceSelector: selector(0), Rules: rules}}, RoleBindings: &bindings,
	}
	grants := newGrants("cp", spec, newGranted("cp", nil), newBudget())
	if len(grants) != 1+len(bindings) {
		t.Errorf("newGrants() = %d grants, want %d", len(grants), 1+len(bindings))
	}
	kept := 0
	for _, g := range grants {
		kept += len(g.rules)
		if len(g.rules) == 0 && !g.live {
			t.Fatalf("rules of grant %s = none, want rules or live", g.path)
		}
	}
	if most := maxCopied + len(rules); kept > most {
		t.Errorf("rules of newGrants() = %d, want at most %d", kept, most)
	}
}
