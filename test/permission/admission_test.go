package permission

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestRefusedAtAdmission checks that the server rejects an invalid ClusterPermission at admission.
// The error has the path of the invalid field, and nothing is stored.
func TestRefusedAtAdmission(t *testing.T) {
	t.Parallel()
	f := shared(t)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	roleBindings := func(bindings ...rbacv1alpha1.RoleBinding) *[]rbacv1alpha1.RoleBinding { return &bindings }
	ownRole := rbacv1alpha1.RoleRef{Kind: "Role"}
	huge := make([]string, 15_000)
	for i := range huge {
		huge[i] = "a-name-that-is-as-long-as-fifty-characters-or-so"
	}

	tests := map[string]struct {
		name, namespace string
		change          func(*rbacv1alpha1.ClusterPermissionSpec)
		want            []string
	}{
		"no bindings": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { s.ClusterRoleBinding, s.RoleBindings = nil, nil },
			want:   []string{"spec"},
		},
		"role with namespace and selector": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { (*s.Roles)[0].NamespaceSelector = selector },
			want:   []string{"spec.roles[0].namespaceSelector"},
		},
		"role with neither": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { (*s.Roles)[0].Namespace = "" },
			want:   []string{"spec.roles[0].namespace"},
		},
		"role binding with namespace and selector": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { (*s.RoleBindings)[0].NamespaceSelector = selector },
			want:   []string{"spec.roleBindings[0].namespaceSelector"},
		},
		"roleRef without apiGroup": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { (*s.RoleBindings)[0].RoleRef.Name = new("admin") },
			want:   []string{"spec.roleBindings[0].roleRef.apiGroup"},
		},
		"roleRef without name": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				(*s.RoleBindings)[0].RoleRef.APIGroup = new(rbacv1.GroupName)
			},
			want: []string{"spec.roleBindings[0].roleRef.name"},
		},
		"role of another kind": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { (*s.RoleBindings)[0].RoleRef.Kind = "Rolle" },
			want:   []string{"spec.roleBindings[0].roleRef.kind"},
		},
		"subject of another kind": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { s.ClusterRoleBinding.Subject.Kind = "Robot" },
			want:   []string{"spec.clusterRoleBinding.subject.kind"},
		},
		"service account without namespace": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				(*s.RoleBindings)[0].Subject = &rbacv1.Subject{Kind: "ServiceAccount", Name: "robot"}
			},
			want: []string{"spec.roleBindings[0].subject.namespace"},
		},
		"no subjects": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { s.ClusterRoleBinding.Subject = nil },
			want:   []string{"spec.clusterRoleBinding.subjects"},
		},
		"two unnamed role bindings in a namespace": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				s.RoleBindings = roleBindings((*s.RoleBindings)[0], rbacv1alpha1.RoleBinding{Namespace: "default", RoleRef: ownRole, Subject: framework.UserSubject("eve")})
			},
			want: []string{"spec.roleBindings[1].name"},
		},
		"two unnamed cluster role bindings": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				s.ClusterRoleBindings = &[]rbacv1alpha1.ClusterRoleBinding{{Subject: framework.UserSubject("eve")}}
			},
			want: []string{"spec.clusterRoleBindings[0].name"},
		},
		"two roles in a namespace": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				s.Roles = &[]rbacv1alpha1.Role{(*s.Roles)[0], (*s.Roles)[0]}
			},
			want: []string{"spec.roles[1].namespace"},
		},
		"too long a name": {name: strings.Repeat("n", 200), want: []string{"metadata.name"}},
		"too large": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) { s.ClusterRole.Rules[0].ResourceNames = huge },
			want:   []string{"spec"},
		},
		"namespace that no cluster can have": {namespace: metav1.NamespaceDefault, want: []string{"metadata.namespace"}},
		"several at once": {
			change: func(s *rbacv1alpha1.ClusterPermissionSpec) {
				s.ClusterRole.Rules[0].Verbs = nil
				(*s.RoleBindings)[0].Namespace = "Not A Namespace"
			},
			want: []string{"spec.clusterRole.rules[0].verbs", "spec.roleBindings[0].namespace"},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			cp := framework.Permission("refused").DeepCopy()
			if test.name != "" {
				cp.Name = test.name
			}
			if test.namespace != "" {
				cp.Namespace = test.namespace
			}
			if test.change != nil {
				test.change(&cp.Spec)
			}
			_, err := f.OCM.RbacV1alpha1().ClusterPermissions(cp.Namespace).Create(t.Context(), cp, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Fatalf("error = %v, want 422 Invalid", err)
			}
			if got := framework.InvalidFields(err); !slices.Equal(got, test.want) {
				t.Errorf("paths of the error = %v, want %v: %v", got, test.want, err)
			}
			if _, err := f.OCM.RbacV1alpha1().ClusterPermissions(cp.Namespace).Get(t.Context(), cp.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get after the rejection: error = %v, want not found", err)
			}
		})
	}
	f.notDelivered(t, "refused")
}

