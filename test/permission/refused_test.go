package permission

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestBadInputsAreRefused checks defect 1 for fields that TestRefusedAtAdmission does not cover:
// names of bindings, selectors and references to roles of the hub. It checks creates and updates.
func TestBadInputsAreRefused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "bad-inputs"
	binding := func(change func(*rbacv1alpha1.RoleBinding)) func(*rbacv1alpha1.ClusterPermissionSpec) {
		return func(s *rbacv1alpha1.ClusterPermissionSpec) { change(&(*s.RoleBindings)[0]) }
	}
	// In the name of a hub role, @ stands for the name of the ClusterPermission.
	refs := func(refs ...rbacv1alpha1.HubRoleRef) func(*rbacv1alpha1.ClusterPermissionSpec) {
		return func(s *rbacv1alpha1.ClusterPermissionSpec) { s.RoleRefs = &refs }
	}
	withOwnName := func(cp *rbacv1alpha1.ClusterPermission) *rbacv1alpha1.ClusterPermission {
		cp = cp.DeepCopy()
		for i := range ptr.Deref(cp.Spec.RoleRefs, nil) {
			ref := &(*cp.Spec.RoleRefs)[i]
			ref.Name = strings.Replace(ref.Name, "@", cp.Name, 1)
		}
		return cp
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	tests := map[string]struct {
		change func(*rbacv1alpha1.ClusterPermissionSpec)
		want   string
	}{
		"a selector without values": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				(*s.Roles)[0].Namespace, (*s.Roles)[0].NamespaceSelector = "", &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}},
				}
			},
			want: "spec.roles[0].namespaceSelector.matchExpressions[0].values",
		},
		"a binding without namespace": {change: binding(func(b *rbacv1alpha1.RoleBinding) { b.Namespace = "" }), want: "spec.roleBindings[0].namespace"},
		"a binding with a slash in its name": {
			change: binding(func(b *rbacv1alpha1.RoleBinding) { b.Name = "a/b" }), want: "spec.roleBindings[0].name",
		},
		"two unnamed bindings with the same selector": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				one := rbacv1alpha1.RoleBinding{NamespaceSelector: selector, RoleRef: framework.RoleRefTo("ClusterRole", "view"), Subject: framework.UserSubject("bob")}
				s.RoleBindings = &[]rbacv1alpha1.RoleBinding{one, one}
			},
			want: "spec.roleBindings[1].name",
		},
		"a namespace that is too long": {
			change: binding(func(b *rbacv1alpha1.RoleBinding) { b.Namespace = strings.Repeat("n", 64) }), want: "spec.roleBindings[0].namespace",
		},
		"a hub role of another kind":                         {change: refs(rbacv1alpha1.HubRoleRef{Kind: "Rolle", Name: "x"}), want: "spec.roleRefs[0].kind"},
		"a hub role of another group":                        {change: refs(rbacv1alpha1.HubRoleRef{APIGroup: "apps", Kind: "ClusterRole", Name: "x"}), want: "spec.roleRefs[0].apiGroup"},
		"a hub role without name":                            {change: refs(rbacv1alpha1.HubRoleRef{Kind: "ClusterRole"}), want: "spec.roleRefs[0].name"},
		"a hub Role without namespace":                       {change: refs(rbacv1alpha1.HubRoleRef{Kind: "Role", Name: "x"}), want: "spec.roleRefs[0].namespace"},
		"a hub ClusterRole with a namespace":                 {change: refs(rbacv1alpha1.HubRoleRef{Kind: "ClusterRole", Name: "x", Namespace: "default"}), want: "spec.roleRefs[0].namespace"},
		"one hub role twice":                                 {change: refs(rbacv1alpha1.HubRoleRef{Kind: "ClusterRole", Name: "x"}, rbacv1alpha1.HubRoleRef{Kind: "ClusterRole", Name: "x"}), want: "spec.roleRefs[1].name"},
		"a hub ClusterRole with the name of a delivered one": {change: refs(rbacv1alpha1.HubRoleRef{Kind: "ClusterRole", Name: "@"}), want: "spec.roleRefs[0].name"},
		"a hub Role with the name of a delivered one":        {change: refs(rbacv1alpha1.HubRoleRef{Kind: "Role", Name: "@", Namespace: "default"}), want: "spec.roleRefs[0].name"},
	}
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	stored := f.Applied(t, name)
	work := f.WorkOf(t, stored)
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1)
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			created := framework.Permission(name + "-created")
			test.change(&created.Spec)
			_, err := permissions.Create(t.Context(), withOwnName(created), metav1.CreateOptions{})
			if got := framework.InvalidFields(err); !apierrors.IsInvalid(err) || !slices.Equal(got, []string{test.want}) {
				t.Errorf("create = %v for fields %v, want 422 for %s", err, got, test.want)
			}
			updated := framework.Must(f.GetPermission(t.Context(), name))(t)
			test.change(&updated.Spec)
			_, err = permissions.Update(t.Context(), withOwnName(updated), metav1.UpdateOptions{})
			if got := framework.InvalidFields(err); !apierrors.IsInvalid(err) || !slices.Equal(got, []string{test.want}) {
				t.Errorf("update = %v for fields %v, want 422 for %s", err, got, test.want)
			}
		})
	}
	f.notDelivered(t, name+"-created")
	if after := framework.Must(f.GetPermission(t.Context(), name))(t); after.Generation != stored.Generation {
		t.Errorf("generation of the stored ClusterPermission = %d, want %d", after.Generation, stored.Generation)
	}
	if after := f.WorkOf(t, stored); after.Generation != work.Generation {
		t.Errorf("generation of the ManifestWork = %d, want %d", after.Generation, work.Generation)
	}
}

