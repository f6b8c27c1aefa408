package userpermission

import (
	"encoding/json"
	"reflect"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
)

const hub = "local-cluster"

// hubPolicy lets alice view cluster1 and cluster2, and administer cluster2 by two roles. operators administer all clusters.
const hubPolicy = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view-cluster}
rules:
- {apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: act-on-cluster}
rules:
- {apiGroups: [action.open-cluster-management.io], resources: [managedclusteractions], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: view, namespace: cluster1}
roleRef: {kind: ClusterRole, name: view-cluster}
subjects: [{kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: view, namespace: cluster2}
roleRef: {kind: ClusterRole, name: view-cluster}
subjects: [{kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: act, namespace: cluster2}
roleRef: {kind: ClusterRole, name: act-on-cluster}
subjects: [{kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: act, namespace: unknown}
roleRef: {kind: ClusterRole, name: act-on-cluster}
subjects: [{kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {kind: ClusterRole, name: everything}
subjects: [{kind: Group, name: operators}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bot, namespace: default}
roleRef: {kind: ClusterRole, name: everything}
subjects: [{kind: ServiceAccount, namespace: bots, name: bot}]
`

// newLister returns a Lister of the hub and three managed clusters. alice is bound on all clusters, on two in the group
// developers.
func newLister(t *testing.T) *lister {
	t.Helper()
	x := access.New()
	set := func(cluster string, u *access.Update) {
		t.Helper()
		x.Update(cluster, u)
		x.SetState(cluster, access.State{Known: cluster != "unknown"})
	}
	own := &access.Update{Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
	for _, parsed := range visibilitytest.Parse(t, hubPolicy) {
		switch o, _ := rbac.FromTyped(parsed); {
		case o.IsRole():
			own.Roles[o.Key] = o.Rules
		default:
			own.Bindings[o.Key] = access.Binding{RoleRef: o.RoleRef, Subjects: o.Subjects}
		}
	}
	set(hub, own)
	bindings := func(subject rbacv1.Subject, namespaces ...string) *access.Update {
		u := &access.Update{Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
		for _, role := range []string{"deployer", "hidden", clusterviewv1alpha1.AdminRole} {
			u.Roles[rbac.Key{Kind: rbac.KindClusterRole, Name: role}] = nil
			for _, namespace := range namespaces {
				key := rbac.Key{Kind: rbac.KindRoleBinding, Namespace: namespace, Name: role}
				if namespace == "" {
					key.Kind = rbac.KindClusterRoleBinding
				}
				u.Bindings[key] = access.Binding{RoleRef: rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: role}, Subjects: []rbacv1.Subject{subject}}
			}
		}
		return u
	}
	developers := rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "developers"}
	set("cluster1", bindings(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}, "", "shop"))
	set("cluster2", bindings(developers, "shop", "default"))
	set("unknown", bindings(developers, ""))

	roles := informers.NewSharedInformerFactory(nil, 0).Rbac().V1().ClusterRoles().Informer()
	for role, label := range map[string]string{"deployer": "true", "hidden": "false", "everything": "true", clusterviewv1alpha1.AdminRole: "true"} {
		if err := roles.GetStore().Add(&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: role, ResourceVersion: "1", Labels: map[string]string{clusterviewv1alpha1.DiscoverableLabel: label}},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{role}, Resources: []string{"*"}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	clusters := func() ([]string, error) { return []string{"unknown", "cluster2", hub, "cluster1"}, nil }
	return &lister{Options: Options{Bound: &view.Bound{Index: x, Clusters: clusters, HubCluster: hub}, ClusterRoles: roles}}
}

// see returns what an identity sees: the bindings of each role, and the objects by name.
func (l *lister) see(t *testing.T, identity user.Info) (bindings map[string]string, objects map[string]*clusterviewv1alpha1.UserPermission) {
	t.Helper()
	list, err := l.visible(identity, visibilitytest.Scope(t, hubPolicy, identity))
	if err != nil {
		t.Fatal(err)
	}
	bindings, objects = map[string]string{}, map[string]*clusterviewv1alpha1.UserPermission{}
	for _, object := range list {
		p, ok := object.(*clusterviewv1alpha1.UserPermission)
		if !ok {
			t.Fatalf("object = %T, want a UserPermission", object)
		}
		text, _ := summary(p).(string)
		bindings[p.Name], objects[p.Name] = text, p
	}
	return bindings, objects
}

func TestVisible(t *testing.T) {
	l := newLister(t)
	for _, c := range []struct {
		identity *user.DefaultInfo
		want     map[string]string
	}{
		{&user.DefaultInfo{Name: "alice", Groups: []string{"developers", user.AllAuthenticated}}, map[string]string{
			"deployer": "cluster1(*) cluster2(default,shop)", clusterviewv1alpha1.AdminRole: "cluster2(*)", clusterviewv1alpha1.ViewRole: "cluster1(*)",
		}},
		{&user.DefaultInfo{Name: "bob", Groups: []string{user.AllAuthenticated}}, map[string]string{}},
		{&user.DefaultInfo{Name: "carol", Groups: []string{"operators"}}, map[string]string{
			"everything": "local-cluster(*)", clusterviewv1alpha1.AdminRole: "cluster1(*) cluster2(*) local-cluster(*) unknown(*)",
		}},
		{&user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, map[string]string{
			clusterviewv1alpha1.AdminRole: "cluster1(*) cluster2(*) local-cluster(*) unknown(*)",
		}},
		{&user.DefaultInfo{Name: "system:serviceaccount:bots:bot", Groups: []string{"system:serviceaccounts"}}, map[string]string{"everything": "local-cluster(default)"}},
	} {
		if got, _ := l.see(t, c.identity); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s sees %v, want %v", c.identity.Name, got, c.want)
		}
	}
}

// TestVersions checks that an object has a new version exactly if its content has changed, and what a watch keeps of it.
func TestVersions(t *testing.T) {
	l := newLister(t)
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"developers"}}
	_, before := l.see(t, alice)
	const want = `{"bindings":[{"cluster":"cluster1","scope":"cluster","namespaces":["*"]},{"cluster":"cluster2","scope":"namespace","namespaces":["default","shop"]}],` +
		`"clusterRoleDefinition":{"rules":[{"verbs":["get"],"apiGroups":["deployer"],"resources":["*"]}]}}`
	if got, err := json.Marshal(before["deployer"].Status); err != nil || string(got) != want {
		t.Errorf("status = %s, %v, want %s", got, err, want)
	}
	unbind := &access.Update{DeletedBindings: []rbac.Key{{Kind: rbac.KindRoleBinding, Namespace: "shop", Name: "deployer"}}}
	for _, c := range []struct {
		cluster string
		changes bool
	}{{"cluster1", false}, {"cluster2", true}} {
		l.Bound.Index.Update(c.cluster, unbind)
		_, after := l.see(t, alice)
		if changed := after["deployer"].ResourceVersion != before["deployer"].ResourceVersion; changed != c.changes {
			t.Errorf("after a binding is deleted on %s, the version has changed: %t, want %t", c.cluster, changed, c.changes)
		}
		if name := clusterviewv1alpha1.AdminRole; after[name].ResourceVersion != before[name].ResourceVersion {
			t.Errorf("after a binding of another role is deleted, the version of %s has changed", name)
		}
	}
	kept, ok := l.Remember(before["deployer"]).(*clusterviewv1alpha1.UserPermission)
	if !ok || kept.Name != "deployer" || kept.ResourceVersion != before["deployer"].ResourceVersion || len(kept.Status.Bindings) > 0 {
		t.Errorf("Remember() = %v, want the name and the version only", kept)
	}
}
