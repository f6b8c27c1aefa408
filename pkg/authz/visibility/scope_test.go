package visibility_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
)

// Parts of policies.
const (
	readPods = `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods, labels: {kubernetes.io/bootstrapping: rbac-defaults}}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
`
	annEverywhere = `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ann}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pods}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
`
	annInOne = `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ann, namespace: one}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pods}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
`
)

// clusterWide returns a policy with a rule for ann in all namespaces.
func clusterWide(rule string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: pods}\nrules:\n- " + rule + annEverywhere
}

func hub(group, resource, namespace string) visibility.Class {
	return visibility.Class{Cluster: "local-cluster", Hub: true, Group: group, Resource: resource, Namespace: namespace}
}

func named(name string, class visibility.Class) visibility.Object {
	return visibility.Object{Class: class, Name: name}
}

func TestAllows(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann", Groups: []string{"team", user.AllAuthenticated}}
	robot := &user.DefaultInfo{Name: "system:serviceaccount:one:robot", Groups: []string{"system:serviceaccounts"}}
	pod := named("x", hub("", "pods", "one"))
	subjects := func(kind, namespace, list string) string {
		in := ""
		if namespace != "" {
			in = ", namespace: " + namespace
		}
		return readPods + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: b" + in + "}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pods}\nsubjects: [" + list + "]\n"
	}
	for _, test := range []struct {
		name    string
		policy  string
		caller  user.Info
		object  visibility.Object
		allowed bool
	}{
		{"no policy", "", ann, pod, false},
		{"cluster-wide", readPods + annEverywhere, ann, pod, true},
		{"cluster-wide, for a cluster-scoped resource", readPods + annEverywhere, ann, named("x", hub("", "pods", "")), true},
		{"in the namespace", readPods + annInOne, ann, pod, true},
		{"in another namespace", readPods + annInOne, ann, named("x", hub("", "pods", "two")), false},
		{"a RoleBinding for a cluster-scoped resource", readPods + annInOne, ann, named("x", hub("", "pods", "")), false},
		{"another user", readPods + annEverywhere, &user.DefaultInfo{Name: "ben"}, pod, false},
		{"a group with the name of the user", readPods + annEverywhere, &user.DefaultInfo{Name: "ben", Groups: []string{"ann"}}, pod, false},
		{"a missing role", annEverywhere, ann, pod, false},
		{"another API group", readPods + annEverywhere, ann, named("x", hub("apps", "pods", "one")), false},
		{"another resource", readPods + annEverywhere, ann, named("x", hub("", "services", "one")), false},
		{"get is not list", clusterWide(`{apiGroups: [""], resources: [pods], verbs: [get, watch]}`), ann, pod, false},
		{"any verb", clusterWide(`{apiGroups: [""], resources: [pods], verbs: ["*"]}`), ann, pod, true},
		{"any group", clusterWide(`{apiGroups: ["*"], resources: [pods], verbs: [list]}`), ann, named("x", hub("apps", "pods", "one")), true},
		{"any resource", clusterWide(`{apiGroups: [""], resources: ["*"], verbs: [list]}`), ann, pod, true},
		{"any resource of another group", clusterWide(`{apiGroups: [apps], resources: ["*"], verbs: [list]}`), ann, pod, false},
		{"no API group", clusterWide(`{resources: [pods], verbs: [list]}`), ann, pod, false},
		{"a subresource", clusterWide(`{apiGroups: [""], resources: [pods/log], verbs: [list]}`), ann, pod, false},
		{"a subresource of all resources", clusterWide(`{apiGroups: [""], resources: ["*/log"], verbs: [list]}`), ann, pod, false},
		{"all subresources", clusterWide(`{apiGroups: [""], resources: ["pods/*"], verbs: [list]}`), ann, pod, false},
		{"a URL", clusterWide(`{nonResourceURLs: ["*"], verbs: [list]}`), ann, pod, false},
		{"the name", clusterWide(`{apiGroups: [""], resources: [pods], resourceNames: [z, x], verbs: [list]}`), ann, pod, true},
		{"another name", clusterWide(`{apiGroups: [""], resources: [pods], resourceNames: [z], verbs: [list]}`), ann, pod, false},
		{"a name that looks like a pattern", clusterWide(`{apiGroups: [""], resources: [pods], resourceNames: ["*"], verbs: [list]}`), ann, pod, false},
		{"the name among all resources", clusterWide(`{apiGroups: ["*"], resources: ["*"], resourceNames: [x], verbs: ["*"]}`), ann, pod, true},
		{"by group", subjects("ClusterRoleBinding", "", "{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}"), ann, pod, true},
		{"by another group", subjects("ClusterRoleBinding", "", "{apiGroup: rbac.authorization.k8s.io, kind: Group, name: teams}"), ann, pod, false},
		{"by all authenticated users", subjects("ClusterRoleBinding", "", "{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}"), ann, pod, true},
		{"an account", subjects("ClusterRoleBinding", "", "{kind: ServiceAccount, name: robot, namespace: one}"), robot, pod, true},
		{"an account of another namespace", subjects("ClusterRoleBinding", "", "{kind: ServiceAccount, name: robot, namespace: two}"), robot, pod, false},
		{"an account of the namespace of its binding", subjects("RoleBinding", "one", "{kind: ServiceAccount, name: robot}"), robot, pod, true},
		{"an account without a namespace", subjects("ClusterRoleBinding", "", "{kind: ServiceAccount, name: robot}"), robot, pod, false},
		{"an account by its user name", subjects("ClusterRoleBinding", "", "{kind: User, name: 'system:serviceaccount:one:robot'}"), robot, pod, true},
		{"a user with the name of an account", subjects("RoleBinding", "one", "{kind: ServiceAccount, name: ann}"), ann, pod, false},
		{"the privileged group", "", &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, pod, true},
		{"a user with the name of the privileged group", "", &user.DefaultInfo{Name: user.SystemPrivilegedGroup}, pod, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			scope := visibilitytest.Scope(t, test.policy, test.caller)
			if got := scope.Allows(test.object); got != test.allowed {
				t.Errorf("Allows() = %v, want %v", got, test.allowed)
			}
		})
	}
}

