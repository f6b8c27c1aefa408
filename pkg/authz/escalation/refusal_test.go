package escalation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/net"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

func TestRefusal(t *testing.T) {
	refusal := check(t, alice, &hub{}, manifests(t, readerRole+aliceReadsInA), yamlSpec(t, `
clusterRole: {rules: [{apiGroups: ["", apps], resources: [pods, "*/scale"], verbs: [get, list]}, {nonResourceURLs: ["/logs/*"], verbs: [get]}]}
clusterRoleBinding: {roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: there}, subject: {kind: User, name: bob}}
roles: [{namespace: a, rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]}, {namespaceSelector: {}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]
roleRefs: [{kind: Role, namespace: a, name: ofhub}]
`), nil)
	want := `user "alice" cannot grant permissions that the user does not hold on managed cluster "cluster1":
spec.clusterRole, cluster-wide: {apiGroups: ["", apps], resources: ["*/scale", pods], verbs: [get, list]}
spec.clusterRole, cluster-wide: {nonResourceURLs: ["/logs/*"], verbs: [get]}
spec.roles[0], in namespace "a": {apiGroups: [""], resources: [pods], verbs: [watch]}
spec.roles[1], in every namespace: {apiGroups: [""], resources: [pods], verbs: [get]}
spec.clusterRoleBinding, cluster-wide: ClusterRole "there": its rules are unknown or may change
spec.roleRefs[0], in namespace "a": the hub's Role "ofhub" in namespace "a": its rules are unknown or may change
grant it with a Role in namespace "cluster1" that contains the rule {apiGroups: [rbac.open-cluster-management.io], resources: [clusterpermissions], resourceNames: [grants], verbs: [bind, escalate]}`
	if got := refusal.Message(); got != want {
		t.Errorf("Message() =\n%s\nwant\n%s", got, want)
	}
	err := refusal.Forbidden()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "clusterpermissions.rbac.open-cluster-management.io \"grants\"") {
		t.Errorf("Forbidden() = %v, want the message on clusterpermissions \"grants\"", err)
	}
	wantWarnings := []string{
		`spec.clusterRole (cluster-wide): requires escalate: {apiGroups: ["", apps], resources: ["*/scale", pods], verbs: [get, list]}, {nonResourceURLs: ["/logs/*"], verbs: [get]}`,
		`spec.roles[0] (in namespace "a"): requires escalate: {apiGroups: [""], resources: [pods], verbs: [watch]}`,
		`spec.roles[1] (in every namespace): requires escalate: {apiGroups: [""], resources: [pods], verbs: [get]}`,
		`spec.clusterRoleBinding (cluster-wide): requires bind: ClusterRole "there": its rules are unknown or may change`,
		`spec.roleRefs[0] (in namespace "a"): requires escalate: the hub's Role "ofhub" in namespace "a": its rules are unknown or may change`,
	}
	if got := refusal.Warnings(); !slices.Equal(got, wantWarnings) {
		t.Errorf("Warnings() =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantWarnings, "\n"))
	}

	refusal = check(t, alice, &hub{allowed: []string{"escalate"}}, manifests(t, masterRole),
		yamlSpec(t, `clusterRoleBinding: {`+refTo("ClusterRole", "master")+`, `+toBob+`}`), nil)
	if got := refusal.Message(); !strings.HasSuffix(got, "verbs: [bind]}") ||
		!strings.Contains(got, `spec.clusterRoleBinding, cluster-wide: ClusterRole "master" with {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}`) {
		t.Errorf("Message() =\n%s\nwant the binding of master and the verb bind", got)
	}
}

