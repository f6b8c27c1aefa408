package escalation

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Manifests that ManifestWorks have delivered.
const (
	// masterRole is a ClusterRole with all permissions.
	masterRole = `
kind: ClusterRole
metadata: {name: master}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}, {nonResourceURLs: ["*"], verbs: ["*"]}]
---`
	readerRole = `
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}, {nonResourceURLs: [/metrics], verbs: [get]}]
---`
	aliceReads = `
kind: ClusterRoleBinding
metadata: {name: alice-reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---`
	aliceReadsInA = `
kind: RoleBinding
metadata: {name: alice-reads, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---`
)

// bound binds a ClusterRole to one subject, cluster-wide.
func bound(role, subject string) string {
	return `
kind: ClusterRoleBinding
metadata: {name: of-` + role + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ` + role + `}
subjects: [` + subject + `]
---`
}

// grantsReading is covered by holding the role reader.
const grantsReading = `
clusterRole: {rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]}
clusterRoleBinding: {subject: {kind: User, name: bob}}
`

var refusedReading = []string{"escalate spec.clusterRole", "bind spec.clusterRoleBinding"}

// TestHeld checks which delivered permissions a caller holds.
func TestHeld(t *testing.T) {
	asAlice := `{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}`
	for name, test := range map[string]struct {
		caller    *user.DefaultInfo
		delivered string
		spec      string
		want      []string
	}{
		"by name":  {delivered: readerRole + aliceReads, spec: grantsReading},
		"by group": {delivered: readerRole + bound("reader", `{kind: Group, name: team}`), spec: grantsReading},
		"all authenticated users": {
			delivered: readerRole + bound("reader", `{kind: Group, name: "system:authenticated"}`), spec: grantsReading,
		},
		"all authenticated users, without the anonymous user": {
			caller:    &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllAuthenticated}},
			delivered: readerRole + bound("reader", `{kind: Group, name: "system:authenticated"}`), spec: grantsReading, want: refusedReading,
		},
		"a binding of another user":  {delivered: readerRole + bound("reader", `{kind: User, name: mallory}`), spec: grantsReading, want: refusedReading},
		"a group of the user's name": {delivered: readerRole + bound("reader", `{kind: Group, name: alice}`), spec: grantsReading, want: refusedReading},
		"a user of another API group": {
			delivered: readerRole + bound("reader", `{apiGroup: example.com, kind: User, name: alice}`), spec: grantsReading, want: refusedReading,
		},
		"group system:masters": {
			caller:    &user.DefaultInfo{Name: "alice", Groups: []string{"system:masters"}},
			delivered: masterRole + bound("master", `{kind: Group, name: "system:masters"}`), spec: grantsReading, want: refusedReading,
		},
		"a hub ServiceAccount of the same name": {
			caller:    &user.DefaultInfo{Name: "system:serviceaccount:ops:robot", Groups: []string{"system:serviceaccounts"}},
			delivered: masterRole + bound("master", `{kind: ServiceAccount, namespace: ops, name: robot}`), spec: grantsReading, want: refusedReading,
		},
		"a hub ServiceAccount by its user name": {
			caller:    &user.DefaultInfo{Name: "system:serviceaccount:ops:robot", Groups: []string{"system:serviceaccounts"}},
			delivered: masterRole + bound("master", `{kind: User, name: "system:serviceaccount:ops:robot"}`), spec: grantsReading, want: refusedReading,
		},
		"a hub ServiceAccount by its group": {
			caller:    &user.DefaultInfo{Name: "system:serviceaccount:ops:robot", Groups: []string{"system:serviceaccounts"}},
			delivered: masterRole + bound("master", `{kind: Group, name: "system:serviceaccounts"}`), spec: grantsReading, want: refusedReading,
		},
		"a user without a name": {
			caller: &user.DefaultInfo{}, delivered: masterRole + bound("master", `{kind: User}`), spec: grantsReading, want: refusedReading,
		},
		"a role that differs between ManifestWorks": {
			delivered: masterRole + bound("master", asAlice) + "\nkind: ClusterRole\nmetadata: {name: master}\nrules: []\n---", spec: grantsReading, want: refusedReading,
		},
		"a role that is equal in two ManifestWorks": {delivered: readerRole + readerRole + aliceReads, spec: grantsReading},
		"a role that the cluster aggregates": {
			delivered: "\nkind: ClusterRole\nmetadata: {name: reader}\naggregationRule: {}\nrules: [{apiGroups: [\"\"], resources: [pods], verbs: [get, list]}]\n---" + aliceReads,
			spec:      grantsReading, want: refusedReading,
		},
		"a role of another API group": {
			delivered: readerRole + `