func TestNamesOfSeveralRules(t *testing.T) {
	policy := clusterWide(`{apiGroups: [""], resources: [pods], resourceNames: [d, a], verbs: [list]}
- {apiGroups: ["*"], resources: [pods], resourceNames: [c, a], verbs: [list]}`) + `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: more, namespace: one}
rules: [{apiGroups: [""], resources: ["*"], resourceNames: [b], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: more, namespace: one}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: more}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
`
	scope := visibilitytest.Scope(t, policy, &user.DefaultInfo{Name: "ann"})
	for namespace, want := range map[string][]string{"": {"a", "c", "d"}, "one": {"a", "b", "c", "d"}, "two": {"a", "c", "d"}} {
		// The second result comes from the cache.
		for range 2 {
			if got := scope.Decide(hub("", "pods", namespace)); got.All || !slices.Equal(got.Names, want) {
				t.Errorf("Decide() in namespace %q = %+v, want names %q", namespace, got, want)
			}
		}
	}
}

func TestManagedClusters(t *testing.T) {
	const view = `{apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}`
	ann := &user.DefaultInfo{Name: "ann"}
	role := func(rule string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: pods}\nrules:\n- " + rule
	}
	object := func(cluster, resource string) visibility.Object {
		return named("x", visibility.Class{Cluster: cluster, Resource: resource, Namespace: "ns"})
	}
	for _, test := range []struct {
		name    string
		policy  string
		caller  user.Info
		object  visibility.Object
		allowed bool
	}{
		{"no grant", "", ann, object("one", "pods"), false},
		{"list is not create", clusterWide(`{apiGroups: ["*"], resources: ["*"], verbs: [list]}`), ann, object("one", "pods"), false},
		{"in the namespace of the cluster", role(view) + annInOne, ann, object("one", "pods"), true},
		{"in the namespace of another cluster", role(view) + annInOne, ann, object("two", "pods"), false},
		{"cluster-wide", clusterWide(view), ann, object("two", "pods"), true},
		{"any verb on all resources", clusterWide(`{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}`), ann, object("two", "pods"), true},
		{"single names", clusterWide(`{apiGroups: ["*"], resources: ["*"], resourceNames: [x], verbs: ["*"]}`), ann, object("two", "pods"), false},
		{"a Secret", clusterWide(view), ann, object("two", "secrets"), false},
		{"a Secret, for the privileged group", "", &user.DefaultInfo{Groups: []string{user.SystemPrivilegedGroup}}, object("two", "secrets"), false},
		{"the privileged group", "", &user.DefaultInfo{Groups: []string{user.SystemPrivilegedGroup}}, object("two", "pods"), true},
		{"a resource of the hub", clusterWide(view), ann, named("x", hub("", "pods", "one")), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			scope := visibilitytest.Scope(t, test.policy, test.caller)
			if got := scope.Allows(test.object); got != test.allowed {
				t.Errorf("Allows() = %v, want %v", got, test.allowed)
			}
			if got := scope.Cluster(test.object.Cluster); got != test.allowed && !test.object.Hub && !test.object.Secret() {
				t.Errorf("Cluster() = %v, want %v", got, test.allowed)
			}
		})
	}
}

