package rbac

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestParseManifest(t *testing.T) {
	t.Parallel()
	const (
		head  = "apiVersion: rbac.authorization.k8s.io/v1\n"
		rules = "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"
		ref   = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}\nsubjects: [{kind: User, name: anna}]\n"
	)
	pods := []rbacv1.PolicyRule{rule("", "pods", "get")}
	for name, test := range map[string]struct {
		manifest string
		want     *Object
	}{
		"ClusterRole":                           {head + "kind: ClusterRole\nmetadata: {name: r}\n" + rules, &Object{Key: Key{"ClusterRole", "", "r"}, Rules: pods}},
		"ClusterRole with a namespace":          {head + "kind: ClusterRole\nmetadata: {name: r, namespace: a}\n" + rules, &Object{Key: Key{"ClusterRole", "", "r"}, Rules: pods}},
		"Role":                                  {head + "kind: Role\nmetadata: {name: r, namespace: a}\n" + rules, &Object{Key: Key{"Role", "a", "r"}, Rules: pods}},
		"Role without a namespace":              {head + "kind: Role\nmetadata: {name: r}\n" + rules, nil},
		"Role with no rules":                    {head + "kind: Role\nmetadata: {name: r, namespace: a}\nrules: []\n", &Object{Key: Key{"Role", "a", "r"}}},
		"Role without the field rules":          {head + "kind: Role\nmetadata: {name: r, namespace: a}\n", nil},
		"Role with unreadable rules":            {head + "kind: Role\nmetadata: {name: r, namespace: a}\nrules: 7\n", &Object{Key: Key{"Role", "a", "r"}, Opaque: true}},
		"aggregated ClusterRole":                {head + "kind: ClusterRole\nmetadata: {name: r}\naggregationRule: {}\n", &Object{Key: Key{"ClusterRole", "", "r"}, Opaque: true}},
		"RoleBinding":                           {head + "kind: RoleBinding\nmetadata: {name: b, namespace: a}\n" + ref, &Object{Key: Key{"RoleBinding", "a", "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "anna"}}}},
		"RoleBinding without a namespace":       {head + "kind: RoleBinding\nmetadata: {name: b}\n" + ref, nil},
		"ClusterRoleBinding, default group":     {head + "kind: ClusterRoleBinding\nmetadata: {name: b}\nroleRef: {kind: ClusterRole, name: r}\n", &Object{Key: Key{"ClusterRoleBinding", "", "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}}},
		"ClusterRoleBinding of another group":   {head + "kind: ClusterRoleBinding\nmetadata: {name: b}\nroleRef: {apiGroup: example.com, kind: ClusterRole, name: r}\n", nil},
		"ClusterRoleBinding, unreadable":        {head + "kind: ClusterRoleBinding\nmetadata: {name: b}\nsubjects: 7\n", nil},
		"another version":                       {"apiVersion: rbac.authorization.k8s.io/v1beta1\nkind: ClusterRole\nmetadata: {name: r}\n" + rules, nil},
		"another kind":                          {head + "kind: ConfigMap\nmetadata: {name: r}\n" + rules, nil},
		"unreadable metadata":                   {head + "kind: ClusterRole\nmetadata: 7\n" + rules, nil},
		"aggregated ClusterRole that has rules": {head + "kind: ClusterRole\nmetadata: {name: r}\naggregationRule: {}\n" + rules, &Object{Key: Key{"ClusterRole", "", "r"}, Rules: pods, Opaque: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := yaml.YAMLToJSON([]byte(test.manifest))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := ParseManifest(raw)
			if ok != (test.want != nil) || ok && !equality.Semantic.DeepEqual(got, *test.want) {
				t.Errorf("ParseManifest(%s) = %+v, %t, want %+v", raw, got, ok, test.want)
			}
		})
	}
}

func TestFromTyped(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "a", Name: "n"}
	rules := []rbacv1.PolicyRule{rule("", "pods", "get")}
	ref, subjects := rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, []rbacv1.Subject{{Kind: "User", Name: "anna"}}
	for _, test := range []struct {
		object any
		want   *Object
	}{
		{&rbacv1.Role{ObjectMeta: meta, Rules: rules}, &Object{Key: Key{"Role", "a", "n"}, Rules: rules}},
		{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Rules: rules}, &Object{Key: Key{"ClusterRole", "", "n"}, Rules: rules}},
		{&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, &Object{Key: Key{"RoleBinding", "a", "n"}, RoleRef: ref, Subjects: subjects}},
		{&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "n"}, RoleRef: ref, Subjects: subjects},
			&Object{Key: Key{"ClusterRoleBinding", "", "n"}, RoleRef: ref, Subjects: subjects}},
		{&rbacv1.RoleList{}, nil},
		{nil, nil},
	} {
		got, ok := FromTyped(test.object)
		if ok != (test.want != nil) || ok && !equality.Semantic.DeepEqual(got, *test.want) {
			t.Errorf("FromTyped(%T) = %+v, %t, want %+v", test.object, got, ok, test.want)
		}
	}
}
