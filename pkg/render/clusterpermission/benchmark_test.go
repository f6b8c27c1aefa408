package clusterpermission

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

func BenchmarkRender(b *testing.B) {
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "qa"}}
	alice := &rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}
	manyNamespaces := permission(v1alpha1.ClusterPermissionSpec{
		Roles: &[]v1alpha1.Role{{NamespaceSelector: team, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods", "services"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch", "update"}},
		}}},
		RoleBindings: &[]v1alpha1.RoleBinding{{NamespaceSelector: team, RoleRef: v1alpha1.RoleRef{Kind: kindRole}, Subject: alice}},
	})
	namespaces := func(count int) Inputs { return Inputs{NamespacesKnown: true, Namespaces: numbered(count)} }
	for name, bench := range map[string]struct {
		cp *v1alpha1.ClusterPermission
		in Inputs
		// manifests is 0 if the ManifestWork would be too large.
		manifests int
		limit     int64
	}{
		"Small":              {cp: load(b, "testdata/clusterrole-unnamed.yaml"), in: loadInputs(b), manifests: 2},
		"ThousandNamespaces": {cp: manyNamespaces, in: namespaces(1000), manifests: 2000},
		// Two roles are merged in every namespace.
		"MeetingTooLarge":  {cp: overlapping(2, 3000), in: namespaces(6), limit: defaultLimitBytes},
		"MeetingUnbounded": {cp: overlapping(2, 100), in: namespaces(5000), manifests: 5000},
		// Close to the limit.
		"MeetingLarge": {cp: overlapping(2, 3000), in: namespaces(1), limit: defaultLimitBytes, manifests: 1},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.in.SizeLimitBytes = bench.limit
				result, errs := Render(bench.cp, bench.in)
				if bench.manifests == 0 && isTooLarge(errs) {
					continue
				}
				if len(errs) > 0 || len(result.Work.Spec.Workload.Manifests) != bench.manifests {
					b.Fatalf("Render() = %v, %v, want %d manifests", result, errs, bench.manifests)
				}
			}
		})
	}
}
