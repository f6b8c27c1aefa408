package validation

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

// parsed decodes a ClusterPermission named p with the spec, like a request.
func parsed(t *testing.T, spec string) *rbac.ClusterPermission {
	t.Helper()
	return decode(t, "metadata: {name: p, namespace: cluster1}\nspec:\n"+indent(spec))
}

func decode(t *testing.T, text string) *rbac.ClusterPermission {
	t.Helper()
	var versioned v1alpha1.ClusterPermission
	if err := yaml.UnmarshalStrict([]byte(text), &versioned); err != nil {
		t.Fatal(err)
	}
	return (*rbac.ClusterPermission)(&versioned)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

const aliceBinding = `
clusterRoleBinding:
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
  subject: {kind: User, name: alice}
`

func TestSpec(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string
	}{
		"smallest": {spec: aliceBinding},
		"no bindings": {
			spec: `clusterRole: {rules: []}`,
			want: []string{"spec: Required value"},
		},
		"empty lists of bindings": {
			spec: "clusterRoleBindings: []\nroleBindings: []",
			want: []string{"spec: Required value"},
		},
		"role references alone": {spec: `roleRefs: [{kind: ClusterRole, name: view}]`},
		"no rules": {
			spec: aliceBinding + "clusterRole: {rules: null}\nroles: [{namespace: a, rules: null}]",
			want: []string{"spec.clusterRole.rules: Required value", "spec.roles[0].rules: Required value"},
		},
		"rules without parts": {
			spec: aliceBinding + `clusterRole: {rules: [{verbs: []}, {verbs: [get], apiGroups: [""]}, {verbs: [get], resources: [pods]}]}`,
			want: []string{
				"spec.clusterRole.rules[0].verbs: Required value",
				"spec.clusterRole.rules[0].apiGroups: Required value",
				"spec.clusterRole.rules[0].resources: Required value",
				"spec.clusterRole.rules[1].resources: Required value",
				"spec.clusterRole.rules[2].apiGroups: Required value",
			},
		},
		"URLs": {
			spec: aliceBinding + `
clusterRole: {rules: [{verbs: [get], nonResourceURLs: [/metrics]}, {verbs: [get], nonResourceURLs: [/metrics], resources: [pods]}]}
roles: [{namespace: a, rules: [{verbs: [get], nonResourceURLs: [/metrics]}]}]`,
			want: []string{
				"spec.clusterRole.rules[1].nonResourceURLs: Forbidden",
				"spec.roles[0].rules[0].nonResourceURLs: Forbidden",
			},
		},
		"namespace XOR namespaceSelector": {
			spec: `
roles:
- {rules: []}
- {namespace: a, namespaceSelector: {}, rules: []}
- {namespaceSelector: {}, rules: []}
roleBindings:
- {roleRef: {kind: Role}, subject: {kind: User, name: alice}}
- {namespace: a, namespaceSelector: {}, roleRef: {kind: Role}, subject: {kind: User, name: alice}}`,
			want: []string{
				"spec.roles[0].namespace: Required value",
				"spec.roles[1].namespaceSelector: Forbidden",
				"spec.roleBindings[0].namespace: Required value",
				"spec.roleBindings[1].namespaceSelector: Forbidden",
			},
		},
		"namespace and selector malformed": {
			spec: aliceBinding + `
roles:
- {namespace: Not_A_Namespace, rules: []}
- {namespaceSelector: {matchExpressions: [{key: a, operator: Near}]}, rules: []}
- {namespaceSelector: {matchExpressions: [{key: a, operator: In}]}, rules: []}`,
			want: []string{
				"spec.roles[0].namespace: Invalid value",
				"spec.roles[1].namespaceSelector.matchExpressions[0].operator: Invalid value",
				"spec.roles[2].namespaceSelector.matchExpressions[0].values: Required value",
			},
		},
		"incomplete roleRef": {
			spec: `
roleBindings:
- {namespace: a, roleRef: {kind: Role, name: r}, subject: {kind: User, name: alice}}
- {namespace: b, roleRef: {kind: Role, apiGroup: rbac.authorization.k8s.io}, subject: {kind: User, name: alice}}
- {namespaceSelector: {}, roleRef: {kind: Role, name: r}, subject: {kind: User, name: alice}}
clusterRoleBinding: {roleRef: {apiGroup: "", kind: "", name: ""}, subject: {kind: User, name: alice}}`,
			want: []string{
				"spec.roleBindings[0].roleRef.apiGroup: Required value",
				"spec.roleBindings[1].roleRef.name: Required value",
				"spec.roleBindings[2].roleRef.apiGroup: Required value",
				"spec.clusterRoleBinding.roleRef.apiGroup: Required value",
				"spec.clusterRoleBinding.roleRef.kind: Required value",
				"spec.clusterRoleBinding.roleRef.name: Required value",
			},
		},
		"roleRef of another kind or group": {
			spec: `
roleBindings:
- {namespace: a, roleRef: {kind: Group}, subject: {kind: User, name: alice}}
- {namespace: b, roleRef: {kind: Role, apiGroup: apps, name: r/x}, subject: {kind: User, name: alice}}
clusterRoleBinding: {roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subject: {kind: User, name: alice}}`,
			want: []string{
				"spec.roleBindings[0].roleRef.kind: Unsupported value",
				"spec.roleBindings[1].roleRef.apiGroup: Unsupported value",
				"spec.roleBindings[1].roleRef.name: Invalid value",
				"spec.clusterRoleBinding.roleRef.kind: Unsupported value",
			},
		},
		"no subjects": {
			spec: `
clusterRoleBinding: {subjects: []}
roleBindings: [{namespace: a, roleRef: {kind: Role}}]`,
			want: []string{
				"spec.clusterRoleBinding.subjects: Required value",
				"spec.roleBindings[0].subjects: Required value",
			},
		},
		"subject is one of subjects": {
			spec: `clusterRoleBinding: {subject: {kind: User, name: alice}, subjects: [{kind: Group, name: qa}, {kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}]}`,
		},
		"subject is none of subjects": {
			spec: `clusterRoleBinding: {subject: {kind: Nonsense, name: bob}, subjects: [{kind: User, name: alice}]}`,
		},
		"empty subject and subjects": {
			spec: `clusterRoleBinding: {subject: {kind: "", name: ""}, subjects: [{kind: User, name: alice}]}`,
		},
		"incomplete subject and subjects": {
			spec: `clusterRoleBinding: {subject: {apiGroup: rbac.authorization.k8s.io}, subjects: [{kind: User, name: alice}]}`,
			want: []string{"spec.clusterRoleBinding.subject.kind: Required value", "spec.clusterRoleBinding.subject.name: Required value"},
		},
		"empty subject": {
			spec: `clusterRoleBinding: {subject: {kind: "", name: ""}}`,
			want: []string{"spec.clusterRoleBinding.subjects: Required value"},
		},
		"kinds of subjects": {
			spec: `
clusterRoleBinding:
  subjects:
  - {kind: User, apiGroup: rbac.authorization.k8s.io, name: "alice@example.com"}
  - {kind: Group, name: "system:masters"}
  - {kind: ServiceAccount, namespace: tools, name: robot}
  - {kind: ManagedServiceAccount, apiGroup: authentication.open-cluster-management.io, name: robot, namespace: ignored}
  - {kind: Robot, name: r}
  - {kind: "", name: r}
  - {kind: User, name: ""}
  - {kind: User, name: u, apiGroup: apps}
  - {kind: Group, name: g, namespace: tools}
  - {kind: ServiceAccount, name: robot}
  - {kind: ServiceAccount, name: Robot, namespace: Tools}
  - {kind: ServiceAccount, name: robot, namespace: tools, apiGroup: rbac.authorization.k8s.io}
  - {kind: ManagedServiceAccount, name: robot}`,
			want: []string{
				"spec.clusterRoleBinding.subjects[4].kind: Unsupported value",
				"spec.clusterRoleBinding.subjects[5].kind: Required value",
				"spec.clusterRoleBinding.subjects[6].name: Required value",
				"spec.clusterRoleBinding.subjects[7].apiGroup: Unsupported value",
				"spec.clusterRoleBinding.subjects[8].namespace: Forbidden",
				"spec.clusterRoleBinding.subjects[9].namespace: Required value",
				"spec.clusterRoleBinding.subjects[10].name: Invalid value",
				"spec.clusterRoleBinding.subjects[10].namespace: Invalid value",
				"spec.clusterRoleBinding.subjects[11].apiGroup: Unsupported value",
				"spec.clusterRoleBinding.subjects[12].apiGroup: Unsupported value",
			},
		},
		"duplicate roles": {
			spec: aliceBinding + `
clusterRole: {rules: []}
roles:
- {namespace: a, rules: []}
- {namespace: b, rules: []}
- {namespace: a, rules: []}
- {namespaceSelector: {matchLabels: {x: y}}, rules: []}
- {namespaceSelector: {matchExpressions: [{key: x, operator: In, values: [y]}]}, rules: []}
- {namespaceSelector: {matchLabels: {x: z}}, rules: []}
- {namespaceSelector: {matchLabels: {x: y}}, rules: []}
roleRefs:
- {kind: ClusterRole, name: view}
- {kind: ClusterRole, name: p}
- {kind: Role, namespace: a, name: p}
- {kind: Role, namespace: a, name: q}
- {kind: Role, namespace: a, name: q, apiGroup: rbac.authorization.k8s.io}`,
			want: []string{
				"spec.roles[2].namespace: Duplicate value",
				"spec.roles[6].namespaceSelector: Duplicate value",
				"spec.roleRefs[1].name: Duplicate value",
				"spec.roleRefs[2].name: Duplicate value",
				"spec.roleRefs[4].name: Duplicate value",
			},
		},
		"duplicate bindings": {
			spec: `
clusterRoleBinding: {subject: {kind: User, name: alice}}
clusterRoleBindings:
- {subject: {kind: User, name: bob}}
- {name: b, subject: {kind: User, name: bob}}
- {name: b, subject: {kind: User, name: alice}}
- {name: p, subject: {kind: User, name: alice}}
roleBindings:
- {namespace: a, roleRef: {kind: Role}, subject: {kind: User, name: alice}}
- {namespace: a, name: n, roleRef: {kind: Role}, subject: {kind: User, name: alice}}
- {namespace: b, roleRef: {kind: Role}, subject: {kind: User, name: alice}}
- {namespace: a, roleRef: {kind: ClusterRole}, subject: {kind: User, name: alice}}
- {namespaceSelector: {matchLabels: {x: y}}, roleRef: {kind: Role}, subject: {kind: User, name: alice}}
- {namespaceSelector: {matchLabels: {x: y}}, name: n, roleRef: {kind: Role}, subject: {kind: User, name: alice}}
- {namespaceSelector: {matchLabels: {x: y}}, roleRef: {kind: ClusterRole}, subject: {kind: User, name: alice}}`,
			want: []string{
				"spec.clusterRoleBindings[0].name: Duplicate value",
				"spec.clusterRoleBindings[2].name: Duplicate value",
				"spec.clusterRoleBindings[3].name: Duplicate value",
				"spec.roleBindings[3].name: Duplicate value",
				"spec.roleBindings[6].name: Duplicate value",
			},
		},
		"invalid names of bindings": {
			spec: `
clusterRoleBinding: {name: a/b, subject: {kind: User, name: alice}}
roleBindings: [{namespace: a, name: "..", roleRef: {kind: Role}, subject: {kind: User, name: alice}}]`,
			want: []string{
				"spec.clusterRoleBinding.name: Invalid value",
				"spec.roleBindings[0].name: Invalid value",
			},
		},
		"role references": {
			spec: `
roleRefs:
- {kind: Role, name: r}
- {kind: ClusterRole, name: r, namespace: a}
- {kind: Group, name: r}
- {kind: Role, name: r, namespace: A}
- {kind: Role, name: "", namespace: a, apiGroup: apps}`,
			want: []string{
				"spec.roleRefs[0].namespace: Required value",
				"spec.roleRefs[1].namespace: Forbidden",
				"spec.roleRefs[2].kind: Unsupported value",
				"spec.roleRefs[3].namespace: Invalid value",
				"spec.roleRefs[4].name: Required value",
				"spec.roleRefs[4].apiGroup: Unsupported value",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ClusterPermission.New(parsed(t, test.spec)), test.want...)
		})
	}
}

