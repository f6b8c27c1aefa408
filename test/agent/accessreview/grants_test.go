package accessreview_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
)

// grantTest grants a permission and revokes it.
type grantTest struct {
	name string
	// given creates the objects that exist before the first review.
	given         func(*space)
	grant, revoke func(*space)
	alice, bob    func(*space) []accessreview.Request
}

func gets(s *space) []accessreview.Request    { return []accessreview.Request{s.get, s.getOne, s.getFar} }
func getsOne(s *space) []accessreview.Request { return []accessreview.Request{s.getOne} }
func getsNear(s *space) []accessreview.Request {
	return []accessreview.Request{s.get, s.getOne}
}

func deleteClusterBinding(s *space) {
	do(s.t, s.admin.RbacV1().ClusterRoleBindings().Delete(s.t.Context(), s.namespace, metav1.DeleteOptions{}))
}

func readerRole(s *space) { s.clusterRole(s.t, s.namespace, nil, rule("get", "", "configmaps")) }

func grantTo(subject func(*space) rbacv1.Subject) func(*space) {
	return func(s *space) { s.clusterBinding(s.t, s.namespace, s.namespace, subject(s)) }
}

func editSubjects(s *space, subjects ...rbacv1.Subject) {
	binding, err := s.admin.RbacV1().ClusterRoleBindings().Get(s.t.Context(), s.namespace, metav1.GetOptions{})
	do(s.t, err)
	binding.Subjects = subjects
	_, err = s.admin.RbacV1().ClusterRoleBindings().Update(s.t.Context(), binding, metav1.UpdateOptions{})
	do(s.t, err)
}

func editRole(s *space, rules ...rbacv1.PolicyRule) {
	role, err := s.admin.RbacV1().Roles(s.namespace).Get(s.t.Context(), "role", metav1.GetOptions{})
	do(s.t, err)
	role.Rules = rules
	_, err = s.admin.RbacV1().Roles(s.namespace).Update(s.t.Context(), role, metav1.UpdateOptions{})
	do(s.t, err)
}

var grantTests = []grantTest{
	{
		name: "a ClusterRoleBinding is created and deleted", given: readerRole,
		grant:  grantTo(func(s *space) rbacv1.Subject { return accountSubject(s.alice) }),
		revoke: deleteClusterBinding, alice: gets,
	},
	{
		name: "a ClusterRoleBinding of a user", given: readerRole,
		grant:  grantTo(func(s *space) rbacv1.Subject { return userSubject(accessreview.UserName(s.bob)) }),
		revoke: deleteClusterBinding, bob: gets,
	},
	{
		name: "a ClusterRoleBinding of the ServiceAccounts of a namespace", given: readerRole,
		grant:  grantTo(func(s *space) rbacv1.Subject { return groupSubject("system:serviceaccounts:" + s.namespace) }),
		revoke: deleteClusterBinding, alice: gets,
	},
	{
		name: "a ClusterRoleBinding of all ServiceAccounts", given: readerRole,
		grant:  grantTo(func(*space) rbacv1.Subject { return groupSubject("system:serviceaccounts") }),
		revoke: deleteClusterBinding, alice: gets, bob: gets,
	},
	{
		name: "a ClusterRoleBinding of all authenticated users", given: readerRole,
		grant:  grantTo(func(*space) rbacv1.Subject { return groupSubject("system:authenticated") }),
		revoke: deleteClusterBinding, alice: gets, bob: gets,
	},
	{
		name: "subjects of a ClusterRoleBinding are edited",
		given: func(s *space) {
			readerRole(s)
			s.clusterBinding(s.t, s.namespace, s.namespace, userSubject("somebody"))
		},
		grant:  func(s *space) { editSubjects(s, userSubject("somebody"), accountSubject(s.alice)) },
		revoke: func(s *space) { editSubjects(s, userSubject("somebody"), userSubject("else")) },
		alice:  gets,
	},
	{
		name: "rules of a Role are edited",
		given: func(s *space) {
			s.role(s.t, s.namespace, "role", rule("get", "", "secrets"))
			s.binding(s.t, s.namespace, "binding", "Role", "role", accountSubject(s.alice))
		},
		grant:  func(s *space) { editRole(s, rule("get", "", "secrets"), rule("get", "", "configmaps", "one")) },
		revoke: func(s *space) { editRole(s, rule("get", "", "secrets"), rule("get", "", "configmaps", "three")) },
		alice:  getsOne,
	},
	{
		name:  "a RoleBinding to a ClusterRole",
		given: readerRole,
		grant: func(s *space) {
			s.binding(s.t, s.namespace, "binding", "ClusterRole", s.namespace, accountSubject(s.alice), accountSubject(s.bob))
		},
		revoke: func(s *space) {
			do(s.t, s.admin.RbacV1().RoleBindings(s.namespace).Delete(s.t.Context(), "binding", metav1.DeleteOptions{}))
		},
		alice: getsNear, bob: getsNear,
	},
	{
		name:  "a ClusterRole is created after its binding and deleted before it",
		given: func(s *space) { s.clusterBinding(s.t, s.namespace, s.namespace, accountSubject(s.alice)) },
		grant: readerRole,
		revoke: func(s *space) {
			do(s.t, s.admin.RbacV1().ClusterRoles().Delete(s.t.Context(), s.namespace, metav1.DeleteOptions{}))
		},
		alice: gets,
	},
	{
		name: "a ClusterRole is aggregated",
		given: func(s *space) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": s.namespace}}},
			}}
			_, err := s.admin.RbacV1().ClusterRoles().Create(s.t.Context(), role, metav1.CreateOptions{})
			do(s.t, err)
			s.clusterBinding(s.t, s.namespace, s.namespace, accountSubject(s.alice))
		},
		grant: func(s *space) {
			s.clusterRole(s.t, s.namespace+"-part", map[string]string{"to": s.namespace}, rule("get", "", "configmaps"))
		},
		revoke: func(s *space) {
			do(s.t, s.admin.RbacV1().ClusterRoles().Delete(s.t.Context(), s.namespace+"-part", metav1.DeleteOptions{}))
		},
		alice: gets,
	},
}

func testGrant(t *testing.T, m *managedCluster, test grantTest) {
	s := m.space(t)
	test.given(s)
	granted := map[types.NamespacedName][]accessreview.Request{}
	if test.alice != nil {
		granted[s.alice] = test.alice(s)
	}
	if test.bob != nil {
		granted[s.bob] = test.bob(s)
	}
	s.settle(nil)
	s.happens(func() { test.grant(s) }, granted, granted)
	s.happens(func() { test.revoke(s) }, granted, nil)
}