// TestRefusedUpdate checks that an invalid update of a delivered ClusterPermission is rejected
// and that the delivered ManifestWork stays.
func TestRefusedUpdate(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "refused-update"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	before := framework.Must(f.GetWork(t.Context(), cp))(t)
	out, err := f.Kubectl(t, "", "-n", framework.Cluster1, "patch", "clusterpermission", name, "--type=merge",
		"-p", `{"spec":{"clusterRoleBinding":{"subject":{"kind":"Robot","name":"r2"}}}}`)
	if err == nil || !strings.Contains(out, "spec.clusterRoleBinding.subject.kind: Unsupported value") {
		t.Errorf("kubectl patch = %v, want a rejection of spec.clusterRoleBinding.subject.kind:\n%s", err, out)
	}
	f.passes(t, name+"-marker")
	if after := framework.Must(f.GetWork(t.Context(), cp))(t); after.Generation != before.Generation {
		t.Error("ManifestWork changed, want it unchanged")
	}
	if again := framework.Must(f.GetPermission(t.Context(), name))(t); again.Generation != cp.Generation {
		t.Error("ClusterPermission changed, want it unchanged")
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	dryRun := []string{metav1.DryRunAll}
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1)

	if _, err := permissions.Create(t.Context(), framework.Permission("dry"), metav1.CreateOptions{DryRun: dryRun}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.GetPermission(t.Context(), "dry"); !apierrors.IsNotFound(err) {
		t.Errorf("get after a dry run: error = %v, want not found", err)
	}

	const name = "dry-update"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	before := framework.Must(f.GetWork(t.Context(), cp))(t)
	cp.Spec.ClusterRole.Rules = framework.ReadPods
	if _, err := permissions.Update(t.Context(), cp, metav1.UpdateOptions{DryRun: dryRun}); err != nil {
		t.Fatal(err)
	}
	if err := permissions.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: dryRun}); err != nil {
		t.Fatal(err)
	}
	// The delivery of this later object proves that all earlier changes were processed.
	framework.CreatePermission(t, f.OCM, framework.Permission("dry-marker"))
	f.Applied(t, "dry-marker")
	if after := framework.Must(f.GetWork(t.Context(), cp))(t); after.Generation != before.Generation || after.DeletionTimestamp != nil {
		t.Error("ManifestWork changed or deleted by a dry run, want it unchanged")
	}
	if works := framework.Must(framework.WorksOf(t.Context(), f.OCM, "dry"))(t); len(works) > 0 {
		t.Errorf("ManifestWork after a dry run = %s, want none", works[0].Name)
	}
}

// TestForbidden checks that a user without permissions can neither create ClusterPermissions nor
// list ManifestWorks.
func TestForbidden(t *testing.T) {
	t.Parallel()
	f := shared(t)
	config, err := f.Hub.UserConfig("nobody-in-particular")
	stranger := framework.OCMClient(t, config, err)
	if _, err := stranger.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(t.Context(), framework.Permission("forbidden"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create by a user without permissions = %v, want 403", err)
	}
	if _, err := stranger.WorkV1().ManifestWorks(framework.Cluster1).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list of ManifestWorks by a user without permissions = %v, want 403", err)
	}
}
