package differential_test

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a resource of the managed cluster that a manifest can contain.
type resource struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
}

func served(group, version, plural, kind string, namespaced bool) resource {
	return resource{schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, kind, namespaced}
}

// binds reports whether objects of the resource are bindings.
func (r resource) binds() bool { return r == roleBindings || r == clusterRoleBindings }

var (
	roles               = served(rbacv1.GroupName, "v1", "roles", "Role", true)
	clusterRoles        = served(rbacv1.GroupName, "v1", "clusterroles", "ClusterRole", false)
	roleBindings        = served(rbacv1.GroupName, "v1", "rolebindings", "RoleBinding", true)
	clusterRoleBindings = served(rbacv1.GroupName, "v1", "clusterrolebindings", "ClusterRoleBinding", false)

	rbacResources  = []resource{roles, clusterRoles, roleBindings, clusterRoleBindings}
	plainResources = []resource{
		served("", "v1", "configmaps", "ConfigMap", true),
		served("", "v1", "secrets", "Secret", true),
		served("", "v1", "serviceaccounts", "ServiceAccount", true),
		served("apps", "v1", "deployments", "Deployment", true),
		served("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
		served("differential.example.com", "v1", "widgets", "Widget", true),
		served("differential.example.com", "v1", "gadgets", "Gadget", false),
		served("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false),
		namespaces,
	}
	namespaces = served("", "v1", "namespaces", "Namespace", false)
)

// lifecycle lists the verbs that the objects of a ManifestWork can require.
var lifecycle = []string{"get", "create", "update", "patch", "delete"}

func (w *world) resource() resource {
	if w.chance(40) {
		return pick(w, rbacResources)
	}
	return pick(w, plainResources)
}

// rules returns the rules of a role that may be bound to the executor.
func (w *world) rules(cluster bool) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{}
	for range w.rng.IntN(5) {
		rules = append(rules, w.rule())
	}
	if w.chance(15) {
		rules = append(rules, w.delegation()...)
	}
	if cluster && w.chance(25) {
		rules = append(rules, w.urlRule())
	}
	return rules
}

// delegation returns rules that allow escalate or bind on some roles.
func (w *world) delegation() []rbacv1.PolicyRule {
	looksAfter := rbacv1.PolicyRule{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "clusterroles"},
		Verbs: w.some([]string{"escalate", "bind"}, 1, 2), ResourceNames: w.some(append([]string{w.id + "-role-0", "view"}, w.names...), 1, 3),
	}
	if w.chance(30) {
		looksAfter.ResourceNames = nil
	}
	return []rbacv1.PolicyRule{looksAfter, {
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"}, Verbs: lifecycle,
	}}
}

func (w *world) urlRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs:           w.some([]string{"get", "post", "*"}, 1, 2),
		NonResourceURLs: w.some([]string{"/metrics", "/metrics/*", "/healthz", "*"}, 1, 2),
	}
}

// rule returns a rule that mostly allows all verbs that a ManifestWork requires for some resources,
// or all of them except one.
func (w *world) rule() rbacv1.PolicyRule {
	var rule rbacv1.PolicyRule
	for range 1 + w.rng.IntN(3) {
		resource := w.resource()
		rule.APIGroups = append(rule.APIGroups, resource.Group)
		rule.Resources = append(rule.Resources, resource.Resource)
	}
	switch w.rng.IntN(14) {
	case 0:
		rule.APIGroups = []string{"*"}
	case 1:
		rule.Resources = []string{"*"}
	case 2:
		rule.APIGroups, rule.Resources = []string{"*"}, []string{"*"}
	case 3:
		// A rule for a subresource does not grant access to the object itself.
		rule.Resources = w.some([]string{"configmaps/status", "deployments/scale", "*/status", "widgets/status", "roles/*"}, 1, 2)
	case 4:
		rule.Resources = append(rule.Resources, "*/status", "pods/log")
	case 5, 6:
		// With these rules, only the API server's escalation check limits the executor.
		rule.APIGroups = []string{rbacv1.GroupName}
		rule.Resources = []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"}
	}
	switch w.rng.IntN(9) {
	case 0:
		rule.Verbs = []string{"*"}
	case 1:
		rule.Verbs = w.some(lifecycle, 1, 4)
	case 2, 3:
		without := w.rng.IntN(len(lifecycle))
		for i, verb := range lifecycle {
			if i != without {
				rule.Verbs = append(rule.Verbs, verb)
			}
		}
	case 4:
		rule.APIGroups, rule.Resources = []string{rbacv1.GroupName}, w.some([]string{"roles", "clusterroles", "rolebindings"}, 1, 2)
		rule.Verbs = w.some([]string{"escalate", "bind", "escalate", "bind", "get", "*"}, 1, 2)
	default:
		rule.Verbs = append(rule.Verbs, lifecycle...)
	}
	if w.chance(30) {
		rule.ResourceNames = w.some(append([]string{"other", w.id + "-role-0", w.id + "-role-1", w.namespaces[0]}, w.names...), 1, 4)
		if w.chance(10) {
			// An empty resource name matches a request without a name.
			rule.ResourceNames = append(rule.ResourceNames, "")
		}
	}
	return rule
}

// smallRules returns the rules of a delivered role. They are few, so that the executor sometimes
// holds all of them.
func (w *world) smallRules(cluster bool) []any {
	rules := []any{}
	for range w.rng.IntN(3) {
		resource := w.resource()
		rule := map[string]any{
			"apiGroups": []any{resource.Group}, "resources": []any{resource.Resource},
			"verbs": anyStrings(w.some(lifecycle, 1, 2)),
		}
		switch {
		case w.chance(20):
			rule["resourceNames"] = anyStrings(w.some(w.names, 1, 2))
		case w.chance(5):
			rule["resources"] = []any{"*"}
		}
		rules = append(rules, rule)
	}
	if cluster && w.chance(25) {
		url := w.urlRule()
		rules = append(rules, map[string]any{"verbs": anyStrings(url.Verbs), "nonResourceURLs": anyStrings(url.NonResourceURLs)})
	}
	return rules
}

func anyStrings(list []string) []any {
	values := make([]any, len(list))
	for i, item := range list {
		values[i] = item
	}
	return values
}

// subjects returns the subjects of a RoleBinding, or of a ClusterRoleBinding if namespace is empty.
// They mostly include the executor.
func (w *world) subjects(namespace string) []rbacv1.Subject {
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
	}
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	subjects := []rbacv1.Subject{}
	for range w.rng.IntN(3) {
		subjects = append(subjects, pick(w, []rbacv1.Subject{
			account(w.executorNamespace, "other"), account("elsewhere", w.executorName),
			user(w.executorName), user(w.executorNamespace + ":" + w.executorName), group("system:serviceaccounts:elsewhere"),
			group("system:unauthenticated"), group("system:serviceaccount:" + w.executorNamespace + ":" + w.executorName),
		}))
	}
	if !w.chance(75) {
		return subjects
	}
	forms := []rbacv1.Subject{
		account(w.executorNamespace, w.executorName), account(w.executorNamespace, w.executorName),
		user("system:serviceaccount:" + w.executorNamespace + ":" + w.executorName),
		group("system:serviceaccounts:" + w.executorNamespace),
	}
	if namespace != "" {
		// These groups affect no other executor, because the namespace belongs to this world.
		forms = append(forms, group("system:serviceaccounts"), group("system:authenticated"))
		if namespace == w.executorNamespace {
			// The API server defaults the namespace to that of the binding.
			forms = append(forms, account("", w.executorName))
		}
	}
	return append(subjects, pick(w, forms))
}
