package preflight

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// TestBoundRules checks the rules that an executor must hold to bind a role, if the same ManifestWork delivers the role.
func TestBoundRules(t *testing.T) {
	t.Parallel()
	live := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
	manifest := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	role := func(strategy workv1.UpdateStrategyType) *grant {
		return &grant{strategy: strategy, rules: manifest, given: true}
	}
	for name, test := range map[string]struct {
		mode      Mode
		delivered *grant
		absent    bool
		want      []rbacv1.PolicyRule
		unknown   bool
	}{
		"a role on the cluster":               {mode: Impersonate, want: live},
		"an absent role":                      {mode: Impersonate, absent: true, unknown: true},
		"a delivered role":                    {mode: Impersonate, delivered: role(workv1.UpdateStrategyTypeUpdate), want: manifest},
		"a delivered role without rules":      {mode: Impersonate, delivered: &grant{strategy: workv1.UpdateStrategyTypeUpdate}, want: live},
		"a delivered aggregated role":         {mode: Impersonate, delivered: &grant{aggregated: true}, want: rbac.Everything},
		"a role that is only created":         {mode: Impersonate, delivered: role(workv1.UpdateStrategyTypeCreateOnly), want: live},
		"an absent role that is only created": {mode: Impersonate, delivered: role(workv1.UpdateStrategyTypeCreateOnly), absent: true, want: manifest},
		// The write of the role may fail, and no API server checks the write of the binding.
		"a delivered role, in mode Review": {mode: Review, delivered: role(workv1.UpdateStrategyTypeUpdate), want: slices.Concat(live, manifest)},
	} {
		existing := live
		if test.absent {
			existing = nil
		}
		got, known := bound(test.mode, test.delivered, existing, !test.absent)
		if known == test.unknown || !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("bound() of %s = %v, %t, want %v, %t", name, got, known, test.want, !test.unknown)
		}
	}
}
