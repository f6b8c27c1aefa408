package escalation

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// delivered is the RBAC that works have brought to a managed cluster.
type delivered struct {
	roles    map[roleKey][]version
	bindings []deliveredBinding
	// namespaces are, by the name of a Role, those in which one of that name is.
	namespaces map[string][]string
}

// version is a role as one work delivers it.
type version struct {
	rules []rbacv1.PolicyRule
	// opaque is set if the cluster itself decides on the rules, or they are not readable.
	opaque bool
}

type deliveredBinding struct {
	where    scope
	role     roleKey
	subjects []rbacv1.Subject
}

// object is any of the four kinds of RBAC.
type object struct {
	Rules           *[]rbacv1.PolicyRule    `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
}

func parse(manifests []workv1.Manifest) *delivered {
	d := &delivered{roles: map[roleKey][]version{}, namespaces: map[string][]string{}}
	for i := range manifests {
		raw, err := manifests[i].MarshalJSON()
		if err != nil {
			continue
		}
		d.add(raw)
	}
	return d
}

func (d *delivered) add(raw []byte) {
	var head metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &head) != nil || head.APIVersion != rbacv1.SchemeGroupVersion.String() {
		return
	}
	var obj object
	err := json.Unmarshal(raw, &obj)
	switch head.Kind {
	case kindClusterRole:
		d.addRole(roleKey{kind: head.Kind, name: head.Name}, &obj, err != nil)
	case kindRole:
		if head.Namespace != "" {
			d.addRole(roleKey{kind: head.Kind, namespace: head.Namespace, name: head.Name}, &obj, err != nil)
		}
	case kindClusterRoleBinding:
		if err == nil {
			d.addBinding(scope{}, &obj)
		}
	case kindRoleBinding:
		if err == nil && head.Namespace != "" {
			d.addBinding(scope{namespace: head.Namespace}, &obj)
		}
	}
}

func (d *delivered) addRole(key roleKey, obj *object, unreadable bool) {
	is := version{opaque: unreadable || obj.AggregationRule != nil}
	if obj.Rules != nil {
		is.rules = *obj.Rules
	} else if !is.opaque {
		// Without the field it is no role but the question whether there is one: it
		// is only read.
		return
	}
	if key.kind == kindRole && d.roles[key] == nil {
		d.namespaces[key.name] = append(d.namespaces[key.name], key.namespace)
	}
	d.roles[key] = append(d.roles[key], is)
}

func (d *delivered) addBinding(where scope, obj *object) {
	ref := obj.RoleRef
	if ref.APIGroup != rbacv1.GroupName && ref.APIGroup != "" {
		return
	}
	key := roleKey{kind: ref.Kind, name: ref.Name}
	switch {
	case ref.Kind == kindRole && !where.clusterWide():
		key.namespace = where.namespace
	case ref.Kind != kindClusterRole:
		return
	}
	d.bindings = append(d.bindings, deliveredBinding{where: where, role: key, subjects: obj.Subjects})
}

// contents are what works put into roles.
type contents struct {
	// absent is set if no work delivers such a role.
	absent bool
	// opaque is set if works deliver it differently, or its rules are not theirs to
	// decide. Then the rules are of no use.
	opaque bool
	rules  []rbacv1.PolicyRule
}

// role tells what is in a role, leaving out one delivery of each that equals one
// of those that are known to be someone's own.
func (d *delivered) role(key roleKey, own [][]rbacv1.PolicyRule) contents {
	versions := d.roles[key]
	for i, v := range versions {
		same := func(rules []rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(rules, v.rules) }
		if !v.opaque && slices.ContainsFunc(own, same) {
			versions = slices.Delete(slices.Clone(versions), i, i+1)
			break
		}
	}
	if len(versions) == 0 {
		return contents{absent: true}
	}
	first := versions[0]
	for _, v := range versions {
		if v.opaque || !apiequality.Semantic.DeepEqual(v.rules, first.rules) {
			return contents{opaque: true}
		}
	}
	return contents{rules: first.rules}
}
