package search

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// answersEverywhere returns an error unless every endpoint returns exactly the objects with the keys: searches, counts,
// completions, schemas, FleetResources, GraphQL and related resources.
func (m *marked) answersEverywhere(ctx context.Context, t *testing.T, client versioned.Interface, keys ...string) error {
	t.Helper()
	if err := answersAre(ctx, client, markKey, m.value, m.of(t, keys...)); err != nil {
		return err
	}
	answer, err := graphqlPost(ctx, client, fmt.Sprintf(
		`{ search(input: [{keywords: [%q], limit: -1}, {filters: [{property: "label", values: [%q]}]}, {filters: [{property: "label", values: [%[2]q]}, {property: "namespace", values: [%[3]q]}], limit: -1}]) { count items related { kind count items } } }`,
		m.value, markKey+"="+m.value, m.shop), nil)
	if err != nil {
		return err
	}
	inShop := 0
	for _, key := range keys {
		var kind, name string
		if _, err := fmt.Sscan(key, &kind, &name); err == nil && len(name) > 5 && name[:5] == "shop/" {
			inShop++
		}
	}
	for i, want := range []int{len(keys), len(keys), inShop} {
		if i >= len(answer.Data.Search) {
			return fmt.Errorf("GraphQL returns %d results, want 3: %+v", len(answer.Data.Search), answer)
		}
		got := answer.Data.Search[i]
		if got.Count != want || len(got.Items) != want || want == 0 && len(got.Related) > 0 {
			return fmt.Errorf("GraphQL returns count %d, items %v and related %v, want %d items", got.Count, got.Items, got.Related, want)
		}
	}
	return nil
}

