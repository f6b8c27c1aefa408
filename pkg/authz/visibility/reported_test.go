package visibility_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// report replaces the reported RBAC of a cluster.
func report(t *testing.T, x *access.Index, cluster string, documents ...string) {
	t.Helper()
	u := &access.Update{Full: true, Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
	for _, object := range visibilitytest.Parse(t, strings.Join(documents, "\n---")) {
		o, ok := rbac.FromTyped(object)
		if !ok {
			t.Fatalf("%T is not an RBAC object", object)
		}
		if o.IsRole() {
			u.Roles[o.Key] = o.Rules
		} else {
			u.Bindings[o.Key] = access.Binding{RoleRef: o.RoleRef, Subjects: o.Subjects}
		}
	}
	x.Update(cluster, u)
}

func objectIn(cluster, resource, namespace, name string) visibility.Object {
	return named(name, visibility.Class{Cluster: cluster, Resource: resource, Namespace: namespace})
}

const (
	reportedToAnn = "{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}"
	localRole     = "kind: Role, name: r"
)

// reportedEverywhere is a ClusterRoleBinding of the ClusterRole own.
func reportedEverywhere(subject string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: own}
subjects: [` + subject + `]`
}

// TestReportedPermissions checks what callers find by the RBAC that clusters report.
func TestReportedPermissions(t *testing.T) {
	const toGroup = "{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "
	byRole := []string{deliveredRole, deliveredBinding(localRole, reportedToAnn)}
	everywhere := []string{ownRole, reportedEverywhere(reportedToAnn)}
	robot := &user.DefaultInfo{Name: "system:serviceaccount:apps:robot", Groups: []string{"system:serviceaccounts", user.AllAuthenticated}}
	master := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	for _, test := range []struct {
		name      string
		documents []string
		caller    user.Info
		object    visibility.Object
		allowed   bool
	}{
		{"the name", byRole, ann, objectIn("c", "pods", "apps", "x"), true},
		{"another name", byRole, ann, objectIn("c", "pods", "apps", "y"), false},
		{"a Secret that a rule allows", byRole, ann, objectIn("c", "secrets", "apps", "x"), true},
		{"another Secret", byRole, ann, objectIn("c", "secrets", "apps", "y"), false},
		{"another namespace", byRole, ann, objectIn("c", "pods", "other", "x"), false},
		{"another cluster", byRole, ann, objectIn("d", "pods", "apps", "x"), false},
		{"the hub", byRole, ann, named("x", hub("", "pods", "apps")), false},
		{"another user", byRole, ben, objectIn("c", "pods", "apps", "x"), false},
		{"all namespaces", everywhere, ann, objectIn("c", "pods", "apps", "y"), true},
		{"a cluster-scoped resource", everywhere, ann, objectIn("c", "nodes", "", "n"), true},
		{"a group", []string{ownRole, reportedEverywhere(toGroup + "team}")}, &user.DefaultInfo{Name: "tom", Groups: []string{"team"}}, objectIn("c", "pods", "apps", "y"), true},
		{"authenticated users of the cluster", []string{ownRole, reportedEverywhere(toGroup + "'system:authenticated'}")}, ann, objectIn("c", "pods", "apps", "y"), false},
		{"a ServiceAccount", []string{ownRole, reportedEverywhere("{kind: ServiceAccount, name: robot, namespace: apps}")}, robot, objectIn("c", "pods", "apps", "y"), false},
		{"a system group", []string{ownRole, reportedEverywhere(toGroup + "'system:serviceaccounts'}")}, robot, objectIn("c", "pods", "apps", "y"), false},
		{"masters", []string{ownRole, reportedEverywhere(toGroup + "'system:masters'}")}, master, objectIn("c", "secrets", "apps", "y"), false},
		{"a role that the cluster does not have", []string{deliveredBinding("kind: ClusterRole, name: pods", reportedToAnn)}, ann, objectIn("c", "pods", "apps", "y"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := access.New()
			for _, cluster := range []string{"c", "hub"} {
				report(t, x, cluster, test.documents...)
				x.SetState(cluster, access.State{Known: true})
			}
			config := newDeliveredUnderTest().config(t, visibility.RBAC)
			config.Fleet, config.HubCluster = x, "hub"
			h := newHub(readsPods(t))
			h.start(t, config)
			scope := h.scope(t, test.caller)
			if got := scope.Allows(test.object); got != test.allowed {
				t.Errorf("Allows() = %v, want %v", got, test.allowed)
			}
			onHub := test.object
			if onHub.Cluster = "hub"; scope.Allows(onHub) && test.caller != master {
				t.Error("Allows() by the entry of the hub = true, want false")
			}
		})
	}
}

// TestReportedChanges checks that each change of the reported RBAC takes effect at once, and that what
// ClusterPermissions have delivered decides only while the reported RBAC is not known.
func TestReportedChanges(t *testing.T) {
	for _, mode := range []visibility.Mode{visibility.RBAC, visibility.Reviews} {
		t.Run(string(mode), func(t *testing.T) {
			x, d := access.New(), newDeliveredUnderTest()
			config := d.config(t, mode)
			config.Fleet, config.ReviewTTL = x, time.Hour
			h := newHub(readsPods(t))
			h.start(t, config)
			changed, stop := h.Subscribe(ann)
			defer stop()
			pod, other := objectIn("c", "pods", "apps", "x"), objectIn("c", "pods", "apps", "y")
			asked := func() int64 { h.scope(t, ann); return h.questions.Load() }
			questions := asked()
			want := func(what string, ofPod, ofOther bool) {
				t.Helper()
				notified(t, what, changed)
				scope := h.scope(t, ann)
				if got := scope.Allows(pod); got != ofPod {
					t.Errorf("Allows(pod) after %s = %t, want %t", what, got, ofPod)
				}
				if got := scope.Allows(other); got != ofOther {
					t.Errorf("Allows(other pod) after %s = %t, want %t", what, got, ofOther)
				}
			}
			// The delivered binding of a default ClusterRole allows all Pods.
			d.deliver(t, "c", deliveredBinding("kind: ClusterRole, name: pods", "{kind: User, name: ann}"))
			want("the delivery", true, true)
			report(t, x, "c")
			x.SetState("c", access.State{Known: true})
			want("the first report, without the binding", false, false)
			report(t, x, "c", deliveredRole, deliveredBinding(localRole, reportedToAnn))
			want("the report of a binding", true, false)
			report(t, x, "c", otherRole, deliveredBinding(localRole, reportedToAnn))
			want("a change of the role", true, true)
			report(t, x, "c", otherRole)
			want("the deletion of the binding", false, false)
			report(t, x, "c", otherRole, deliveredBinding(localRole, reportedToAnn))
			want("the report of the binding again", true, true)
			report(t, x, "c", deliveredBinding(localRole, reportedToAnn))
			want("the deletion of the role", false, false)
			x.SetState("c", access.State{Reason: "silent"})
			want("the cluster has become unknown", true, true)
			x.SetState("c", access.State{Known: true})
			want("the cluster has become known", false, false)
			x.Remove("c")
			want("the removal of the reports", true, true)
			// Nothing has changed on the hub.
			if got := asked(); got != questions {
				t.Errorf("access reviews of the hub = %d, want %d as before the reports", got, questions)
			}
		})
	}
}

// TestReportedRulesAreShared checks that callers with the same permissions on many clusters share one Scope.
func TestReportedRulesAreShared(t *testing.T) {
	x := access.New()
	for _, cluster := range []string{"c", "d"} {
		report(t, x, cluster, ownRole, reportedEverywhere("{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}"))
		x.SetState(cluster, access.State{Known: true})
	}
	config := newDeliveredUnderTest().config(t, visibility.RBAC)
	config.Fleet = x
	h := newHub(readsPods(t))
	h.start(t, config)
	tom, tim := h.scope(t, &user.DefaultInfo{Name: "tom", Groups: []string{"team"}}), h.scope(t, &user.DefaultInfo{Name: "tim", Groups: []string{"team"}})
	if tom != tim || !tom.Allows(objectIn("d", "pods", "apps", "x")) {
		t.Error("Scopes of two members of a group = two Scopes, want one that allows Pods")
	}
}

// TestGrantsOfALargeCluster checks that a cluster that exceeds a bound grants nothing, and that others keep their grants.
func TestGrantsOfALargeCluster(t *testing.T) {
	const toAnn = "\nsubjects: [" + reportedToAnn + "]"
	small := []string{ownRole, reportedEverywhere(reportedToAnn)}
	many := slices.Clone(small)
	for i := range 5001 {
		many = append(many, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: n%d}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: own}`+toAnn, i))
	}
	long := append(slices.Clone(small), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: long}
