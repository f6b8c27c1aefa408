package escalation

import (
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

const (
	kindRole               = "Role"
	kindClusterRole        = "ClusterRole"
	kindRoleBinding        = "RoleBinding"
	kindClusterRoleBinding = "ClusterRoleBinding"
)

// scope is where on the managed cluster something is granted. The zero value is
// cluster-wide.
type scope struct {
	// namespace is empty where something is selected.
	namespace string
	// A selector selects any namespace, for labels change later; it is kept only
	// because another selector is another grant.
	selected bool
	selector string
}

// placed is the scope of a namespaced object. One without a place, which is never
// delivered, counts as cluster-wide, and one with two as placed by its selector.
func placed(namespace string, selector *metav1.LabelSelector) scope {
	if selector == nil {
		return scope{namespace: namespace}
	}
	return scope{selected: true, selector: canonical(selector)}
}

// canonical is equal only for selectors that select the same. Another way to write
// one may count as another selector.
func canonical(selector *metav1.LabelSelector) string {
	if parsed, err := metav1.LabelSelectorAsSelector(selector); err == nil {
		return parsed.String()
	}
	// A selector that does not parse equals only itself.
	raw, _ := json.Marshal(selector)
	return "invalid " + string(raw)
}

func (s scope) clusterWide() bool {
	return s == scope{}
}

func (s scope) String() string {
	switch {
	case s.clusterWide():
		return "cluster-wide"
	case s.selected:
		return "in every namespace"
	}
	return fmt.Sprintf("in namespace %q", s.namespace)
}

// roleKey names a role of a cluster. The namespace is empty for a ClusterRole, and
// for a Role that is meant in every namespace.
type roleKey struct {
	kind, namespace, name string
}

func (k roleKey) String() string {
	if k.namespace != "" {
		return fmt.Sprintf("%s %q in namespace %q", k.kind, k.name, k.namespace)
	}
	return fmt.Sprintf("%s %q", k.kind, k.name)
}

// hubRole tells which role of the hub a reference means; it is the same one on the
// managed cluster.
func hubRole(ref rbacv1alpha1.HubRoleRef) roleKey {
	return roleKey{kind: ref.Kind, namespace: ref.Namespace, name: ref.Name}
}

// within are the rules as a binding in a scope grants them: only a cluster-wide one
// grants access to URLs.
func within(s scope, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if s.clusterWide() {
		return rules
	}
	return withoutURLs(rules)
}

func withoutURLs(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var kept []rbacv1.PolicyRule
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			rule.NonResourceURLs = nil
			kept = append(kept, rule)
		}
	}
	return kept
}

func onlyURLs(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var kept []rbacv1.PolicyRule
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			kept = append(kept, rbacv1.PolicyRule{NonResourceURLs: rule.NonResourceURLs, Verbs: rule.Verbs})
		}
	}
	return kept
}