// ignoresInvalidGrants checks that callers of the hub find nothing through grants to identities of the cluster, grants
// without list, and grants that are not in effect. In each case, another caller first finds a resource through a later
// grant (see witnesses), so that the server has received the grant under test.
func (f *fleet) ignoresInvalidGrants(t *testing.T, m *marked, other *reporter) {
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	with := func(change func(*rbacv1.PolicyRule)) []rbacv1.PolicyRule {
		rule := *everything.DeepCopy()
		change(&rule)
		return []rbacv1.PolicyRule{rule}
	}
	verbs := func(verbs ...string) []rbacv1.PolicyRule {
		return with(func(r *rbacv1.PolicyRule) { r.Verbs = verbs })
	}
	onHub := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("hub-only")}, Rules: []rbacv1.PolicyRule{everything}}
	framework.CreateClusterRole(t, f.HubClient, onHub)
	bound := func(role string) func(rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
		return func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
			return rbacv1alpha1.ClusterPermissionSpec{RoleBindings: &[]rbacv1alpha1.RoleBinding{{
				Namespace: m.shop, RoleRef: rbacv1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: "ClusterRole", Name: new(role)}, Subject: &s,
			}}}
		}
	}
	inShop := func(rules []rbacv1.PolicyRule) func(rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
		return func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec { return grantsIn(m.shop, s, rules) }
	}
	all := inShop([]rbacv1.PolicyRule{everything})
	// No cluster has this name, so the hub grants nothing to its agents.
	agents := framework.Unique("cluster")
	robot := &caller{framework.NewAccountCaller(t, f.Hub, "default", framework.Unique("robot"))}
	robot.maySearch(t)
	for _, test := range []struct {
		name string
		// caller returns the caller. If it is nil, the caller is a new user without groups.
		caller func(t *testing.T) *caller
		// subject returns the subject of the ClusterPermission. If it is nil, the subject is the caller.
		subject func(c *caller) rbacv1.Subject
		spec    func(rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec
		want    []string
	}{
		{name: "group system:authenticated", subject: func(*caller) rbacv1.Subject { return group("system:authenticated") }, spec: all},
		{name: "group system:unauthenticated", subject: func(*caller) rbacv1.Subject { return group("system:unauthenticated") }, spec: all},
		{name: "user system:anonymous", subject: func(*caller) rbacv1.Subject { return *framework.UserSubject("system:anonymous") }, spec: all},
		{name: "group of all ServiceAccounts", caller: func(*testing.T) *caller { return robot }, subject: func(*caller) rbacv1.Subject { return group("system:serviceaccounts") }, spec: all},
		{name: "group of the ServiceAccounts of a namespace", caller: func(*testing.T) *caller { return robot }, subject: func(*caller) rbacv1.Subject { return group("system:serviceaccounts:default") }, spec: all},
		{name: "a ServiceAccount of the same name", caller: func(*testing.T) *caller { return robot }, spec: all},
		{name: "a user with the name of the ServiceAccount", caller: func(*testing.T) *caller { return robot }, subject: func(c *caller) rbacv1.Subject { return *framework.UserSubject(c.Name) }, spec: all},
		{name: "a hub user with the name of a ServiceAccount of the cluster", caller: func(t *testing.T) *caller {
			return f.searcher(t, "system:serviceaccount:"+m.shop+":"+framework.Unique("imitated"))
		}, spec: all},
		{name: "a ServiceAccount with the name of a hub user", subject: func(c *caller) rbacv1.Subject {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: m.shop, Name: c.Name}
		}, spec: all},
		{name: "the agents' groups", caller: func(t *testing.T) *caller {
			return f.searcher(t, framework.Unique("agent"), localhub.AgentGroup(agents), "open-cluster-management:"+agents)
		}, subject: func(*caller) rbacv1.Subject { return group(localhub.AgentGroup(agents)) }, spec: all},
		{name: "the agents' groups without prefix", caller: func(t *testing.T) *caller {
			return f.searcher(t, framework.Unique("agent"), localhub.AgentGroup(agents), "open-cluster-management:"+agents)
		}, subject: func(*caller) rbacv1.Subject { return group("open-cluster-management:" + agents) }, spec: all},
		{name: "a group with the name of the user", subject: func(c *caller) rbacv1.Subject { return group(c.Name) }, spec: all},
		{name: "a user with the name of the group", caller: func(t *testing.T) *caller {
			return f.searcher(t, framework.Unique("member"), "named-as-user")
		}, subject: func(*caller) rbacv1.Subject { return *framework.UserSubject("named-as-user") }, spec: all},
		{name: "get and watch without list", spec: inShop(verbs("get", "watch", "create", "delete", "impersonate"))},
		{name: "list in upper case", spec: inShop(verbs("LIST", "list ", "*list"))},
		{name: "invalid API groups", spec: inShop(with(func(r *rbacv1.PolicyRule) { r.APIGroups = []string{"co*", "v1"} }))},
		{name: "subresources and patterns", spec: inShop(with(func(r *rbacv1.PolicyRule) {
			r.Resources = []string{"*/*", "*/status", "config*", "configmaps/*", "ConfigMap"}
		}))},
		{name: "names that are patterns", spec: inShop(with(func(r *rbacv1.PolicyRule) { r.ResourceNames = []string{"*", "a*", "A", " a"} }))},
		{name: "one name", spec: inShop(with(func(r *rbacv1.PolicyRule) { r.ResourceNames = []string{"a"} })), want: []string{"ConfigMap shop/a"}},
		{name: "list on any resource", spec: inShop(verbs("list")),
			want: []string{"ConfigMap shop/a", "ConfigMap shop/b", "Secret shop/s", "Deployment shop/web", "ReplicaSet shop/web-1"}},
		{name: "ClusterRole view without Secrets", spec: bound("view"), want: []string{"ConfigMap shop/a", "ConfigMap shop/b", "Deployment shop/web", "ReplicaSet shop/web-1"}},
		{name: "a missing ClusterRole", spec: bound(framework.Unique("absent"))},
		{name: "a ClusterRole that exists only on the hub", spec: bound(onHub.Name)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var c *caller
			if test.caller != nil {
				c = test.caller(t)
			} else {
				c = f.searcher(t, framework.Unique("trickster"))
			}
			subject := c.Subject
			if test.subject != nil {
				subject = test.subject(c)
			}
			if err := m.answersEverywhere(t.Context(), t, c.OCM); err != nil {
				t.Fatalf("before the grant: %v", err)
			}
			cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, test.spec(subject)))
			f.Applied(t, cp.Name)
			f.witnesses(t, m)
			if err := f.eventuallyAnswers(t, c, m, test.want); err != nil {
				t.Errorf("with the grant: %v", err)
			}
			if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), cp.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := f.eventuallyAnswers(t, c, m, nil); err != nil {
				t.Errorf("after the deletion of the grant: %v", err)
			}
		})
	}
	t.Run("system:masters", func(t *testing.T) {
		t.Parallel()
		// The caller may view every cluster, so only Secrets could show that the grant takes effect.
		c := &caller{framework.NewCaller(t, f.Hub, framework.Unique("master"), "system:masters")}
		cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, all(group("system:masters"))))
		f.Applied(t, cp.Name)
		f.witnesses(t, m)
		if found := searched(t, c.OCM, "kind:Secret namespace:"+m.shop); found.Count != 0 {
			t.Errorf("Secrets found = %d, want 0", found.Count)
		}
	})
	t.Run("grants that are not applied", func(t *testing.T) {
		t.Parallel()
		c := f.searcher(t, framework.Unique("undelivered"))
		// This cluster has no agent that would apply the grant.
		cp := framework.CreatePermission(t, f.OCM, permissionOf(other.name, all(c.Subject)))
		f.WorkOf(t, cp)
		f.witnesses(t, m)
		if err := m.answersEverywhere(t.Context(), t, c.OCM); err != nil {
			t.Error(err)
		}
	})
	t.Run("UID and extra", func(t *testing.T) { t.Parallel(); f.impersonatesForSearch(t, m, all) })
}

