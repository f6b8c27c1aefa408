package escalation

import (
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// before is a spec that was allowed before. alice holds none of its permissions.
const before = `
clusterRole: {rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, list]}, {apiGroups: [""], resources: [pods], resourceNames: [x], verbs: [get]}]}
clusterRoleBinding: {name: one, subjects: [{kind: User, name: bob}, {kind: User, name: carol}]}
clusterRoleBindings: [{name: two, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: there}, subject: {kind: User, name: bob}}]
roles:
- {namespace: a, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}
- {namespaceSelector: {matchLabels: {env: dev}}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}
roleBindings:
- {namespace: a, roleRef: {kind: Role}, subject: {kind: User, name: bob}}
- {namespace: a, name: three, roleRef: {kind: Role}, subject: {apiGroup: authentication.open-cluster-management.io, kind: ManagedServiceAccount, name: x}}
- {namespaceSelector: {matchLabels: {env: dev}}, roleRef: {kind: Role}, subject: {kind: User, name: bob}}
roleRefs: [{kind: ClusterRole, name: ofhub}, {kind: Role, namespace: a, name: ofhub}]
`

func first[T any](items *[]T) *T { return &(*items)[0] }

func second[T any](items *[]T) *T { return &(*items)[1] }

func third[T any](items *[]T) *T { return &(*items)[2] }

func TestChanges(t *testing.T) {
	type spec = rbacv1alpha1.ClusterPermissionSpec
	mallory := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "mallory"}
	for name, test := range map[string]struct {
		change func(*spec)
		want   []string
	}{
		"nothing":  {change: func(*spec) {}},
		"validate": {change: func(s *spec) { s.Validate = new(bool) }},
		"order": {change: func(s *spec) {
			slices.Reverse(*s.Roles)
			slices.Reverse(*s.RoleBindings)
			slices.Reverse(*s.RoleRefs)
			slices.Reverse(s.ClusterRoleBinding.Subjects)
			slices.Reverse(s.ClusterRole.Rules)
		}},
		"other spellings": {change: func(s *spec) {
			s.ClusterRoleBinding.Subjects[0].APIGroup = rbacv1.GroupName
			s.ClusterRoleBinding.RoleRef = &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cpName}
			// The namespace of such a subject has no effect.
			second(s.RoleBindings).Subject.Namespace = "b"
			first(s.RoleRefs).APIGroup = rbacv1.GroupName
			s.ClusterRole.Rules = []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"x"}, Verbs: []string{"get"}},
				{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"list"}},
				{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}},
			}
		}},
		"binding rename": {change: func(s *spec) { s.ClusterRoleBinding.Name, first(s.RoleBindings).Name = "new", "new" }},
		"one more binding of a bound subject": {change: func(s *spec) {
			*s.ClusterRoleBindings = append(*s.ClusterRoleBindings, rbacv1alpha1.ClusterRoleBinding{Name: "x", Subjects: s.ClusterRoleBinding.Subjects[:1]})
		}},
		"removing a subject":  {change: func(s *spec) { s.ClusterRoleBinding.Subjects = s.ClusterRoleBinding.Subjects[:1] }},
		"removing bindings":   {change: func(s *spec) { s.ClusterRoleBinding, s.ClusterRoleBindings, s.RoleBindings = nil, nil, nil }},
		"removing references": {change: func(s *spec) { s.RoleRefs = nil }},
		"removing a role and its bindings": {change: func(s *spec) {
			s.ClusterRole, s.ClusterRoleBinding = nil, nil
			*s.Roles, *s.RoleBindings = (*s.Roles)[1:], (*s.RoleBindings)[2:]
		}},
		"removing rules": {change: func(s *spec) {
			s.ClusterRole.Rules[0].Verbs = s.ClusterRole.Rules[0].Verbs[:1]
			first(s.Roles).Rules[0].ResourceNames = []string{"only"}
		}},
		// The binding may then refer to another role of that name.
		"removing a role, but not its binding": {
			change: func(s *spec) { s.ClusterRole = nil }, want: []string{"bind spec.clusterRoleBinding"},
		},
		"rules growing by one atom": {
			change: func(s *spec) { s.ClusterRole.Rules[0].Verbs = append(s.ClusterRole.Rules[0].Verbs, "watch") },
			want:   []string{"escalate spec.clusterRole", "bind spec.clusterRoleBinding"},
		},
		"a selected Role growing": {
			change: func(s *spec) {
				second(s.Roles).Rules = append(second(s.Roles).Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}})
			},
			// The selected Role may be in the namespace of the other as well.
			want: []string{"escalate spec.roles[1]", "bind spec.roleBindings[0]", "bind spec.roleBindings[1]", "bind spec.roleBindings[2]"},
		},
		"rules losing their resource names": {
			change: func(s *spec) { s.ClusterRole.Rules[1].ResourceNames = nil },
			want:   []string{"escalate spec.clusterRole", "bind spec.clusterRoleBinding"},
		},
		"rules moving to another role": {
			change: func(s *spec) { s.ClusterRole.Rules = append(s.ClusterRole.Rules, first(s.Roles).Rules...) },
			want:   []string{"escalate spec.clusterRole", "bind spec.clusterRoleBinding"},
		},
		"adding a subject": {
			change: func(s *spec) { s.ClusterRoleBinding.Subjects = append(s.ClusterRoleBinding.Subjects, mallory) },
			want:   []string{"bind spec.clusterRoleBinding"},
		},
		"a ServiceAccount of another namespace": {
			change: func(s *spec) {
				first(s.RoleBindings).Subject = &rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "b", Name: "bob"}
			},
			want: []string{"bind spec.roleBindings[0]"},
		},
		"a group with the name of the user": {
			change: func(s *spec) { first(s.RoleBindings).Subject.Kind = rbacv1.GroupKind }, want: []string{"bind spec.roleBindings[0]"},
		},
		"changing roleRef": {
			change: func(s *spec) { first(s.ClusterRoleBindings).RoleRef.Name = "cluster-admin" }, want: []string{"bind spec.clusterRoleBindings[0]"},
		},
		"changing the kind of roleRef": {
			change: func(s *spec) { first(s.RoleBindings).RoleRef.Kind = "ClusterRole" }, want: []string{"bind spec.roleBindings[0]"},
		},
		"another binding of a role that is bound": {
			change: func(s *spec) {
				*s.ClusterRoleBindings = append(*s.ClusterRoleBindings, rbacv1alpha1.ClusterRoleBinding{
					Name: "x", RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "there"}, Subject: &mallory,
				})
			},
			want: []string{"bind spec.clusterRoleBindings[1]"},
		},
		"another namespace": {
			change: func(s *spec) {
				first(s.Roles).Namespace, first(s.RoleBindings).Namespace, second(s.RoleBindings).Namespace = "kube-system", "kube-system", "kube-system"
			},
			want: []string{"escalate spec.roles[0]", "bind spec.roleBindings[0]", "bind spec.roleBindings[1]"},
		},
		"another selector": {
			change: func(s *spec) {
				second(s.Roles).NamespaceSelector.MatchLabels["env"], third(s.RoleBindings).NamespaceSelector.MatchLabels["env"] = "prod", "prod"
			},
			want: []string{"escalate spec.roles[1]", "bind spec.roleBindings[2]"},
		},
		"an empty selector": {
			change: func(s *spec) { third(s.RoleBindings).NamespaceSelector.MatchLabels = nil }, want: []string{"bind spec.roleBindings[2]"},
		},
		"a reference to another role of the hub": {
			change: func(s *spec) { first(s.RoleRefs).Name = "another" }, want: []string{"escalate spec.roleRefs[0]"},
		},
		"a reference from another namespace": {
			change: func(s *spec) { second(s.RoleRefs).Namespace = "b" }, want: []string{"escalate spec.roleRefs[1]"},
		},
		"binding a role that is referred to": {
			change: func(s *spec) { first(s.ClusterRoleBindings).RoleRef.Name = "ofhub" }, want: []string{"bind spec.clusterRoleBindings[0]"},
		},
		"referring to a role that is bound": {
			change: func(s *spec) { first(s.RoleRefs).Name = "there" },
			want:   []string{"bind spec.clusterRoleBindings[0]", "escalate spec.roleRefs[0]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old := yamlSpec(t, before)
			changed := old.DeepCopy()
			test.change(changed)
			h := &hub{}
			if got := missing(check(t, alice, h, nil, changed, old)); !slices.Equal(got, test.want) {
				t.Errorf("missing grants of Check() = %q, want %q", got, test.want)
			}
			if asked := len(h.asked) > 0; asked != (len(test.want) > 0) {
				t.Errorf("access reviews of Check() = %q, want reviews only if grants are missing", h.verbs())
			}
			// A spec that was not allowed before is denied again.
			if got := missing(check(t, alice, h, nil, changed, nil)); len(got) == 0 && grantsAny(changed) {
				t.Error("missing grants of Check() of a spec that was not allowed before = none, want some")
			}
		})
	}
}

