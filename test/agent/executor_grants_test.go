package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// testRoleRefAs checks that a binding is replaced if its roleRef changes. This requires permission to
// delete the binding, even if the binding is orphaned when its ManifestWork is deleted.
func testRoleRefAs(t *testing.T, c *cluster) {
	rules := func(verbs string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: strings.Split(verbs, ",")},
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"bind"}},
		}
	}
	binding := `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS},
	  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ROLE}, subjects: [{kind: User, name: u}]}`
	bound := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := c.kube.RbacV1().RoleBindings(c.name).Get(ctx, "b", metav1.GetOptions{})
			if err == nil && got.RoleRef.Name != want {
				err = fmt.Errorf("roleRef.name of RoleBinding b = %s, want %s", got.RoleRef.Name, want)
			}
			return err
		}
	}
	c.grantRules(rules("get,create,update,patch")...)
	c.run()
	name := c.create("", c.actsAs(func(spec *workv1.ManifestWorkSpec) {
		spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	}), strings.ReplaceAll(binding, "ROLE", "view"))
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if message := appliedOf(work, 0).Message; !strings.Contains(message, "delete") || !strings.Contains(message, "rolebindings") {
		t.Errorf("message of condition Applied = %q, want a mention of delete and rolebindings", message)
	}
	c.grantRules(rules(allVerbs)...)
	eventually(t, "RoleBinding b refers to ClusterRole view", bound("view"))
	c.replace(name, strings.ReplaceAll(binding, "ROLE", "edit"))
	eventually(t, "RoleBinding b refers to ClusterRole edit", bound("edit"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	c.gone(name)
	if err := c.kube.RbacV1().RoleBindings(c.name).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Errorf("Delete(RoleBinding b) = %v, want nil for an orphaned binding", err)
	}
}

// testAdoptedAs checks that objects that existed before their ManifestWork stay when it is deleted.
func testAdoptedAs(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.createConfigMap("a", "theirs")
	c.createConfigMap("b", "theirs")
	c.run()
	name := c.create("", c.actsAs(func(spec *workv1.ManifestWorkSpec) {
		strategy("configmaps", workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{Force: new(true)}})(spec)
		spec.ManifestConfigs[0].ResourceIdentifier.Name = "b"
	}), configMap("a", "ours"), configMap("b", "ours"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("a", "ours")
	c.hasConfigMap("b", "ours")
	c.delete(name)
	c.gone(name)
	for _, object := range []string{"a", "b"} {
		if got := c.hasConfigMap(object, "ours"); len(got.OwnerReferences) > 0 {
			t.Errorf("ownerReferences of ConfigMap %s = %v, want none", object, got.OwnerReferences)
		}
	}
}

// testPermissionAs checks that the ManifestWork of a ClusterPermission with an executor changes only
// objects that it created, and grants only permissions of its executor.
func testPermissionAs(t *testing.T, c *cluster) {
	role := `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`
	roleBinding := `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: NS},
	  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: User, name: u}]}`
	c.run()
	name := c.permission("", c.actsAs(), role, roleBinding)
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	own := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: strings.Split(allVerbs, ",")}
	c.grantRules(own)
	eventually(t, "the refusal of the role mentions escalate", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if message := appliedOf(work, 0).Message; !strings.Contains(message, "escalate") {
			return fmt.Errorf("message of condition Applied = %q", message)
		}
		return nil
	})
	if _, err := c.kube.RbacV1().Roles(c.name).Get(t.Context(), "r", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(Role r) = %v, want NotFound", err)
	}
	c.grantRules(own, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	// A role of the same name that another client created is not bound.
	c.delete(name)
	c.gone(name)
	theirs := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	if _, err := c.kube.RbacV1().Roles(c.name).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	again := c.permission("-again", c.actsAs(), role, roleBinding)
	work := c.condition(again, workv1.WorkApplied, metav1.ConditionFalse)
	if got := appliedOf(work, 0).Reason; got != workv1.ReasonAppliedManifestObjectNotOwned {
		t.Errorf("reason of condition Applied = %s, want %s", got, workv1.ReasonAppliedManifestObjectNotOwned)
	}
	if _, err := c.kube.RbacV1().RoleBindings(c.name).Get(t.Context(), "r", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(RoleBinding r) = %v, want NotFound", err)
	}
}