rules: [{apiGroups: [""], resources: [pods], resourceNames: [`+strings.Repeat("a", 1<<20)+`], verbs: [list]}]`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: long}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: long}`+toAnn)
	// The text of one role is short, but not that of all its bindings.
	shared := append(slices.Clone(small), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shared}
rules: [{apiGroups: [""], resources: [pods], resourceNames: [`+strings.Repeat("a", 8<<10)+`], verbs: [list]}]`)
	for i := range 300 {
		shared = append(shared, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shared, namespace: n%d}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shared}`+toAnn, i))
	}
	x := access.New()
	for cluster, documents := range map[string][]string{"small": small, "many": many, "long": long, "shared": shared} {
		report(t, x, cluster, documents...)
		x.SetState(cluster, access.State{Known: true})
	}
	config := newDeliveredUnderTest().config(t, visibility.RBAC)
	config.Fleet = x
	h := newHub(readsPods(t))
	h.start(t, config)
	scope := h.scope(t, ann)
	for cluster, want := range map[string]bool{"small": true, "many": false, "long": false, "shared": true} {
		if got := scope.Allows(objectIn(cluster, "pods", "apps", "x")); got != want {
			t.Errorf("Allows() on cluster %s = %t, want %t", cluster, got, want)
		}
	}
}
