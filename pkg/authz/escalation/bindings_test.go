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

// ownRole is a manifest of a role that is named as the ClusterPermission is.
func ownRole(kind, namespace, rules string) string {
	return fmt.Sprintf("\nkind: %s\nmetadata: {name: %s, namespace: %s}\nrules: %s\n---", kind, cpName, namespace, rules)
}

// TestBound is about what binding a role grants.
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
		"an unknown role":                                  {delivered: readerRole + aliceReads, spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"an unknown role which the caller has":             {delivered: bound("there", asAlice), spec: clusterWide(refTo("ClusterRole", "there"))},
		"an unknown role which the caller has, in one":     {delivered: bound("there", asAlice), spec: inANamespace(refTo("ClusterRole", "there"))},
		"an unknown role which the caller has there":       {delivered: strings.ReplaceAll(aliceReadsInA, "name: reader", "name: there"), spec: inANamespace(refTo("ClusterRole", "there"))},
		"an unknown role which the caller has in one only": {delivered: strings.ReplaceAll(aliceReadsInA, "name: reader", "name: there"), spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"an unknown Role which the caller has in one, by selector": {
			delivered: strings.ReplaceAll(aliceReadsInA, "kind: ClusterRole, name: reader", "kind: Role, name: there"),
			spec:      `roleBindings: [{namespaceSelector: {}, ` + refTo("Role", "there") + `, ` + toBob + `}]`, want: refusedInNamespace,
		},
		"a Role of the ClusterRole's name":             {delivered: bound("there", asAlice), spec: inANamespace(refTo("Role", "there")), want: refusedInNamespace},
		"an unknown role, holding everything":          {delivered: everything, spec: clusterWide(refTo("ClusterRole", "there"))},
		"an unknown role, holding all but URLs":        {delivered: resourcesOnly, spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"an unknown role, holding everything there":    {delivered: everythingInA, spec: inANamespace(refTo("ClusterRole", "there"))},
		"an unknown role, holding all in another only": {delivered: everythingInA, spec: `roleBindings: [{namespace: b, ` + refTo("ClusterRole", "there") + `, ` + toBob + `}]`, want: refusedInNamespace},
		"a stub is no empty role":                      {delivered: stub, spec: clusterWide(refTo("ClusterRole", "there")), want: refused},
		"a role that is delivered with no rules":       {delivered: stub + "\nkind: ClusterRole\nmetadata: {name: there}\nrules: []\n---", spec: clusterWide(refTo("ClusterRole", "there"))},
		"a delivered role":                             {delivered: readerRole + aliceReads, spec: clusterWide(refTo("ClusterRole", "reader"))},
		"a delivered role, held there only":            {delivered: readerRole + aliceReadsInA, spec: clusterWide(refTo("ClusterRole", "reader")), want: refused},
		"a delivered role that grants more":            {delivered: masterRole + readerRole + aliceReads, spec: clusterWide(refTo("ClusterRole", "master")), want: refused},
		"a delivered role that differs between works": {
			delivered: readerRole + aliceReads + "\nkind: ClusterRole\nmetadata: {name: two}\nrules: []\n---\nkind: ClusterRole\nmetadata: {name: two}\nrules: " + all,
			spec:      clusterWide(refTo("ClusterRole", "two")), want: refused,
		},
		"a role that differs between works, which the caller has": {
			delivered: bound("two", asAlice) + "\nkind: ClusterRole\nmetadata: {name: two}\nrules: []\n---\nkind: ClusterRole\nmetadata: {name: two}\nrules: " + all,
			spec:      clusterWide(refTo("ClusterRole", "two")),
		},
		"a delivered Role, whatever it is elsewhere": {
			delivered: readerRole + aliceReads + "\nkind: Role\nmetadata: {name: x, namespace: a}\nrules: " + readPods + "\n---\nkind: Role\nmetadata: {name: x, namespace: b}\nrules: " + all,
			spec:      inANamespace(refTo("Role", "x")),
		},
		"URLs in a namespace, holding everything there": {
			delivered: everythingInA, spec: `roles: [{namespace: a, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}]`, want: []string{"escalate spec.roles[0]"},
		},
		"the own role":                  {delivered: readerRole + aliceReads, spec: "clusterRole: {rules: " + readPods + "}\n" + clusterWide(`name: x`)},
		"the own role by name":          {delivered: readerRole + aliceReads, spec: "clusterRole: {rules: " + readPods + "}\n" + clusterWide(refTo("ClusterRole", cpName))},
		"the own role in a namespace":   {delivered: readerRole + aliceReads, spec: "clusterRole: {rules: " + readPods + "}\n" + inANamespace(`roleRef: {kind: ClusterRole}`)},
		"the own role, which is absent": {delivered: readerRole + aliceReads, spec: clusterWide(`name: x`), want: refused},
		"the own role, which is a reference": {
			delivered: bound(cpName, asAlice), spec: "roleRefs: [{kind: ClusterRole, name: " + cpName + "}]\n" + clusterWide(`name: x`),
			want: []string{"bind spec.clusterRoleBindings[0]", "escalate spec.roleRefs[0]"},
		},
		"the own Role, which is there":     {delivered: readerRole + aliceReads, spec: "roles: [{" + inA + "rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`)},
		"the own Role, which is elsewhere": {delivered: readerRole + aliceReads, spec: "roles: [{namespace: b, rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`), want: refusedInNamespace},
		"the own Role by the same selector": {
			delivered: readerRole + aliceReads, spec: "roles: [{namespaceSelector: {matchLabels: {x: y, z: y}}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {matchLabels: {z: y, x: y}}, roleRef: {kind: Role}, " + toBob + "}]",
		},
		"the own Role by another selector": {
			delivered: readerRole + aliceReads, spec: "roles: [{namespaceSelector: {matchLabels: {x: y}}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"the own Role that may be selected": {
			delivered: readerRole + aliceReads, spec: "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`), want: refusedInNamespace,
		},
		"a selected Role beside that of the namespace": {
			delivered: readerRole + aliceReads,
			spec:      "roles: [{" + inA + "rules: " + readPods + "}, {namespaceSelector: {matchLabels: {x: y}}, rules: " + all + "}]\n" + inANamespace(`roleRef: {kind: Role}`),
			want:      []string{"escalate spec.roles[1]", "bind spec.roleBindings[0]"},
		},
		"a selected binding of a Role that one namespace has otherwise": {
			delivered: readerRole + aliceReads + everythingInA,
			spec:      "roles: [{" + inA + "rules: " + all + "}, {namespaceSelector: {}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]",
			want:      refusedInNamespace,
		},
		"a selected binding of a Role that one namespace has from the hub": {
			delivered: readerRole + aliceReads + everythingInA,
			spec:      "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\nroleRefs: [{kind: Role, namespace: a, name: " + cpName + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]",
			want:      refusedInNamespace,
		},
		"a subject that has no account yet": {spec: `clusterRoleBindings: [{` + refTo("ClusterRole", "there") + `, subject: {apiGroup: authentication.open-cluster-management.io, kind: ManagedServiceAccount, name: x}}]`, want: refused},
		"a binding without subjects":        {spec: `clusterRoleBindings: [{` + refTo("ClusterRole", "there") + `}]`, want: refused},

		// The harmless rules of an own role are no more than one half of a role that
		// something else on the cluster writes as well.
		"own role name shadowing another's": {
			delivered: readerRole + aliceReads + ownRole("ClusterRole", "", all), spec: "clusterRole: {rules: " + readPods + "}\n" + clusterWide(`name: x`), want: refused,
		},
		"own Role name shadowing another's": {
			delivered: readerRole + aliceReads + ownRole("Role", "a", all), spec: "roles: [{" + inA + "rules: " + readPods + "}]\n" + inANamespace(`roleRef: {kind: Role}`), want: refusedInNamespace,
		},
		"a Role by selector that is delivered in one namespace": {
			delivered: ownRole("Role", "a", "[]"), spec: "roleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"own selected Role name shadowing one that is not known": {
			delivered: readerRole + aliceReads + ownRole("Role", "a", "[]") + ownRole("Role", "a", readPods) + ownRole("Role", "b", "[]"),
			spec:      "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"own selected Role name shadowing another's": {
			delivered: readerRole + aliceReads + ownRole("Role", "a", all), spec: "roles: [{namespaceSelector: {}, rules: " + readPods + "}]\nroleBindings: [{namespaceSelector: {}, roleRef: {kind: Role}, " + toBob + "}]", want: refusedInNamespace,
		},
		"a role of the hub that is not there yet": {delivered: readerRole + aliceReads, spec: `roleRefs: [{kind: ClusterRole, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"a role of the hub, delivered already": {
			delivered: readerRole + aliceReads, spec: `roleRefs: [{kind: ClusterRole, name: reader}]`, want: []string{"escalate spec.roleRefs[0]"},
		},
		"a role of the hub, holding everything":             {delivered: everything, spec: `roleRefs: [{kind: ClusterRole, name: later}]`},
		"a role of the hub, holding all but URLs":           {delivered: resourcesOnly, spec: `roleRefs: [{kind: ClusterRole, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"a Role of the hub, holding everything there":       {delivered: everythingInA, spec: `roleRefs: [{kind: Role, namespace: a, name: later}]`},
		"a Role of the hub, holding everything elsewhere":   {delivered: everythingInA, spec: `roleRefs: [{kind: Role, namespace: b, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"a Role of the hub without a namespace":             {delivered: everythingInA, spec: `roleRefs: [{kind: Role, name: later}]`, want: []string{"escalate spec.roleRefs[0]"}},
		"a kind that is none, holding the role of its name": {delivered: bound("there", asAlice), spec: inANamespace(refTo("Rule", "there")), want: refusedInNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			got := missing(check(t, alice, &hub{}, manifests(t, test.delivered), yamlSpec(t, test.spec), nil))
			if !slices.Equal(got, test.want) {
				t.Errorf("missing %q, not %q", got, test.want)
			}
		})
	}
}

// TestAdoptedNames is about ClusterRoles that every cluster has: whoever defines one
// does not decide what it grants.
func TestAdoptedNames(t *testing.T) {
	s := yamlSpec(t, grantsReading)
	for name, refused := range map[string]bool{"cluster-admin": true, "admin": true, "edit": true, "view": true, "viewers": false} {
		grants := newGrants(name, s, newGranted(name, nil), newBudget())
		judge := newJudge(alice, manifests(t, readerRole+aliceReads), newGranted(name, nil), newBudget())
		got := slices.ContainsFunc(grants, func(g grant) bool { return judge.missing(&g) != nil })
		if got != refused {
			t.Errorf("%s: refused %v", name, got)
		}
	}
}
