package validation

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// The total number of requirements of all selectors is bounded.
func TestTotalRequirementsAreBounded(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "c", Operator: metav1.LabelSelectorOpExists}, {Key: "d", Operator: metav1.LabelSelectorOpExists},
	}}
	for roles, rejected := range map[int]bool{maxRequirements / 4: false, maxRequirements/4 + 1: true} {
		cp := &rbac.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "a"}}
		bindings := make([]rbacv1alpha1.RoleBinding, roles)
		for i := range bindings {
			bindings[i].NamespaceSelector = selector
			bindings[i].Subject = &rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "u"}
		}
		cp.Spec.RoleBindings = &bindings
		if got := strings.Contains(ClusterPermission.New(cp).ToAggregate().Error(), "requirements in total"); got != rejected {
			t.Errorf("ClusterPermission.New() rejects %d selectors with 3 requirements each = %t, want %t", roles, got, rejected)
		}
	}
}
