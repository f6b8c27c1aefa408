package access

import (
	"slices"
	"strings"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// word is a name that all users of it share. The runtime frees it after the last one.
type word = unique.Handle[string]

var (
	anyWord  = unique.Make("*")
	noString = unique.Make("")
	// someWord differs from every string.
	someWord word
)

// records contains the roles and bindings of all clusters, each different one once. A
// record is deleted with the last cluster that has it.
type records struct {
	ruleSets map[rbac.Fingerprint]*ruleSet
	bindings map[rbac.Fingerprint]*binding
	nodes    map[nodeKey]*node
	subjects map[subjectKey]*subject
	lastID   uint64
	// sets are all rule sets, in an order that changes only with them.
	sets []listedSet
}

// ruleSet contains the rules of one or several roles. It is immutable except for users.
type ruleSet struct {
	rbac.RuleSet
	// escalations are the rules that allow to gain other permissions.
	escalations []escalation
	users       []*role
	// at is the position in the list of all rule sets.
	at uint32
}

// listedSet is a rule set with its marks: most questions skip most rule sets without reading them.
type listedSet struct {
	marks rbac.Marks
	*ruleSet
}

// nodeKey identifies a Role, or a ClusterRole if the namespace is empty.
type nodeKey struct{ namespace, name word }

// node is the name of a role: the roles with this name on different clusters, and the bindings that refer to them.
type node struct {
	nodeKey
	// id orders the roles of a cluster.
	id    uint64
	roles []*role
	// buckets contain the bindings, by their namespace.
	buckets map[word]*bucket
}

// bucket contains the bindings of one namespace that refer to a node. Questions are about one namespace.
type bucket struct {
	node      *node
	namespace word
	bindings  []*binding
}

func (k nodeKey) key() rbac.Key {
	if k.namespace == noString {
		return rbac.Key{Kind: rbac.KindClusterRole, Name: k.name.Value()}
	}
	return rbac.Key{Kind: rbac.KindRole, Namespace: k.namespace.Value(), Name: k.name.Value()}
}

// role is a role on all clusters where it has the same rules.
type role struct {
	node     *node
	rules    *ruleSet
	clusters set
	// nodeAt and userAt are the positions in the lists of the node and the ruleSet.
	nodeAt, userAt uint32
}

// binding is a binding on all clusters where it has the same content.
type binding struct {
	content rbac.Fingerprint
	// namespace is empty for a ClusterRoleBinding.
	namespace, name word
	// node and bucket are nil if there cannot be such a role.
	node     *node
	bucket   *bucket
	subjects []subjectRef
	clusters set
	// bucketAt is the position in the list of the bucket.
	bucketAt uint32
}

func (b *binding) key() rbac.Key {
	if b.namespace == noString {
		return rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: b.name.Value()}
	}
	return rbac.Key{Kind: rbac.KindRoleBinding, Namespace: b.namespace.Value(), Name: b.name.Value()}
}

// compare orders ClusterRoleBindings first, then by name.
func (b *binding) compare(namespace, name string) int {
	if c := strings.Compare(b.namespace.Value(), namespace); c != 0 {
		return c
	}
	return strings.Compare(b.name.Value(), name)
}

type subjectKey struct {
	name  word
	group bool
}

func (k subjectKey) subject() rbac.Subject { return rbac.Subject{Group: k.group, Name: k.name.Value()} }

// subject is a user or a group, and all bindings that contain it.
type subject struct {
	subjectKey
	bindings []subjectBinding
	// accounts are the ServiceAccounts that the subject stands for. It is zero if there are none.
	accounts accountKey
}

// accountKey is a ServiceAccount. "*" stands for all namespaces or names.
type accountKey struct{ namespace, name word }

// subjectRef is a subject of a binding, and the position of the binding in its list.
type subjectRef struct {
	subject *subject
	at      uint32
}

// subjectBinding is a binding of a subject, and the position of the subject in its list.
type subjectBinding struct {
	binding *binding
	at      uint32
}

func newRecords() records {
	return records{
		ruleSets: map[rbac.Fingerprint]*ruleSet{}, bindings: map[rbac.Fingerprint]*binding{},
		nodes: map[nodeKey]*node{}, subjects: map[subjectKey]*subject{},
	}
}

func (x *records) node(key rbac.Key) *node {
	k := nodeKey{unique.Make(key.Namespace), unique.Make(key.Name)}
	n := x.nodes[k]
	if n == nil {
		x.lastID++
		n = &node{nodeKey: k, id: x.lastID, buckets: map[word]*bucket{}}
		x.nodes[k] = n
	}
	return n
}

// tidy deletes a node without roles and bindings.
func (x *records) tidy(n *node) {
	if len(n.roles) == 0 && len(n.buckets) == 0 {
		delete(x.nodes, n.nodeKey)
	}
}

func (n *node) bucket(namespace word) *bucket {
	b := n.buckets[namespace]
	if b == nil {
		b = &bucket{node: n, namespace: namespace}
		n.buckets[namespace] = b
	}
	return b
}

// identity is the key of an object of an Update, and the fingerprint of its content.
type identity struct {
	key         rbac.Key
	fingerprint rbac.Fingerprint
}

func (i identity) id() identity { return i }

// newRole is a role of an Update.
type newRole struct {
	identity
	rules []rbacv1.PolicyRule
}

