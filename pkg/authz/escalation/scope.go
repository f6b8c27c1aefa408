package escalation

import (
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// scope is the part of the managed cluster in which permissions are granted. The zero value is cluster-wide.
type scope struct {
	// namespace is empty if namespaces are selected.
	namespace string
	// A selector may select any namespace, because labels change later. selector
	// distinguishes grants: a different selector is a different grant.
	selected bool
	selector string
}

// scopeOf returns the scope of a namespaced object. An object with neither a namespace nor a selector is never
// delivered, and counts as cluster-wide. If it has both, the selector takes precedence.
func scopeOf(namespace string, selector *metav1.LabelSelector) scope {
	if selector == nil {
		return scope{namespace: namespace}
	}
	return scope{selected: true, selector: canonical(selector)}
}

// canonical returns a string that is equal only for selectors that select the same namespaces.
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

// hubRole returns the key of the hub role that a reference refers to. It has the same key on the managed cluster.
func hubRole(ref rbacv1alpha1.HubRoleRef) rbac.Key {
	return rbac.Key{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// within returns the rules that a binding in a scope grants: only a cluster-wide binding grants access to URLs.
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
