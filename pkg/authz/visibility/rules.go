package visibility

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	verbGet    = "get"
	verbList   = "list"
	verbCreate = "create"

	// A caller with permission to create managedclusterviews can find the resources of the managed
	// cluster.
	viewGroup    = "view.open-cluster-management.io"
	viewResource = "managedclusterviews"
)

// createView is the request to create a managedclusterview. It has no name, so a rule with names does not allow it.
var createView = rbac.Request{Verb: verbCreate, Group: viewGroup, Resource: viewResource}

// DefaultRoleLabel is the label of the default ClusterRoles of an API server. Informers of
// ClusterRoles must keep it.
const DefaultRoleLabel = "kubernetes.io/bootstrapping"

// isDefault reports whether an object is a default ClusterRole.
func isDefault(object any) bool {
	role, ok := object.(*rbacv1.ClusterRole)
	return ok && role.Labels[DefaultRoleLabel] == "rbac-defaults"
}

// relevant returns the part of rules that affects visibility, with sorted lists: the permissions to list resources, to create
// managedclusterviews, and to get resources of the group of ManagedClusters. Other changes of a role concern no Scope.
func relevant(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var kept []rbacv1.PolicyRule
	for i := range rules {
		rule := &rules[i]
		if len(rule.APIGroups) == 0 || len(rule.Resources) == 0 {
			continue
		}
		var verbs []string
		for verb, group := range map[string]string{verbGet: clusterv1.GroupName, verbList: "", verbCreate: viewGroup} {
			if rbac.ContainsOrAll(rule.Verbs, verb) && (group == "" || rbac.ContainsOrAll(rule.APIGroups, group)) {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			kept = append(kept, rbacv1.PolicyRule{
				Verbs: sorted(verbs), APIGroups: sorted(rule.APIGroups), Resources: sorted(rule.Resources), ResourceNames: sorted(rule.ResourceNames),
			})
		}
	}
	return kept
}

// sorted returns a sorted copy without duplicates.
func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
