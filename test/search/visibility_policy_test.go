package search

import (
	"fmt"
	"math/rand/v2"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policyLabel is the label of every object of a random policy.
const policyLabel = "exactness.example.com/policy"

// rbacPolicy contains the RBAC objects of one round.
type rbacPolicy struct {
	roles           []*rbacv1.Role
	clusterRoles    []*rbacv1.ClusterRole
	bindings        []*rbacv1.RoleBinding
	clusterBindings []*rbacv1.ClusterRoleBinding
	// aggregate is a ClusterRole that the hub aggregates, and aggregated its number of rules.
	aggregate  string
	aggregated int
}

// randomPolicy returns a policy with few broad and many narrow grants, so that most decisions depend on several objects.
func randomPolicy(rng *rand.Rand, round int) *rbacPolicy {
	p := &rbacPolicy{aggregate: fmt.Sprintf("aggregate-%d", round)}
	aggregateLabel := fmt.Sprintf("exactness.example.com/round-%d", round)
	meta := func(kind, namespace string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%d", kind, round, i), Namespace: namespace, Labels: map[string]string{policyLabel: "", "plain": ""}}
	}
	for i := range 8 {
		role := &rbacv1.ClusterRole{ObjectMeta: meta("role", "", i), Rules: randomRules(rng)}
		if i < 2 {
			role.Labels[aggregateLabel] = ""
			// The hub aggregates equal rules once. Different API groups make these rules different.
			role.Rules = []rbacv1.PolicyRule{{
				APIGroups: []string{askedGroups[i]}, Resources: someOf(rng, askedResources, 1, 2), Verbs: []string{"list"}, ResourceNames: someOf(rng, askedNames, 0, 2),
			}}
			p.aggregated++
		}
		p.clusterRoles = append(p.clusterRoles, role)
	}
	p.clusterRoles = append(p.clusterRoles, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: p.aggregate, Labels: map[string]string{policyLabel: ""}},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: aggregateLabel, Operator: metav1.LabelSelectorOpExists}}},
		}},
	})
	for i := range 8 {
		p.roles = append(p.roles, &rbacv1.Role{ObjectMeta: meta("role", oneOf(rng, []string{"one", "two", "three"}), i), Rules: randomRules(rng)})
	}
	for i := range 10 {
		binding := &rbacv1.RoleBinding{ObjectMeta: meta("binding", oneOf(rng, []string{"one", "two", "three"}), i), Subjects: randomSubjects(rng, false)}
		switch rng.IntN(8) {
		case 0:
			binding.RoleRef = roleRef("Role", "missing")
		case 1:
			binding.RoleRef = roleRef("ClusterRole", p.aggregate)
		case 2, 3, 4:
			binding.RoleRef = roleRef("ClusterRole", oneOf(rng, p.clusterRoles).Name)
		default:
			// If the Role is in another namespace than the binding, the reference is dangling.
			role := oneOf(rng, p.roles)
			binding.RoleRef = roleRef("Role", role.Name)
			if rng.IntN(4) > 0 {
				binding.Namespace = role.Namespace
			}
		}
		p.bindings = append(p.bindings, binding)
	}
	for i := range 4 {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta("binding", "", i), Subjects: randomSubjects(rng, true)}
		binding.RoleRef = roleRef("ClusterRole", oneOf(rng, p.clusterRoles).Name)
		p.clusterBindings = append(p.clusterBindings, binding)
	}
	return p
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func randomRules(rng *rand.Rand) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range rng.IntN(4) {
		rule := rbacv1.PolicyRule{
			APIGroups: someOf(rng, askedGroups, 1, 2),
			Resources: someOf(rng, append([]string{"*/log", "pods/*", "view"}, askedResources...), 1, 3),
			Verbs:     someOf(rng, []string{"list", "list", "list", "get", "watch", "create", "*"}, 1, 3),
		}
		switch rng.IntN(10) {
		case 0:
			rule.APIGroups = []string{"*"}
		case 1:
			rule.Resources = append(rule.Resources, "*")
		case 2:
			rule.APIGroups, rule.Resources = []string{"view.open-cluster-management.io"}, []string{"managedclusterviews"}
			rule.Verbs = append(rule.Verbs, "create")
		}
		if rng.IntN(3) == 0 {
			rule.ResourceNames = someOf(rng, askedNames, 1, 3)
		}
		rules = append(rules, rule)
	}
	return rules
}

func randomSubjects(rng *rand.Rand, clusterWide bool) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for range 1 + rng.IntN(2) {
		switch kind := rng.IntN(3); {
		case kind == 0:
			name := oneOf(rng, askedIdentities).Name
			subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
		case kind == 1:
			group := oneOf(rng, []string{"team-a", "team-b", "team-c", "team-z", "system:serviceaccounts:one", "system:authenticated", "ann"})
			subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
		default:
			namespace := oneOf(rng, []string{"one", "two", "nowhere"})
			if !clusterWide && rng.IntN(2) == 0 {
				// The API server defaults the namespace to that of the binding.
				namespace = ""
			}
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "robot"})
		}
	}
	return subjects
}

// markers returns one object of each kind. Their effect shows that the policy of the round is in use.
func markers(round int) *rbacPolicy {
	meta := metav1.ObjectMeta{Name: markerName(round), Labels: map[string]string{policyLabel: ""}}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: meta.Name}}
	return &rbacPolicy{
		roles: []*rbacv1.Role{{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		}}},
		clusterRoles: []*rbacv1.ClusterRole{{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"list"}},
		}}},
		bindings:        []*rbacv1.RoleBinding{{ObjectMeta: meta, Subjects: subjects, RoleRef: roleRef("Role", meta.Name)}},
		clusterBindings: []*rbacv1.ClusterRoleBinding{{ObjectMeta: meta, Subjects: subjects, RoleRef: roleRef("ClusterRole", meta.Name)}},
	}
}