// A pending spec is not delivered. Another write of the same spec does not allow it, and
// its bindings grant nothing to the caller.
func TestSelfGrantThroughPendingChange(t *testing.T) {
	pending := yamlSpec(t, before)
	pending.ClusterRoleBinding.Subjects = append(pending.ClusterRoleBinding.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"})
	want := []string{"bind spec.clusterRoleBinding"}
	for range 2 {
		if got := missing(check(t, alice, &hub{}, nil, pending, yamlSpec(t, before))); !slices.Equal(got, want) {
			t.Fatalf("missing grants of Check() = %q, want %q", got, want)
		}
	}
}

// The previous delivery of the ClusterPermission itself is ignored. A delivery of another
// ClusterPermission with the same content is not ignored.
func TestOwnDelivery(t *testing.T) {
	old := yamlSpec(t, "clusterRole: {rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]}\n"+"clusterRoleBinding: {subject: {kind: User, name: bob}}")
	changed := yamlSpec(t, "clusterRole: {rules: [{apiGroups: [\"\"], resources: [pods], verbs: [get]}]}\n"+"clusterRoleBinding: {subject: {kind: User, name: mallory}}")
	own := ownRole("ClusterRole", "", "[{apiGroups: [apps], resources: [deployments], verbs: [get]}]")
	if refusal := check(t, alice, &hub{}, manifests(t, readerRole+aliceReads+own), changed, old); refusal != nil {
		t.Errorf("missing grants of Check() with its own delivery = %v, want none", missing(refusal))
	}
	want := []string{"bind spec.clusterRoleBinding"}
	if got := missing(check(t, alice, &hub{}, manifests(t, readerRole+aliceReads+own+own), changed, old)); !slices.Equal(got, want) {
		t.Errorf("missing grants of Check() with another delivery = %q, want %q", got, want)
	}
}

// The same applies to Roles with a namespace or a selector.
func TestOwnDeliveryOfRoles(t *testing.T) {
	for _, place := range []string{"namespace: a", "namespaceSelector: {}"} {
		const role = `roles: [{%[1]s, rules: [{apiGroups: [%[2]s], resources: [%[3]s], verbs: [get]}]}]
roleBindings: [{%[1]s, roleRef: {kind: Role}, subject: {kind: User, name: %[4]s}}]`
		old, changed := yamlSpec(t, fmt.Sprintf(role, place, "apps", "deployments", "bob")), yamlSpec(t, fmt.Sprintf(role, place, `""`, "pods", "mallory"))
		own := ownRole("Role", "a", "[{apiGroups: [apps], resources: [deployments], verbs: [get]}]")
		if refusal := check(t, alice, &hub{}, manifests(t, readerRole+aliceReads+own), changed, old); refusal != nil {
			t.Errorf("%s: missing grants of Check() with its own delivery = %v, want none", place, missing(refusal))
		}
		want := []string{"bind spec.roleBindings[0]"}
		if got := missing(check(t, alice, &hub{}, manifests(t, readerRole+aliceReads+own), changed, nil)); !slices.Equal(got, want) {
			t.Errorf("%s: missing grants of Check() with another delivery = %q, want %q", place, got, want)
		}
	}
}

func grantsAny(s *rbacv1alpha1.ClusterPermissionSpec) bool {
	return s.ClusterRole != nil || s.ClusterRoleBinding != nil ||
		len(ptr.Deref(s.ClusterRoleBindings, nil))+len(ptr.Deref(s.Roles, nil))+len(ptr.Deref(s.RoleBindings, nil))+len(ptr.Deref(s.RoleRefs, nil)) > 0
}
