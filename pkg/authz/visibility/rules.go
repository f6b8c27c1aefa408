package visibility

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	verbGet    = "get"
	verbList   = "list"
	verbCreate = "create"

	// A caller with permission to create managedclusterviews can find the resources of the managed cluster.
	viewGroup    = "view.open-cluster-management.io"
	viewResource = "managedclusterviews"
)

// createView is the request to create a managedclusterview. It has no name, so a rule with names does not allow it.
var createView = rbac.Request{Verb: verbCreate, Group: viewGroup, Resource: viewResource}

// DefaultRoleLabel is the label of the default ClusterRoles of an API server. Informers of ClusterRoles must keep it.
const DefaultRoleLabel = "kubernetes.io/bootstrapping"

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
				Verbs: rbac.Sorted(verbs), APIGroups: rbac.Sorted(rule.APIGroups), Resources: rbac.Sorted(rule.Resources), ResourceNames: rbac.Sorted(rule.ResourceNames),
			})
		}
	}
	return kept
}

// localPrefixes are the prefixes of identities that differ between clusters. The ServiceAccounts, nodes, masters and
// authenticated users of the hub are different identities on a managed cluster. The agents exist on the hub only.
var localPrefixes = []string{"system:", clusterv1.AgentGroups("")[1]}

// hubSubjects returns the subjects that include an identity on the hub.
func hubSubjects(identity user.Info) []rbac.Subject {
	return access.Subject{User: identity.GetName(), Groups: identity.GetGroups()}.Subjects()
}

// ManagedSubjects returns the subjects on a managed cluster that include an identity of the hub.
func ManagedSubjects(identity user.Info) []rbac.Subject {
	return slices.DeleteFunc(hubSubjects(identity), local)
}

// local reports whether the subject is another identity on each cluster.
func local(s rbac.Subject) bool {
	return s.Name == "" || slices.ContainsFunc(localPrefixes, func(prefix string) bool { return strings.HasPrefix(s.Name, prefix) })
}

// identityKey returns a string that is equal only for the same name, UID, groups and extra.
// Many authenticators set no UID.
func identityKey(identity user.Info) string {
	var key rbac.Content
	key.Add(identity.GetName(), identity.GetUID())
	key.Add(rbac.Sorted(identity.GetGroups())...)
	extra := identity.GetExtra()
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		key.Add(name)
		key.Add(rbac.Sorted(extra[name])...)
	}
	return string(key)
}

func copied(identity user.Info) *user.DefaultInfo {
	extra := make(map[string][]string, len(identity.GetExtra()))
	for name, values := range identity.GetExtra() {
		extra[name] = slices.Clone(values)
	}
	return &user.DefaultInfo{Name: identity.GetName(), UID: identity.GetUID(), Groups: slices.Clone(identity.GetGroups()), Extra: extra}
}