func TestZeroScope(t *testing.T) {
	var zero visibility.Scope
	if zero.WholeHub() || zero.AllClusters() || zero.Cluster("one") || zero.ID() != 0 ||
		zero.Allows(named("x", hub("", "pods", "one"))) || zero.Allows(named("", hub("", "pods", ""))) {
		t.Error("the zero Scope allows a resource, want none")
	}
}

func TestWhole(t *testing.T) {
	everything := visibility.Everything()
	if !everything.WholeHub() || !everything.AllClusters() {
		t.Errorf("WholeHub(), AllClusters() of the privileged group = %v, %v, want true, true", everything.WholeHub(), everything.AllClusters())
	}
	for rule, whole := range map[string]bool{
		`{apiGroups: ["*"], resources: ["*"], verbs: [list]}`:                     true,
		`{apiGroups: ["*"], resources: ["*"], resourceNames: [x], verbs: [list]}`: false,
		`{apiGroups: [""], resources: ["*"], verbs: [list]}`:                      false,
		`{apiGroups: ["*"], resources: ["*"], verbs: [get]}`:                      false,
	} {
		if got := visibilitytest.Scope(t, clusterWide(rule), &user.DefaultInfo{Name: "ann"}).WholeHub(); got != whole {
			t.Errorf("WholeHub() with rule %s = %v, want %v", rule, got, whole)
		}
	}
}

// Engines call Decide for each class of a fleet, so it must not allocate.
func TestDecideAllocatesNothing(t *testing.T) {
	scope := visibilitytest.Scope(t, readPods+annInOne, &user.DefaultInfo{Name: "ann"})
	inside, outside := named("x", hub("", "pods", "one")), named("x", hub("apps", "deployments", "two"))
	allocations := testing.AllocsPerRun(100, func() {
		if !scope.Allows(inside) || scope.Allows(outside) {
			t.Errorf("Allows() = %v, %v, want true inside and false outside of the namespace", scope.Allows(inside), scope.Allows(outside))
		}
	})
	if allocations != 0 {
		t.Errorf("allocations of Allows() = %v, want 0", allocations)
	}
}

func TestGets(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann"}
	for _, test := range []struct {
		name   string
		policy string
		caller user.Info
		want   visibility.Decision
	}{
		{"no policy", "", ann, visibility.Decision{}},
		{"all names", clusterWide(`{apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters], verbs: [get]}`), ann, visibility.Decision{All: true}},
		{"names", clusterWide(`{apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters], resourceNames: [b, a], verbs: [get]}`), ann, visibility.Decision{Names: []string{"a", "b"}}},
		{"any group and resource", clusterWide(`{apiGroups: ["*"], resources: ["*"], resourceNames: [a], verbs: ["*"]}`), ann, visibility.Decision{Names: []string{"a"}}},
		{"list is not get", clusterWide(`{apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters], verbs: [list, watch]}`), ann, visibility.Decision{}},
		{"a subresource", clusterWide(`{apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters/status], verbs: [get]}`), ann, visibility.Decision{}},
		{"another group", clusterWide(`{apiGroups: [register.open-cluster-management.io], resources: [managedclusters], verbs: [get]}`), ann, visibility.Decision{}},
		{"another resource", clusterWide(`{apiGroups: [cluster.open-cluster-management.io], resources: [managedclustersets], verbs: [get]}`), ann, visibility.Decision{}},
		{"a RoleBinding", strings.Replace(clusterWide(`{apiGroups: ["*"], resources: ["*"], verbs: [get]}`), annEverywhere, annInOne, 1), ann, visibility.Decision{}},
		{"the privileged group", "", &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, visibility.Decision{All: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := visibilitytest.Scope(t, test.policy, test.caller).Gets("managedclusters")
			if got.All != test.want.All || !slices.Equal(got.Names, test.want.Names) {
				t.Errorf("Gets() = %+v, want %+v", got, test.want)
			}
		})
	}
}