// TestCreatorsDoNotBecomeAdministrators checks defect 2: permission to write ClusterPermissions
// does not make the caller an administrator of the cluster. TestEscalationIsRefused has the other
// cases.
func TestCreatorsDoNotBecomeAdministrators(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name, creator = "creators-gain-nothing", "creator-of-permissions"
	may := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: creator}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, Verbs: []string{"get", "create", "update", "patch"},
	}}}
	framework.CreateRole(t, f.HubClient, may)
	bindings := f.HubClient.RbacV1().RoleBindings(framework.Cluster1)
	framework.Must(bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: creator}, Subjects: []rbacv1.Subject{*framework.UserSubject(creator)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: creator},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), creator, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	config, err := f.Hub.UserConfig(creator)
	permissions := framework.OCMClient(t, config, err).RbacV1alpha1().ClusterPermissions(framework.Cluster1)

	// A role without rules grants nothing, so the creator is allowed to bind it.
	harmless := framework.Permission(name)
	harmless.Spec = rbacv1alpha1.ClusterPermissionSpec{
		ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{}},
		ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: framework.UserSubject(creator)},
	}
	framework.Eventually(t, "the creator is allowed to create ClusterPermissions", func(ctx context.Context) error {
		_, err := permissions.Create(ctx, harmless, metav1.CreateOptions{})
		return err
	})
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
	stored := f.Applied(t, name)

	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	admin := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	for title, change := range map[string]func(*rbacv1alpha1.ClusterPermissionSpec){
		"by rules":     func(s *rbacv1alpha1.ClusterPermissionSpec) { s.ClusterRole.Rules = everything },
		"by a binding": func(s *rbacv1alpha1.ClusterPermissionSpec) { s.ClusterRoleBinding.RoleRef = &admin },
		"by one more binding": func(s *rbacv1alpha1.ClusterPermissionSpec) {
			s.ClusterRoleBindings = &[]rbacv1alpha1.ClusterRoleBinding{{Name: "more", RoleRef: &admin, Subject: framework.UserSubject(creator)}}
		},
		"in one namespace": func(s *rbacv1alpha1.ClusterPermissionSpec) {
			s.RoleBindings = &[]rbacv1alpha1.RoleBinding{{Namespace: "kube-system", RoleRef: framework.RoleRefTo("ClusterRole", "cluster-admin"), Subject: framework.UserSubject(creator)}}
		},
		"in selected namespaces": func(s *rbacv1alpha1.ClusterPermissionSpec) {
			s.Roles = &[]rbacv1alpha1.Role{{NamespaceSelector: &metav1.LabelSelector{}, Rules: everything}}
		},
		"by a role of the hub": func(s *rbacv1alpha1.ClusterPermissionSpec) {
			s.RoleRefs = &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: "cluster-admin"}}
		},
	} {
		t.Run(title, func(t *testing.T) {
			refused := func(request string, err error) {
				t.Helper()
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot grant permissions") && !strings.Contains(err.Error(), `ClusterRole "cluster-admin": grant it`) {
					t.Errorf("%s = %v, want 403 for the permissions that it grants", request, err)
				}
			}
			created := harmless.DeepCopy()
			created.Name = name + "-created"
			change(&created.Spec)
			_, err := permissions.Create(t.Context(), created, metav1.CreateOptions{})
			refused("create", err)
			updated := stored.DeepCopy()
			change(&updated.Spec)
			_, err = permissions.Update(t.Context(), updated, metav1.UpdateOptions{})
			refused("update", err)
			patch := framework.ToJSON(map[string]any{"spec": updated.Spec})
			_, err = permissions.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			refused("patch", err)
			if _, err := f.GetPermission(t.Context(), created.Name); framework.IsGone(err) != nil {
				t.Errorf("get of the denied ClusterPermission = %v, want NotFound", err)
			}
		})
	}
	f.notDelivered(t, name+"-created")
	if after := framework.Must(f.GetPermission(t.Context(), name))(t); after.Generation != stored.Generation {
		t.Errorf("generation of the stored ClusterPermission = %d, want %d", after.Generation, stored.Generation)
	}
}
