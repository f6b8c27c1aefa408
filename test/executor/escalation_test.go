package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestExecutorCannotEscalate checks that an executor cannot create objects that grant more than its
// own permissions. If a ManifestWork contains such an object, the agent writes no part of it.
func TestExecutorCannotEscalate(t *testing.T) {
	s := newFixture(t, "escalation")
	const api = `"apiVersion":"rbac.authorization.k8s.io/v1"`
	const mallory = `"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]`
	binding := func(kind, namespace, name, roleKind, role string) string {
		return fmt.Sprintf(`{%s,"kind":%q,"metadata":{"namespace":%q,"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},%s}`,
			api, kind, namespace, name, roleKind, role, mallory)
	}
	rules := `"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]`
	role := func(name string) string {
		return fmt.Sprintf(`{%s,"kind":"Role","metadata":{"namespace":%q,"name":%q},%s}`, api, s.namespace, name, rules)
	}
	clusterRole := func(name, content string) string {
		return fmt.Sprintf(`{%s,"kind":"ClusterRole","metadata":{"name":%q},%s}`, api, name, content)
	}
	// All verbs except escalate and bind.
	s.grantEverywhere("executor-escalation", configMaps, rbacv1.PolicyRule{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, Verbs: lifecycle,
	})
	for _, test := range []struct {
		name      string
		strategy  workv1.UpdateStrategyType
		manifests []string
		// lacks is the verb of the missing rule.
		lacks string
	}{
		{"cluster-admin", "", []string{binding("ClusterRoleBinding", "", "NAME", "ClusterRole", "cluster-admin")}, "bind"},
		{"cluster-admin-ssa", workv1.UpdateStrategyTypeServerSideApply, []string{binding("ClusterRoleBinding", "", "NAME", "ClusterRole", "cluster-admin")}, "bind"},
		{"cluster-admin-once", workv1.UpdateStrategyTypeCreateOnly, []string{binding("ClusterRoleBinding", "", "NAME", "ClusterRole", "cluster-admin")}, "bind"},
		{"admin-of-kube-system", "", []string{binding("RoleBinding", "kube-system", "NAME", "ClusterRole", "admin")}, "bind"},
		{"role", "", []string{role("NAME")}, "escalate"},
		{"everything", "", []string{clusterRole("NAME", `"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`)}, "escalate"},
		{"paths", "", []string{clusterRole("NAME", `"rules":[{"nonResourceURLs":["/metrics"],"verbs":["get"]}]`)}, "escalate"},
		{"aggregated", "", []string{clusterRole("NAME", `"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"kubernetes.io/bootstrapping":"rbac-defaults"}}]}`)}, "escalate"},
		{"role-of-the-same-work", "", []string{binding("RoleBinding", s.namespace, "NAME", "Role", "NAME"), role("NAME")}, "bind"},
		{"missing-role", "", []string{binding("RoleBinding", s.namespace, "NAME", "ClusterRole", "no-such-role")}, "bind"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &fixture{fleet: s.fleet, t: t, namespace: s.namespace, executor: s.executor}
			name := "executor-" + test.name
			var contents []string
			for _, content := range test.manifests {
				contents = append(contents, strings.ReplaceAll(content, "NAME", name))
			}
			work := s.workOf(append(contents, s.configMap(name, "first"))...)
			work.Name = name
			if test.strategy != "" {
				configured(work, strategy(workv1.ResourceIdentifier{Group: new(rbacv1.GroupName), Resource: "clusterrolebindings", Name: name}, test.strategy))
			}
			position := s.now()
			s.create(work)
			refused := s.refused(name)
			if message := s.said(refused, 0); !strings.Contains(message, test.lacks) {
				t.Errorf("message of Applied = %q, want the verb %s in it", message, test.lacks)
			}
			s.no("writes of RBAC objects and ConfigMaps", s.since(position).verbs(writing...).filter(func(event *auditv1.Event) bool {
				return event.ObjectRef.APIGroup == rbacv1.GroupName || event.ObjectRef.Resource == "configmaps"
			}))
			s.none(name)
			for _, o := range []framework.Object{
				framework.NewObject("ClusterRoleBinding", "", name), framework.NewObject("ClusterRole", "", name), framework.NewObject("Role", s.namespace, name),
				framework.NewObject("RoleBinding", s.namespace, name), framework.NewObject("RoleBinding", "kube-system", name),
			} {
				if _, err := framework.ReadObject(t.Context(), s.ManagedClient, o); !apierrors.IsNotFound(err) {
					t.Errorf("get %s = %v, want NotFound", o, err)
				}
			}
		})
	}
}

// TestExecutorGrantsItsOwnPermissions checks that an executor can grant its own permissions, and
// roles for which it has escalate or bind.
func TestExecutorGrantsItsOwnPermissions(t *testing.T) {
	s := newFixture(t, "gives")
	s.grant("held", configMaps, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: lifecycle})
	const api = `"apiVersion":"rbac.authorization.k8s.io/v1"`
	role := func(resource string) string {
		return fmt.Sprintf(`{%s,"kind":"Role","metadata":{"namespace":%q,"name":"given"},"rules":[{"apiGroups":[""],"resources":[%q],"verbs":["get"]}]}`, api, s.namespace, resource)
	}
	binding := fmt.Sprintf(`{%s,"kind":"RoleBinding","metadata":{"namespace":%q,"name":"given"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"given"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`, api, s.namespace)
	work := s.workOf(role("configmaps"), binding)
	s.create(work)
	s.reports(work.Name, metav1.ConditionTrue)

	s.change(work.Name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = rawManifests(role("secrets"), binding)
	})
	refused := s.refused(work.Name)
	given := framework.Must(s.ManagedClient.RbacV1().Roles(s.namespace).Get(t.Context(), "given", metav1.GetOptions{}))(t)
	if !slices.Equal(given.Rules[0].Resources, []string{"configmaps"}) {
		t.Errorf("rules of Role given = %v, want configmaps only", given.Rules)
	}
	// Writing the Role requires escalate on the Role. Writing the RoleBinding requires bind on it.
	s.grant("allowed", slices.Concat(rulesIn(s.t, s.said(refused, 0)), rulesIn(s.t, s.said(refused, 1)))...)
	s.reports(work.Name, metav1.ConditionTrue)
	framework.Eventually(t, "Role given allows secrets", func(ctx context.Context) error {
		given, err := s.ManagedClient.RbacV1().Roles(s.namespace).Get(ctx, "given", metav1.GetOptions{})
		if err == nil && !slices.Equal(given.Rules[0].Resources, []string{"secrets"}) {
			return fmt.Errorf("rules = %v", given.Rules)
		}
		return err
	})
}