// eventuallyAnswers waits until a caller finds exactly the objects with the keys.
func (f *fleet) eventuallyAnswers(t *testing.T, c *caller, m *marked, keys []string) error {
	t.Helper()
	return await.Poll(t.Context(), func(ctx context.Context) error { return m.answersEverywhere(ctx, t, c.OCM, keys...) })
}

// writesGrant creates a ManifestWork, not owned by a ClusterPermission, that grants a subject all permissions in a
// namespace of the cluster.
func (f *fleet) writesGrant(t *testing.T, subject rbacv1.Subject, namespace string) {
	t.Helper()
	name := framework.Unique("forged")
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: name}}
	for _, raw := range []string{
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"namespace":%q,"name":%q},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"namespace":%q,"name":%[2]q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%[2]q},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[3]q}]}`,
	} {
		args := []any{namespace, name, subject.Name}
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil, raw, args[:min(3, 2+len(work.Spec.Workload.Manifests))]...)}})
	}
	works := f.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	framework.Must(works.Create(t.Context(), work, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := works.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	framework.Eventually(t, "RoleBinding "+name+" exists on the managed cluster", func(ctx context.Context) error {
		_, err := f.ManagedClient.RbacV1().RoleBindings(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// impersonatesForSearch checks that the UID and extra of an impersonated user do not change the answers, and that
// impersonation requires permission.
func (f *fleet) impersonatesForSearch(t *testing.T, m *marked, all func(rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec) {
	c, stranger := f.searcher(t, framework.Unique("impersonated")), f.searcher(t, framework.Unique("stranger"))
	cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, all(c.Subject)))
	f.Applied(t, cp.Name)
	want := []string{"ConfigMap shop/a", "ConfigMap shop/b", "Secret shop/s", "Deployment shop/web", "ReplicaSet shop/web-1"}
	if err := f.eventuallyAnswers(t, c, m, want); err != nil {
		t.Fatal(err)
	}
	extra := map[string][]string{"example.com/user": {c.Name}, "authentication.kubernetes.io/credential-id": {"X509SHA256=0"}}
	for what, test := range map[string]struct {
		as   rest.ImpersonationConfig
		want []string
	}{
		"the caller":                       {rest.ImpersonationConfig{UserName: c.Name}, want},
		"the caller with UID and extra":    {rest.ImpersonationConfig{UserName: c.Name, UID: framework.Unique("uid"), Extra: extra}, want},
		"a stranger":                       {rest.ImpersonationConfig{UserName: stranger.Name}, nil},
		"a stranger with extra":            {rest.ImpersonationConfig{UserName: stranger.Name, UID: "1", Extra: extra}, nil},
		"a stranger in a group":            {rest.ImpersonationConfig{UserName: stranger.Name, Groups: []string{c.Name}}, nil},
		"a stranger with the caller's UID": {rest.ImpersonationConfig{UserName: stranger.Name, UID: c.Name}, nil},
	} {
		if err := m.answersEverywhere(t.Context(), t, f.impersonating(t, test.as), test.want...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, as := range []rest.ImpersonationConfig{{UserName: c.Name}, {UserName: stranger.Name, UID: "1"}, {UserName: stranger.Name, Extra: extra}, {UserName: stranger.Name, Groups: []string{"system:masters"}}} {
		config := rest.CopyConfig(stranger.Config)
		config.Impersonate = as
		_, err := search(t.Context(), framework.OCMClient(t, config, nil), textQuery("kind:ConfigMap"))
		isRefused(t, err, 403)
	}
}

// TestSearchByPendingClusterPermission checks that a ClusterPermission takes effect only after its approval, that a
// change of it does not take effect before its approval, and that nothing is found after its deletion.
func TestSearchByPendingClusterPermission(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}, APIServerArgs: []string{
		"--feature-gates=SearchByClusterPermission=true", "--clusterpermission-escalation-check=Approve",
	}})
	alice, root := framework.NewCaller(t, f.Hub, framework.Unique("alice")).IsAdmin(t), framework.NewCaller(t, f.Hub, framework.Unique("root")).IsAdmin(t).IsGranter(t)
	m := newMarked(t, f.ManagedClient)
	m.reported(t, f, framework.Cluster1)
	c := f.searcher(t, framework.Unique("waiting"))
	cp := framework.CreatePermission(t, alice.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, c.Subject, lists("", "configmaps", "a"))))
	if cp.Status.Approval == nil || cp.Status.Approval.Pending == nil {
		t.Fatalf("status.approval = %v, want a pending approval", cp.Status.Approval)
	}
	f.witnesses(t, m)
	if err := m.answersEverywhere(t.Context(), t, c.OCM); err != nil {
		t.Errorf("before the approval: %v", err)
	}
	approved := framework.Must(root.Permissions().Get(t.Context(), cp.Name, metav1.GetOptions{}))(t)
	// Without a resource version, a concurrent status update by the server does not cause a conflict.
	approved.ResourceVersion = ""
	framework.Must(root.Permissions().UpdateApproval(t.Context(), cp.Name, approved, metav1.UpdateOptions{}))(t)
	if err := f.eventuallyAnswers(t, c, m, []string{"ConfigMap shop/a"}); err != nil {
		t.Errorf("after the approval: %v", err)
	}
	framework.Must(alice.Permissions().Patch(t.Context(), cp.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"roles":[{"namespace":%q,"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}]}}`, m.shop), metav1.PatchOptions{}))(t)
	f.witnesses(t, m)
	if err := m.answersEverywhere(t.Context(), t, c.OCM, "ConfigMap shop/a"); err != nil {
		t.Errorf("while a change waits for approval: %v", err)
	}
	if err := alice.Permissions().Delete(t.Context(), cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.eventuallyAnswers(t, c, m, nil); err != nil {
		t.Errorf("after the deletion: %v", err)
	}
}