func TestName(t *testing.T) {
	for name, want := range map[string][]string{
		"my.permission-1":        nil,
		strings.Repeat("a", 182): nil,
		strings.Repeat("a", 183): {"metadata.name: Invalid value"},
		"My_Permission":          {"metadata.name: Invalid value"},
	} {
		cp := parsed(t, aliceBinding)
		cp.Name = name
		fieldtest.Check(t, ClusterPermission.New(cp), want...)
	}
}

func TestProposalSampleIsValid(t *testing.T) {
	data, err := os.ReadFile("../../../../test/permission/testdata/proposal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cp := decode(t, string(data))
	fieldtest.Check(t, ClusterPermission.New(cp))
	if warnings := WarningsForClusterPermission(cp); len(warnings) > 0 {
		t.Errorf("WarningsForClusterPermission() = %q, want none", warnings)
	}
}

func TestUpdateIgnoresStoredErrors(t *testing.T) {
	const half = "- {namespace: a, roleRef: {kind: Role, name: r}, subject: {kind: User, name: alice}}\n"
	const good = "- {namespace: b, roleRef: {kind: Role}, subject: {kind: User, name: alice}}\n"
	tests := map[string]struct {
		old, spec string
		want      []string
	}{
		"nothing changed":              {old: "roleBindings:\n" + half, spec: "roleBindings:\n" + half},
		"no bindings before and after": {old: "clusterRole: {rules: []}", spec: "clusterRole: {rules: []}"},
		"good part added":              {old: "roleBindings:\n" + half, spec: "roleBindings:\n" + good + half},
		"good part removed":            {old: "roleBindings:\n" + good + half, spec: "roleBindings:\n" + half},
		"bad part removed":             {old: "roleBindings:\n" + good + half, spec: "roleBindings:\n" + good},
		"bad part changed": {
			old:  "roleBindings:\n" + half,
			spec: "roleBindings:\n" + strings.ReplaceAll(half, "alice", "bob"),
			want: []string{"spec.roleBindings[0].roleRef.apiGroup: Required value"},
		},
		"bad part added": {
			old:  "roleBindings:\n" + half,
			spec: "roleBindings:\n" + half + strings.ReplaceAll(half, "namespace: a", "namespace: c"),
			want: []string{"spec.roleBindings[1].roleRef.apiGroup: Required value"},
		},
		"last binding removed": {
			old:  "clusterRole: {rules: []}\nroleBindings:\n" + good,
			spec: "clusterRole: {rules: []}",
			want: []string{"spec: Required value"},
		},
		"rule added to a bad one": {
			old:  aliceBinding + `clusterRole: {rules: [{verbs: [get], resources: [pods]}]}`,
			spec: aliceBinding + `clusterRole: {rules: [{verbs: [get], resources: [nodes], apiGroups: [""]}, {verbs: [get], resources: [pods]}]}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ClusterPermission.Update(parsed(t, test.spec), parsed(t, test.old)), test.want...)
		})
	}
}

func TestMetadataOfInvalidObjectMayChange(t *testing.T) {
	old := parsed(t, `clusterRole: {rules: []}`)
	old.Name = strings.Repeat("a", 250)
	cp := old.DeepCopy()
	cp.Labels = map[string]string{"team": "qa"}
	cp.Finalizers = []string{"example.com/keep"}
	fieldtest.Check(t, ClusterPermission.Update(cp, old))
}

func TestStatus(t *testing.T) {
	old := parsed(t, aliceBinding)
	cp := old.DeepCopy()
	good := metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: metav1.Now()}
	bad := metav1.Condition{Type: "Applied", Status: "Perhaps", Reason: "Done", LastTransitionTime: metav1.Now()}
	cp.Status.Conditions = []metav1.Condition{good}
	cp.Status.ResourceStatus = &v1alpha1.ResourceStatus{
		ClusterRoles: []v1alpha1.ClusterScopedResourceStatus{{Name: "p", Conditions: []metav1.Condition{bad}}},
		Roles:        []v1alpha1.NamespacedResourceStatus{{Name: "p", Conditions: []metav1.Condition{good}}},
	}
	fieldtest.Check(t, ClusterPermission.UpdateStatus(cp, old),
		"status.resourceStatus.clusterRoles[0].condition[0].status: Unsupported value",
		"status.resourceStatus.roles[0].namespace: Required value")
	fieldtest.Check(t, ClusterPermission.UpdateStatus(cp, cp.DeepCopy()))
}

func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string
	}{
		"none": {spec: aliceBinding},
		"binds its own ClusterRole, and has none": {
			spec: `
clusterRoleBinding: {subject: {kind: User, name: alice}}
roleBindings: [{namespace: a, roleRef: {kind: ClusterRole}, subject: {kind: User, name: alice}}]`,
			want: []string{"spec.clusterRoleBinding.roleRef: ", "spec.roleBindings[0].roleRef: "},
		},
		"binds its own Role, and has none there": {
			spec: `
roles: [{namespace: a, rules: []}]
roleBindings:
- {namespace: a, roleRef: {kind: Role}, subject: {kind: User, name: alice}}
- {namespace: b, roleRef: {kind: Role}, subject: {kind: User, name: alice}}`,
			want: []string{"spec.roleBindings[1].roleRef: "},
		},
		"a selector may match": {
			spec: `
roles: [{namespaceSelector: {}, rules: []}]
roleBindings: [{namespace: b, roleRef: {kind: Role}, subject: {kind: User, name: alice}}]`,
		},
		"its own role is a role of the hub": {
			spec: `
clusterRoleBinding: {subject: {kind: User, name: alice}}
roleRefs: [{kind: ClusterRole, name: p}]`,
		},
		"subject that is none of subjects": {
			spec: `
clusterRole: {rules: []}
clusterRoleBinding: {subject: {kind: User, name: bob}, subjects: [{kind: User, name: alice}]}
clusterRoleBindings:
- {name: empty, subject: {kind: "", name: ""}, subjects: [{kind: User, name: alice}]}
- {name: same, subject: {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}, subjects: [{kind: User, name: alice}]}`,
			want: []string{"spec.clusterRoleBinding.subject: ignored"},
		},
		"namespace of a ManagedServiceAccount": {
			spec: `
clusterRole: {rules: []}
clusterRoleBinding: {subjects: [{kind: ManagedServiceAccount, apiGroup: authentication.open-cluster-management.io, name: robot, namespace: n}]}`,
			want: []string{"spec.clusterRoleBinding.subjects[0].namespace: "},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cp := parsed(t, test.spec)
			fieldtest.Check(t, ClusterPermission.New(cp))
			got := WarningsForClusterPermission(cp)
			if len(got) != len(test.want) {
				t.Fatalf("WarningsForClusterPermission() = %q, want %q", got, test.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("warning %d = %q, want %q", i, got[i], test.want[i])
				}
			}
		})
	}
}
