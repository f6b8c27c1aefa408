package escalation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const toBob = `subject: {kind: User, name: bob}`

func refTo(kind, name string) string {
	return fmt.Sprintf("roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}", kind, name)
}

// ownRole returns a manifest of a role with the name of the ClusterPermission.
func ownRole(kind, namespace, rules string) string {
	return fmt.Sprintf("\nkind: %s\nmetadata: {name: %s, namespace: %s}\nrules: %s\n---", kind, cpName, namespace, rules)
}

// TestBound checks which grants of bindings are refused.
func TestBound(t *testing.T) {
	const (
		asAlice  = `{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}`
		readPods = `[{apiGroups: [""], resources: [pods], verbs: [get]}]`
		all      = `[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`
		stub     = "\nkind: ClusterRole\nmetadata: {name: there}\n---"
	)
	resourcesOnly := "\nkind: ClusterRole\nmetadata: {name: most}\nrules: " + all + "\n---" + bound("most", asAlice)
	everything := masterRole + bound("master", asAlice)
	everythingInA := masterRole + `
kind: RoleBinding
metadata: {name: most, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: master}
subjects: [` + asAlice + `]
---`
	const inA = `namespace: a, `
	inANamespace := func(ref string) string { return `roleBindings: [{` + inA + ref + `, ` + toBob + `}]` }
	clusterWide := func(ref string) string { return `clusterRoleBindings: [{` + ref + `, ` + toBob + `}]` }
	refused, refusedInNamespace := []string{"bind spec.clusterRoleBindings[0]"}, []string{"bind spec.roleBindings[0]"}

	for name, test := range map[string]struct {
		delivered, spec string
		want            []string
	}{
		"an unknown role":                                             {delivered: readerRole + aliceReads, spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"an unknown role that the caller holds":                       {delivered: bound("there", asAlice), spec: clusterWide(refTo("ClusterRole", "there"))},
		"an unknown role that the caller holds, in one namespace":     {delivered: bound("there", asAlice), spec: inANamespace(refTo("ClusterRole", "there"))},
		"an unknown role that the caller holds in the namespace":      {delivered: strings.ReplaceAll(aliceReadsInA, "name: reader", "name: there"), spec: inANamespace(refTo("ClusterRole", "there"))},
		"an unknown role that the caller holds in one namespace only": {delivered: strings.ReplaceAll(aliceReadsInA, "name: reader", "name: there"), spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"an unknown Role that the caller holds in one namespace, by selector": {
			delivered: strings.ReplaceAll(aliceReadsInA, "kind: ClusterRole, name: reader", "kind: Role, name: there"),
			spec:      `roleBindings: [{namespaceSelector: {}, ` + refTo("Role", "there") + `, ` + toBob + `}]`, want: refusedInNamespace,
		},
		"a Role with the name of a held ClusterRole":               {delivered: bound("there", asAlice), spec: inANamespace(refTo("Role", "there")), want: refusedInNamespace},
		"an unknown role, holding everything":                      {delivered: everything, spec: clusterWide(refTo("ClusterRole", "there"))},
		"an unknown role, holding all but URLs":                    {delivered: resourcesOnly, spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"an unknown role, holding everything in the namespace":     {delivered: everythingInA, spec: inANamespace(refTo("ClusterRole", "there"))},
		"an unknown role, holding everything in another namespace": {delivered: everythingInA, spec: `roleBindings: [{namespace: b, ` + refTo("ClusterRole", "there") + `, ` + toBob + `}]`, want: refusedInNamespace},
		"a role without the field rules":                           {delivered: stub, spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"a role that is delivered with empty rules":                {delivered: stub + "\nkind: ClusterRole\nmetadata: {name: there}\nrules: []\n---", spec: clusterWide(refTo("ClusterRole", "there"))},
		"a delivered role":                                         {delivered: readerRole + aliceReads, spec: clusterWide(refTo("ClusterRole", "reader"))},
		"a delivered role, held in one namespace only":             {delivered: readerRole + aliceReadsInA, spec: clusterWide(refTo("ClusterRole", "reader")), want: refused},
		"a delivered role that grants more":                        {delivered: masterRole + readerRole + aliceReads, spec: clusterWide(refTo("ClusterRole", "master")), want: refused},
		"a delivered role that differs between ManifestWorks": {
			delivered: readerRole + aliceReads + "\nkind: ClusterRole\nmetadata: {name: two}\nrules: []\n---\nkind: ClusterRole\nmetadata: {name: two}\nrules: " + all,
			spec:      clusterWide(refTo("ClusterRole", "two")), want: refused,
		},
		"a role that differs between ManifestWorks, which the caller holds": {
			delivered: bound("two", asAlice) + "\nkind: ClusterRole\nmetadata: {name: two}\nrules: []\n---\nkind: ClusterRole\nmetadata: {name: two}\nrules: " + all,
			spec:      clusterWide(refTo("ClusterRole", "two")),
		},
		"a delivered Role that differs in another namespace": {
			delivered: readerRole + aliceReads + "\nkind: Role\nmetadata: {name: x, namespace: a}\nrules: " + readPods + "\n---\nkind: Role\nmetadata: {name: x, namespace: b}\nrules: " + all,
			spec:      inANamespace(refTo("Role", "x")),
		},
		"URLs in a namespace, holding everything in the namespace": {
			delivered: everythingInA, spec: `roles: [{namespace: a, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}]`, want: []string{"escalate spec.roles[0]"},
		},
		"the own role":                                 {delivered: readerRole + aliceReads, spec: "clusterRole: {rules: " + readPods + "}\n" + clusterWide(`name: x`)},
		"the own role by name":                         {delivered: readerRole + aliceReads, spec: "clusterRole: {rules: " + readPods + "}\n" + clusterWide(refTo("ClusterRole", cpName))},
		"the own role in a namespace":                  {delivered: readerRole + aliceReads, spec: "clusterRole: {rules: " + readPods + "}\n" + inANamespace(`roleRef: {kind: ClusterRole}`)},
		"the own role, which the spec does not define": {delivered: readerRole + aliceReads, spec: clusterWide(`name: x`), want: refused},
		"the own role, which is a role of the hub": {
			delivered: bound(cpName, asAlice), spec: "roleRefs: [{kind: ClusterRole, name: " + cpName + "}]\n" + clusterWide(`name: x`),
			want: []string{"bind spec.clusterRoleBindings[0]", "escalate spec.roleRefs[0]"},
		},
		"the own Role in the same namespace": {delivered: readerRole + aliceReads, spec: "roles: [{" + inA + "rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`)},
		"the own Role in another namespace":  {delivered: readerRole + aliceReads, spec: "roles: [{namespace: b, rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`), want: refusedInNamespace},
		"the own Role by the same selector": {
			delivered: readerRole + aliceReads, spec: "roles: [{namespaceSelector: {matchLabels: {x: y, z: y}}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {matchLabels: {z: y, x: y}}, roleRef: {kind: Role}, " + toBob + "}]",
		},
		"the own Role by another selector": {
			delivered: readerRole + aliceReads, spec: "roles: [{namespaceSelector: {matchLabels: {x: y}}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"the own Role that may be selected": {
			delivered: readerRole + aliceReads, spec: "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`), want: refusedInNamespace,
		},
		"a selected Role in addition to the Role of the namespace": {
			delivered: readerRole + aliceReads,
			spec:      "roles: [{" + inA + "rules: " + readPods + "}, {namespaceSelector: {matchLabels: {x: y}}, rules: " + all + "}]\n" + inANamespace(`roleRef: {kind: Role}`),
			want:      []string{"escalate spec.roles[1]", "bind spec.roleBindings[0]"},
		},
		"a selected binding of a Role that differs in one namespace": {
			delivered: readerRole + aliceReads + everythingInA,
			spec:      "roles: [{" + inA + "rules: " + all + "}, {namespaceSelector: {}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]",
			want:      refusedInNamespace,
		},
		"a selected binding of a Role that is a role of the hub in one namespace": {
			delivered: readerRole + aliceReads + everythingInA,
			spec:      "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\nroleRefs: [{kind: Role, namespace: a, name: " + cpName + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]",
			want:      refusedInNamespace,
		},
		"a subject without an account": {spec: `clusterRoleBindings: [{` + refTo("ClusterRole", "there") + `, subject: {apiGroup: authentication.open-cluster-management.io, kind: ManagedServiceAccount, name: x}}]`, want: refused},
		"a binding without subjects":   {spec: `clusterRoleBindings: [{` + refTo("ClusterRole", "there") + `}]`, want: refused},

		// If others also deliver the own role, it may contain their rules.
		"own role with the name of another role": {
			delivered: readerRole + aliceReads + ownRole("ClusterRole", "", all), spec: "clusterRole: {rules: " + readPods + "}\n" + clusterWide(`name: x`), want: refused,
		},
		"own Role with the name of another Role": {
			delivered: readerRole + aliceReads + ownRole("Role", "a", all), spec: "roles: [{" + inA + "rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`), want: refusedInNamespace,
		},
		"a Role by selector that is delivered in one namespace": {
			delivered: ownRole("Role", "a", "[]"), spec: "roleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"own selected Role with the name of an unknown Role": {
			delivered: readerRole + aliceReads + ownRole("Role", "a", "[]") + ownRole("Role", "a", readPods) + ownRole("Role", "b", "[]"),
			spec:      "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"own selected Role with the name of another Role": {
			delivered: readerRole + aliceReads + ownRole("Role", "a", all), spec: "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"a role of the hub that does not exist": {delivered: readerRole + aliceReads, spec: `roleRefs: [{kind: ClusterRole, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"a role of the hub that is already delivered": {
			delivered: readerRole + aliceReads, spec: `roleRefs: [{kind: ClusterRole, name: reader}]`, want: []string{"escalate spec.roleRefs[0]"},
		},
		"a role of the hub, holding everything":                      {delivered: everything, spec: `roleRefs: [{kind: ClusterRole, name: later}]`},
		"a role of the hub, holding all but URLs":                    {delivered: resourcesOnly, spec: `roleRefs: [{kind: ClusterRole, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"a Role of the hub, holding everything in its namespace":     {delivered: everythingInA, spec: `roleRefs: [{kind: Role, namespace: a, name: later}]`},
		"a Role of the hub, holding everything in another namespace": {delivered: everythingInA, spec: `roleRefs: [{kind: Role, namespace: b, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"a Role of the hub without a namespace":                      {delivered: everythingInA, spec: `roleRefs: [{kind: Role, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"an unknown kind, holding the role of the same name":         {delivered: bound("there", asAlice), spec: inANamespace(refTo("Rule", "there")), want: refusedInNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			got := missing(check(t, alice, &hub{}, manifests(t, test.delivered), yamlSpec(t, test.spec), nil))
			if !slices.Equal(got, test.want) {
				t.Errorf("missing grants of Check() = %q, want %q", got, test.want)
			}
		})
	}
}

// Every cluster has these ClusterRoles, and they grant more than the rules that a spec defines.
func TestAdoptedNames(t *testing.T) {
	s := yamlSpec(t, grantsReading)
	for name, refused := range map[string]bool{"cluster-admin": true, "admin": true, "edit": true, "view": true, "viewers": false} {
		grants := newGrants(name, s, newGranted(name, nil), newBudget())
		judge := newJudge(alice, manifests(t, readerRole+aliceReads), newGranted(name, nil), newBudget())
		got := slices.ContainsFunc(grants, func(g grant) bool { return judge.missing(&g) != nil })
		if got != refused {
			t.Errorf("refused ClusterPermission %s = %t, want %t", name, got, refused)
		}
	}
}