// role returns the record of a role, which may have no cluster yet.
func (x *records) role(given *newRole) *role {
	rules := x.ruleSets[given.fingerprint]
	if rules == nil {
		rules = &ruleSet{RuleSet: rbac.RuleSet{Rules: given.rules, Fingerprint: given.fingerprint}, escalations: escalationsOf(given.rules), at: uint32(len(x.sets))}
		x.sets = append(x.sets, listedSet{rbac.MarksOf(given.rules), rules})
		x.ruleSets[given.fingerprint] = rules
	}
	n := x.node(given.key)
	// One of the lists is short, unless many clusters have many names for the same rules.
	if len(n.roles) <= len(rules.users) {
		for _, r := range n.roles {
			if r.rules == rules {
				return r
			}
		}
	} else {
		for _, r := range rules.users {
			if r.node == n {
				return r
			}
		}
	}
	r := &role{node: n, rules: rules, nodeAt: uint32(len(n.roles)), userAt: uint32(len(rules.users))}
	n.roles = append(n.roles, r)
	rules.users = append(rules.users, r)
	return r
}

func (x *records) deleteRole(r *role) {
	moved := r.node.roles[len(r.node.roles)-1]
	r.node.roles[r.nodeAt], moved.nodeAt = moved, r.nodeAt
	r.node.roles = shorter(r.node.roles)
	x.tidy(r.node)
	users := r.rules.users
	moved = users[len(users)-1]
	users[r.userAt], moved.userAt = moved, r.userAt
	if r.rules.users = shorter(users); len(r.rules.users) == 0 {
		last := x.sets[len(x.sets)-1]
		x.sets[r.rules.at], last.at = last, r.rules.at
		x.sets = shorter(x.sets)
		delete(x.ruleSets, r.rules.Fingerprint)
	}
}

// newBinding is a binding of an Update.
type newBinding struct {
	identity
	*rbac.Binding
}

func prepareBinding(key rbac.Key, given *Binding) *newBinding {
	b := &newBinding{identity{key: key}, rbac.NewBinding(key.Namespace, given.RoleRef, given.Subjects)}
	content := make(rbac.Content, 0, 256)
	content.Add(key.Namespace, key.Name, b.Role.Kind, b.Role.Namespace, b.Role.Name)
	for _, s := range b.Subjects {
		kind := rbacv1.UserKind
		if s.Group {
			kind = rbacv1.GroupKind
		}
		content.Add(kind, s.Name)
	}
	b.fingerprint = content.Fingerprint()
	return b
}

// binding returns the record of a binding, which may have no cluster yet.
func (x *records) binding(given *newBinding) *binding {
	b := x.bindings[given.fingerprint]
	if b != nil {
		return b
	}
	b = &binding{
		content: given.fingerprint, namespace: unique.Make(given.key.Namespace), name: unique.Make(given.key.Name),
		subjects: make([]subjectRef, len(given.Subjects)),
	}
	x.bindings[given.fingerprint] = b
	if given.Role != (rbac.Key{}) {
		b.node = x.node(given.Role)
		b.bucket = b.node.bucket(b.namespace)
		b.bucketAt = uint32(len(b.bucket.bindings))
		b.bucket.bindings = append(b.bucket.bindings, b)
	}
	for i, s := range given.Subjects {
		k := subjectKey{unique.Make(s.Name), s.Group}
		bound := x.subjects[k]
		if bound == nil {
			bound = &subject{subjectKey: k, accounts: accountsOf(s)}
			x.subjects[k] = bound
		}
		b.subjects[i] = subjectRef{bound, uint32(len(bound.bindings))}
		bound.bindings = append(bound.bindings, subjectBinding{b, uint32(i)})
	}
	return b
}

// accountsOf returns the ServiceAccounts that a subject stands for.
func accountsOf(s rbac.Subject) accountKey {
	namespace, all := strings.CutPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
	switch {
	case s.Group && (s.Name == serviceaccount.AllServiceAccountsGroup || s.Name == user.AllAuthenticated):
		return accountKey{anyWord, anyWord}
	case s.Group && all && strings.Trim(namespace, "*") != "":
		return accountKey{unique.Make(namespace), anyWord}
	case !s.Group:
		if namespace, name, err := serviceaccount.SplitUsername(s.Name); err == nil {
			return accountKey{unique.Make(namespace), unique.Make(name)}
		}
	}
	return accountKey{}
}

func (x *records) deleteBinding(b *binding) {
	if in := b.bucket; in != nil {
		moved := in.bindings[len(in.bindings)-1]
		in.bindings[b.bucketAt], moved.bucketAt = moved, b.bucketAt
		if in.bindings = shorter(in.bindings); len(in.bindings) == 0 {
			delete(in.node.buckets, in.namespace)
			x.tidy(in.node)
		}
	}
	for _, ref := range b.subjects {
		s := ref.subject
		moved := s.bindings[len(s.bindings)-1]
		s.bindings[ref.at] = moved
		moved.binding.subjects[moved.at].at = ref.at
		if s.bindings = shorter(s.bindings); len(s.bindings) == 0 {
			delete(x.subjects, s.subjectKey)
		}
	}
	delete(x.bindings, b.content)
}

// shorter returns a list without its last element, in less memory if most of it is unused.
func shorter[T any](list []T) []T {
	var none T
	list[len(list)-1] = none
	list = list[:len(list)-1]
	if len(list) < cap(list)/4 {
		return slices.Clone(list)
	}
	return list
}
