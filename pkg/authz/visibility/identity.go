package visibility

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// localPrefixes are the prefixes of identities that differ between clusters. The
// ServiceAccounts, nodes, masters and authenticated users of the hub are different
// identities on a managed cluster. The agents of managed clusters exist on the hub only.
var localPrefixes = []string{"system:", clusterv1.AgentGroups("")[1]}

// hubSubjects returns the subjects that include an identity on the hub.
func hubSubjects(identity user.Info) []rbac.Subject {
	subjects := make([]rbac.Subject, 0, 1+len(identity.GetGroups()))
	subjects = append(subjects, rbac.Subject{Name: identity.GetName()})
	for _, group := range sorted(identity.GetGroups()) {
		subjects = append(subjects, rbac.Subject{Group: true, Name: group})
	}
	return subjects
}

// ManagedSubjects returns the subjects on a managed cluster that include an identity of the
// hub.
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
	key.Add(sorted(identity.GetGroups())...)
	extra := identity.GetExtra()
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		key.Add(name)
		key.Add(sorted(extra[name])...)
	}
	return string(key)
}

// copied returns a copy of an identity.
func copied(identity user.Info) *user.DefaultInfo {
	extra := make(map[string][]string, len(identity.GetExtra()))
	for name, values := range identity.GetExtra() {
		extra[name] = slices.Clone(values)
	}
	return &user.DefaultInfo{Name: identity.GetName(), UID: identity.GetUID(), Groups: slices.Clone(identity.GetGroups()), Extra: extra}
}
