package visibility

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// localPrefixes begin the names that each cluster gives to identities of its own. The hub's
// ServiceAccounts, nodes and masters are not those of a managed cluster, nor are all users of
// the hub users of the cluster: system:authenticated are other people on each. The agents of
// managed clusters are known to the hub only.
var localPrefixes = []string{"system:", clusterv1.AgentGroups("")[1]}

// subject is whom a binding names: a user or a group. A ServiceAccount is the user
// as which it comes.
type subject struct {
	group bool
	name  string
}

// hubSubjects are the subjects that mean an identity on the hub.
func hubSubjects(identity user.Info) []subject {
	subjects := make([]subject, 0, 1+len(identity.GetGroups()))
	subjects = append(subjects, subject{name: identity.GetName()})
	for _, group := range sorted(identity.GetGroups()) {
		subjects = append(subjects, subject{group: true, name: group})
	}
	return subjects
}

// managedSubjects are the subjects on a managed cluster that are taken for an
// identity of the hub.
func managedSubjects(identity user.Info) []subject {
	return slices.DeleteFunc(hubSubjects(identity), func(s subject) bool {
		return s.name == "" || slices.ContainsFunc(localPrefixes, func(prefix string) bool { return strings.HasPrefix(s.name, prefix) })
	})
}

// boundSubjects are whom a binding names; namespace is that of the binding.
func boundSubjects(given []rbacv1.Subject, namespace string) []subject {
	subjects := make([]subject, 0, len(given))
	for i := range given {
		switch s := &given[i]; s.Kind {
		case rbacv1.UserKind:
			subjects = append(subjects, subject{name: s.Name})
		case rbacv1.GroupKind:
			subjects = append(subjects, subject{group: true, name: s.Name})
		case rbacv1.ServiceAccountKind:
			in := s.Namespace
			if in == "" {
				in = namespace
			}
			if in != "" {
				subjects = append(subjects, subject{name: serviceaccount.MakeUsername(in, s.Name)})
			}
		}
	}
	return subjects
}

// identityKey is equal only for the same identity: name, UID, groups and extra
// together, since many authenticators give no UID at all.
func identityKey(identity user.Info) string {
	var key []byte
	add := func(texts ...string) {
		key = binary.AppendUvarint(key, uint64(len(texts)))
		for _, text := range texts {
			key = binary.AppendUvarint(key, uint64(len(text)))
			key = append(key, text...)
		}
	}
	add(identity.GetName(), identity.GetUID())
	add(sorted(identity.GetGroups())...)
	extra := identity.GetExtra()
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		add(name)
		add(sorted(extra[name])...)
	}
	return string(key)
}

// copied keeps an identity as it is now.
func copied(identity user.Info) *user.DefaultInfo {
	extra := make(map[string][]string, len(identity.GetExtra()))
	for name, values := range identity.GetExtra() {
		extra[name] = slices.Clone(values)
	}
	return &user.DefaultInfo{Name: identity.GetName(), UID: identity.GetUID(), Groups: slices.Clone(identity.GetGroups()), Extra: extra}
}