kind: ClusterRoleBinding
metadata: {name: odd}
roleRef: {apiGroup: example.com, kind: ClusterRole, name: reader}
subjects: [{kind: User, name: alice}]`, spec: grantsReading, want: refusedReading,
		},
		"manifests of other kinds than RBAC": {
			delivered: readerRole + "\nkind: ConfigMap\nmetadata: {name: x}\nrules: 7\n---\nkind: ClusterRoleBinding\nsubjects: 7\n---" + aliceReads, spec: grantsReading,
		},
		"manifests of another version of RBAC": {
			delivered: strings.ReplaceAll(readerRole+aliceReads, "\nkind: Cluster", "\napiVersion: rbac.authorization.k8s.io/v1beta1\nkind: Cluster"),
			spec:      grantsReading, want: refusedReading,
		},
		"a rule about resources and URLs, held in a namespace": {
			delivered: strings.ReplaceAll(readerRole, "verbs: [get, list]", "verbs: [get, list], nonResourceURLs: [/metrics]") + aliceReadsInA,
			spec:      `roles: [{namespace: a, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}]`,
			want:      []string{"escalate spec.roles[0]"},
		},
		"held in one namespace only":    {delivered: readerRole + aliceReadsInA, spec: grantsReading, want: refusedReading},
		"held in the granted namespace": {delivered: readerRole + aliceReadsInA, spec: `roles: [{namespace: a, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]`},
		"held in another namespace": {
			delivered: readerRole + aliceReadsInA, spec: `roles: [{namespace: b, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]`,
			want: []string{"escalate spec.roles[0]"},
		},
		"held everywhere, granted in one namespace": {delivered: readerRole + aliceReads, spec: `roles: [{namespace: b, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]`},
		"selector escape": {
			delivered: readerRole + aliceReadsInA,
			spec:      `roles: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]`,
			want:      []string{"escalate spec.roles[0]"},
		},
		"selector escape with a namespace": {
			delivered: readerRole + aliceReadsInA,
			spec:      `roles: [{namespace: a, namespaceSelector: {}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]`,
			want:      []string{"escalate spec.roles[0]"},
		},
		"selector escape without namespace and selector": {
			delivered: readerRole + aliceReadsInA, spec: `roles: [{rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]`,
			want: []string{"escalate spec.roles[0]"},
		},
		"held everywhere, granted by selector": {
			delivered: readerRole + aliceReads, spec: `roles: [{namespaceSelector: {}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}]`,
		},
		"nonResourceURLs held cluster-wide": {delivered: readerRole + aliceReads, spec: `clusterRole: {rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}`},
		"nonResourceURLs held in a namespace": {
			delivered: readerRole + aliceReadsInA, spec: `clusterRole: {rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}`,
			want: []string{"escalate spec.clusterRole"},
		},
		"nonResourceURLs granted in a namespace": {
			delivered: readerRole + aliceReadsInA, spec: `roles: [{namespace: a, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}]`,
			want: []string{"escalate spec.roles[0]"},
		},
		"nonResourceURLs that no binding in a namespace grants": {
			delivered: readerRole + aliceReadsInA,
			spec:      `roleBindings: [{namespace: a, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}, subject: {kind: User, name: bob}}]`,
		},
		"all verbs": {
			delivered: readerRole + aliceReads, spec: `clusterRole: {rules: [{apiGroups: [""], resources: [pods], verbs: ["*"]}]}`,
			want: []string{"escalate spec.clusterRole"},
		},
		"a subresource": {
			delivered: readerRole + aliceReads, spec: `clusterRole: {rules: [{apiGroups: [""], resources: [pods/exec], verbs: [get]}]}`,
			want: []string{"escalate spec.clusterRole"},
		},
		"one scale, held for all": {
			delivered: "\nkind: ClusterRole\nmetadata: {name: s}\nrules: [{apiGroups: [apps], resources: ['*/scale'], verbs: [get]}]\n---" + bound("s", asAlice),
			spec:      `clusterRole: {rules: [{apiGroups: [apps], resources: [deployments/scale], verbs: [get]}]}`,
		},
		"all scales, held for one": {
			delivered: "\nkind: ClusterRole\nmetadata: {name: s}\nrules: [{apiGroups: [apps], resources: [deployments/scale], verbs: [get]}]\n---" + bound("s", asAlice),
			spec:      `clusterRole: {rules: [{apiGroups: [apps], resources: ['*/scale'], verbs: [get]}]}`,
			want:      []string{"escalate spec.clusterRole"},
		},
		"one name, held for all": {delivered: readerRole + aliceReads, spec: `clusterRole: {rules: [{apiGroups: [""], resources: [pods], resourceNames: [x], verbs: [get]}]}`},
		"all names, held for one": {
			delivered: "\nkind: ClusterRole\nmetadata: {name: s}\nrules: [{apiGroups: [''], resources: [pods], resourceNames: [x], verbs: [get]}]\n---" + bound("s", asAlice),
			spec:      `clusterRole: {rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			want:      []string{"escalate spec.clusterRole"},
		},
		"a rule that grants nothing": {spec: `clusterRole: {rules: [{apiGroups: [], resources: [pods], verbs: [get]}]}`},
		"the binding that is requested itself": {
			delivered: readerRole,
			spec:      `clusterRoleBinding: {roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}, subject: {kind: User, name: alice}}`,
			want:      []string{"bind spec.clusterRoleBinding"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			caller := test.caller
			if caller == nil {
				caller = alice
			}
			got := missing(check(t, caller, &hub{}, manifests(t, test.delivered), yamlSpec(t, test.spec), nil))
			if !slices.Equal(got, test.want) {
				t.Errorf("missing grants of Check() = %q, want %q", got, test.want)
			}
		})
	}
}