// Messages and warnings are bounded for every spec.
func TestRefusalIsBounded(t *testing.T) {
	long := strings.Repeat("é\n\x00", 1000)
	s := &rbacv1alpha1.ClusterPermissionSpec{ClusterRole: &rbacv1alpha1.ClusterRole{}}
	var refs []rbacv1alpha1.HubRoleRef
	for i := range 100 {
		s.ClusterRole.Rules = append(s.ClusterRole.Rules, rbacv1.PolicyRule{
			APIGroups: []string{fmt.Sprint(i)}, Resources: []string{fmt.Sprint(i) + long}, Verbs: []string{fmt.Sprint(i)},
		})
		refs = append(refs, rbacv1alpha1.HubRoleRef{Kind: "ClusterRole", Name: fmt.Sprint(i) + long})
	}
	s.RoleRefs = &refs
	refusal := check(t, alice, &hub{}, nil, s, nil)

	message := refusal.Message()
	if len(message) > 32768 {
		t.Errorf("length of Message() = %d bytes, want at most 32768", len(message))
	}
	if lines := strings.Count(message, "\n") + 1; lines != 1+20+1+1 || !strings.Contains(message, "\nand 180 more\n") {
		t.Errorf("lines of Message() = %d, want 23 with the number of omitted lines:\n%s", lines, message)
	}
	warnings := refusal.Warnings()
	if len(warnings) != 6 || warnings[5] != "and 96 more" {
		t.Errorf("Warnings() = %d warnings %q, want 5 and the number of omitted warnings", len(warnings), warnings)
	}
	for _, warning := range warnings {
		if _, err := net.NewWarningHeader(299, "-", warning); err != nil || len(warning) >= 250 {
			t.Errorf("warning of %d bytes = %q, %v, want less than 250 bytes and a valid header", len(warning), warning, err)
		}
	}
}

// A few kilobytes can list billions of combinations, which the check does not compare. It
// denies a caller who does not hold everything, even if the caller holds all of these
// combinations.
func TestCombinationsBeyondTheBudget(t *testing.T) {
	words := make([]string, 60)
	for i := range words {
		words[i] = fmt.Sprint("w", i)
	}
	rule := rbacv1.PolicyRule{APIGroups: words, Resources: words, Verbs: words}
	s := &rbacv1alpha1.ClusterPermissionSpec{ClusterRole: &rbacv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{rule}}}
	held := manifests(t, readerRole+aliceReads+bound("huge", "{kind: User, name: alice}"))
	held = append(held, source{}.manifest(t, &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: "huge"}, Rules: s.ClusterRole.Rules,
	}))
	refusal := check(t, alice, &hub{}, held, s, nil)
	if refusal == nil || len(refusal.Missing[0].Rules) != 1 || len(refusal.Missing[0].Rules[0].Verbs) != len(words) {
		t.Fatalf("missing grants of Check() = %v, want the unchanged rule", missing(refusal))
	}
	if refusal := check(t, alice, &hub{}, manifests(t, masterRole+bound("master", "{kind: User, name: alice}")), s, nil); refusal != nil {
		t.Errorf("missing grants of a caller who holds everything = %v, want none", missing(refusal))
	}
	bigger := s.DeepCopy()
	bigger.ClusterRole.Rules[0].Verbs = append(bigger.ClusterRole.Rules[0].Verbs, "more")
	if refusal := check(t, alice, &hub{allowed: []string{"escalate"}}, nil, bigger, s); refusal != nil {
		t.Errorf("missing grants of a caller with escalate = %v, want none", missing(refusal))
	}
	if check(t, alice, &hub{}, nil, bigger, s) == nil {
		t.Error("missing grants of a rule with one more verb = none, want the rule")
	}
}

// All parts of a spec share one budget.
func TestManyCombinations(t *testing.T) {
	words := make([]string, 30)
	for i := range words {
		words[i] = fmt.Sprint("w", i)
	}
	rules := []rbacv1.PolicyRule{{APIGroups: words, Resources: words, Verbs: words}}
	held := append(manifests(t, readerRole+aliceReads+bound("big", "{kind: User, name: alice}")), source{}.manifest(t, &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: "big"}, Rules: rules,
	}))
	one := &rbacv1alpha1.ClusterPermissionSpec{ClusterRole: &rbacv1alpha1.ClusterRole{Rules: rules}}
	if refusal := check(t, alice, &hub{}, held, one, nil); refusal != nil {
		t.Errorf("missing grants of one role = %v, want none", missing(refusal))
	}
	var roles []rbacv1alpha1.Role
	for i := range 10 {
		roles = append(roles, rbacv1alpha1.Role{Namespace: fmt.Sprint("n", i), Rules: rules})
	}
	if check(t, alice, &hub{}, held, &rbacv1alpha1.ClusterPermissionSpec{Roles: &roles}, nil) == nil {
		t.Error("missing grants of ten roles = none, want the roles that exceed the budget")
	}
}
