package escalation

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// delivered is the RBAC that ManifestWorks have delivered to a managed cluster.
type delivered struct {
	roles    map[rbac.Key][]version
	bindings []deliveredBinding
	// namespaces maps the name of a Role to the namespaces that contain a Role of that name.
	namespaces map[string][]string
}

// version is a role as one ManifestWork delivers it. If it is opaque, its rules are
// unknown.
type version struct {
	rules  []rbacv1.PolicyRule
	opaque bool
}

type deliveredBinding struct {
	where    scope
	role     rbac.Key
	subjects []rbacv1.Subject
}

func parse(manifests []workv1.Manifest) *delivered {
	d := &delivered{roles: map[rbac.Key][]version{}, namespaces: map[string][]string{}}
	for i := range manifests {
		raw, err := manifests[i].MarshalJSON()
		if err != nil {
			continue
		}
		if object, ok := rbac.ParseManifest(raw); ok {
			d.add(object)
		}
	}
	return d
}

func (d *delivered) add(o rbac.Object) {
	if o.IsRole() {
		if o.Key.Kind == rbac.KindRole && d.roles[o.Key] == nil {
			d.namespaces[o.Key.Name] = append(d.namespaces[o.Key.Name], o.Key.Namespace)
		}
		d.roles[o.Key] = append(d.roles[o.Key], version{rules: o.Rules, opaque: o.Opaque})
		return
	}
	if role := rbac.RoleKey(o.RoleRef, o.Key.Namespace); role != (rbac.Key{}) {
		d.bindings = append(d.bindings, deliveredBinding{where: scope{namespace: o.Key.Namespace}, role: role, subjects: o.Subjects})
	}
}

// contents contains the rules that ManifestWorks deliver under the name of a role.
type contents struct {
	// absent is set if no ManifestWork delivers such a role.
	absent bool
	// opaque is set if the rules are unknown or differ between ManifestWorks.
	opaque bool
	rules  []rbacv1.PolicyRule
}

// role returns the contents of a role. It ignores one delivered version that equals an
// element of own. own contains the versions that the ClusterPermission itself has
// delivered.
func (d *delivered) role(key rbac.Key, own [][]rbacv1.PolicyRule) contents {
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
