package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// permission creates a ManifestWork that is owned by a ClusterPermission.
func (c *cluster) permission(suffix string, change func(*workv1.ManifestWorkSpec), manifests ...string) string {
	c.t.Helper()
	return c.createOwned([]metav1.OwnerReference{{
		APIVersion: "rbac.open-cluster-management.io/v1alpha1", Kind: "ClusterPermission", Name: c.name, UID: "0123abcd-0000-4000-8000-000000000000", Controller: ptr.To(true),
	}}, suffix, change, manifests...)
}

// clusterRole returns the manifest of a ClusterRole. verbs is a YAML list of verbs on pods. If it is
// empty, the ClusterRole has no rules.
func clusterRole(name, verbs string) string {
	rules := "[]"
	if verbs != "" {
		rules = fmt.Sprintf(`[{apiGroups: [""], resources: [pods], verbs: %s}]`, verbs)
	}
	return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "%s"}, rules: %s}`, name, rules)
}

func clusterRoleBinding(name, role, user string) string {
	return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "%s"},
	  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "%s"}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]}`, name, role, user)
}

func podRules(verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}}
}

// makeRole creates a ClusterRole as an administrator.
func (c *cluster) makeRole(role *rbacv1.ClusterRole) *rbacv1.ClusterRole {
	c.t.Helper()
	made, err := c.kube.RbacV1().ClusterRoles().Create(c.t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

func (c *cluster) role(name string) *rbacv1.ClusterRole {
	c.t.Helper()
	got, err := c.kube.RbacV1().ClusterRoles().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// hasVerbs waits until a ClusterRole grants exactly these verbs on pods.
func (c *cluster) hasVerbs(name string, verbs ...string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("ClusterRole %s grants %v on pods", name, verbs), func(ctx context.Context) error {
		got, err := c.kube.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !equality.Semantic.DeepEqual(got.Rules, podRules(verbs...)) {
			err = fmt.Errorf("rules = %v", got.Rules)
		}
		return err
	})
}

// bound waits until a ClusterRoleBinding exists or, if want is false, does not exist.
func (c *cluster) bound(name string, want bool) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("ClusterRoleBinding %s exists: %t", name, want), func(ctx context.Context) error {
		_, err := c.kube.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		switch {
		case want, err != nil && !apierrors.IsNotFound(err):
			return err
		case err == nil:
			return errors.New("the ClusterRoleBinding exists")
		}
		return nil
	})
}

// refused waits until the manifests of a ManifestWork are not applied for these reasons, and returns
// the ManifestWork. An empty reason stands for an applied manifest.
func (c *cluster) refused(name string, reasons ...string) *workv1.ManifestWork {
	c.t.Helper()
	var got *workv1.ManifestWork
	eventually(c.t, fmt.Sprintf("the manifests of ManifestWork %s have reasons %q", name, reasons), func(ctx context.Context) error {
		var err error
		if got, err = c.works().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		text, _ := json.Marshal(got.Status)
		manifests := got.Status.ResourceStatus.Manifests
		if len(manifests) != len(reasons) {
			return fmt.Errorf("status = %s, want %d manifests", text, len(reasons))
		}
		for i, want := range reasons {
			applied := meta.FindStatusCondition(manifests[i].Conditions, workv1.WorkApplied)
			if applied == nil || applied.ObservedGeneration != got.Generation ||
				(want == "") != (applied.Status == metav1.ConditionTrue) || want != "" && applied.Reason != want {
				return fmt.Errorf("condition Applied of manifest %d = %+v, generation = %d, status = %s", i, applied, got.Generation, text)
			}
		}
		return nil
	})
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	return got
}

const (
	notOwned       = workv1.ReasonAppliedManifestObjectNotOwned
	roleNotApplied = workv1.ReasonAppliedManifestRoleNotApplied
)

// testPermissionTakeover checks that a ClusterPermission does not take over an existing role or
// binding, and does not bind subjects to such a role. It is applied after the role is deleted.
func testPermissionTakeover(t *testing.T, c *cluster) {
	name := func(suffix string) string { return c.name + suffix }
	c.makeRole(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name("-platform")}, Rules: podRules("get", "delete")})
	c.makeRole(&rbacv1.ClusterRole{
		ObjectMeta:      metav1.ObjectMeta{Name: name("-aggregated")},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": c.name}}}},
	})
	ops, err := c.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name("-ops")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name("-platform")},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "ops"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A write to one of the roles changes its resourceVersion.
	before := map[string]*rbacv1.ClusterRole{}
	for _, role := range []string{name("-platform"), name("-aggregated"), "cluster-admin"} {
		before[role] = c.role(role)
	}
	c.run()

	works := map[string]string{}
	for role := range before {
		suffix := "-" + strings.TrimPrefix(role, c.name+"-")
		works[role] = c.permission(suffix, nil, clusterRole(role, ""), clusterRoleBinding("NS"+suffix+"-alice", role, "alice"))
	}
	binding := c.permission("-binding", nil, clusterRoleBinding("NS-ops", "view", "alice"), clusterRole("NS-beside", "[get]"), clusterRoleBinding("NS-beside", "NS-beside", "alice"))
	for role, permission := range works {
		got := c.refused(permission, notOwned, roleNotApplied)
		message := meta.FindStatusCondition(got.Status.ResourceStatus.Manifests[0].Conditions, workv1.WorkApplied).Message
		if !strings.Contains(message, "ClusterRole "+role+" already exists") || !strings.Contains(message, "not created by this ClusterPermission") || !strings.Contains(message, "delete it") {
			t.Errorf("message of condition Applied = %q, want the name of the existing ClusterRole and the remedy", message)
		}
		if after := c.role(role); after.UID != before[role].UID || after.ResourceVersion != before[role].ResourceVersion {
			t.Errorf("ClusterRole %s = %+v, want resourceVersion %s", role, after, before[role].ResourceVersion)
		}
		c.bound(permission+"-alice", false)
	}
	c.refused(binding, notOwned, "", "")
	if after, err := c.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), ops.Name, metav1.GetOptions{}); err != nil || after.ResourceVersion != ops.ResourceVersion {
		t.Errorf("Get(ClusterRoleBinding %s) = %v, %v, want resourceVersion %s", ops.Name, after, err, ops.ResourceVersion)
	}
	c.bound(name("-beside"), true)

	// The agent deletes objects that it created. Objects that it never applied stay.
	c.delete(binding)
	c.gone(binding)
	c.bound(name("-beside"), false)
	c.bound(name("-ops"), true)
	if err := c.kube.RbacV1().ClusterRoles().Delete(t.Context(), name("-platform"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.condition(works[name("-platform")], workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(name("-platform-alice"), true)
	for _, permission := range works {
		c.delete(permission)
		c.gone(permission)
	}
	if after := c.role("cluster-admin"); after.ResourceVersion != before["cluster-admin"].ResourceVersion {
		t.Errorf("ClusterRole cluster-admin = %+v, want resourceVersion %s", after, before["cluster-admin"].ResourceVersion)
	}
}

// testPermissionOwnAccess checks that a ClusterPermission cannot remove the agent's own permissions.
func testPermissionOwnAccess(t *testing.T, c *cluster) {
	const own = "open-cluster-management:agent:apply"
	before, err := c.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), own, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role := c.role(own)
	c.run()
	first := c.permission("-role", nil, clusterRole(own, ""), clusterRoleBinding(own, own, "alice"))
	c.refused(first, notOwned, roleNotApplied)
	second := c.permission("-binding", nil, clusterRoleBinding(own, "view", "alice"))
	c.refused(second, notOwned)
	for _, name := range []string{first, second} {
		c.delete(name)
		c.gone(name)
	}
	after, err := c.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), own, metav1.GetOptions{})
	if err != nil || after.ResourceVersion != before.ResourceVersion || c.role(own).ResourceVersion != role.ResourceVersion {
		t.Errorf("Get(ClusterRoleBinding %s) = %v, %v, want the binding and its role unchanged", own, after, err)
	}
}

// testPermissionEqual checks that the agent reports an existing object that equals the manifest as
// applied, but does not take it over.
func testPermissionEqual(t *testing.T, c *cluster) {
	role := c.makeRole(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Rules: podRules("get")})
	c.run()
	name := c.permission("", nil, clusterRole("NS", "[get]"), clusterRoleBinding("NS", "NS", "alice"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(c.name, true)

	// If the owner of the role changes its rules, the ClusterPermission must not grant them.
	role.Rules = podRules("get", "delete")
	role, err := c.kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("Update(ClusterRole %s) = %v, want nil for an unchanged resourceVersion", c.name, err)
	}
	c.refused(name, notOwned, roleNotApplied)
	c.bound(c.name, false)
	role.Rules = podRules("get")
	if role, err = c.kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("Update(ClusterRole %s) = %v, want nil for an unchanged resourceVersion", c.name, err)
	}
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(c.name, true)

	// If the ClusterPermission changes its rules, the agent must not overwrite the role, not even
	// after a restart.
	c.replace(name, clusterRole("NS", ""), clusterRoleBinding("NS", "NS", "alice"))
	c.refused(name, notOwned, roleNotApplied)
	c.bound(c.name, false)
	c.kill()
	c.replace(name, clusterRole("NS", "[list]"), clusterRoleBinding("NS", "NS", "alice"))
	c.run()
	c.refused(name, notOwned, roleNotApplied)
	c.delete(name)
	c.gone(name)
	if after := c.role(c.name); after.ResourceVersion != role.ResourceVersion {
		t.Errorf("ClusterRole %s = %+v, want resourceVersion %s", c.name, after, role.ResourceVersion)
	}
}

// testPermissionShared checks two ClusterPermissions that deliver one role. Only the one that created
// the role changes it. After its deletion, the other one becomes the owner.
func testPermissionShared(t *testing.T, c *cluster) {
	c.run()
	manifests := func(suffix, verbs string) []string {
		return []string{clusterRole("NS", verbs), clusterRoleBinding("NS"+suffix, "NS", "alice")}
	}
	first := c.permission("-1", nil, manifests("-1", "[get]")...)
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	second := c.permission("-2", nil, manifests("-2", "[get]")...)
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)

	// If both make the same change, one after the other, the binding stays.
	bindings := c.kube.RbacV1().ClusterRoleBindings()
	before, err := bindings.Get(t.Context(), c.name+"-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.replace(second, manifests("-2", "[get, watch]")...)
	c.refused(second, notOwned, "")
	c.replace(first, manifests("-1", "[get, watch]")...)
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)
	if after, err := bindings.Get(t.Context(), c.name+"-2", metav1.GetOptions{}); err != nil || after.UID != before.UID {
		t.Errorf("Get(ClusterRoleBinding %s-2) = UID %s, %v, want UID %s", c.name, after.UID, err, before.UID)
	}

	// If the rules differ, the second ClusterPermission is not bound to the role of the first.
	c.replace(second, manifests("-2", "[list]")...)
	c.refused(second, notOwned, roleNotApplied)
	c.bound(c.name+"-2", false)
	c.hasVerbs(c.name, "get", "watch")
	c.replace(first, manifests("-1", "[list]")...)
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasVerbs(c.name, "list")
	c.bound(c.name+"-2", true)

	c.delete(first)
	c.gone(first)
	c.bound(c.name+"-1", false)
	c.replace(second, manifests("-2", "[watch]")...)
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasVerbs(c.name, "watch")
	c.delete(second)
	c.gone(second)
	if _, err := c.kube.RbacV1().ClusterRoles().Get(t.Context(), c.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ClusterRole %s) after the deletion of both ClusterPermissions = %v, want NotFound", c.name, err)
	}
}

// testPermissionRoleReplaced checks that the agent removes the binding to a role if another client
// replaced the role while the agent was stopped.
func testPermissionRoleReplaced(t *testing.T, c *cluster) {
	c.run()
	name := c.permission("", nil,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS}, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: alice}]}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: other, namespace: NS}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: User, name: alice}]}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.kill()
	roles := c.kube.RbacV1().Roles(c.name)
	if err := roles.Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: podRules("*")}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.run()
	// The binding to the ClusterRole of the same name stays, because it is another role.
	c.refused(name, notOwned, roleNotApplied, "")
	if _, err := c.kube.RbacV1().RoleBindings(c.name).Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(RoleBinding b) = %v, want NotFound", err)
	}
	if after, err := roles.Get(t.Context(), "r", metav1.GetOptions{}); err != nil || after.ResourceVersion != other.ResourceVersion {
		t.Errorf("Get(Role r) = %v, %v, want resourceVersion %s", after, err, other.ResourceVersion)
	}
	if err := roles.Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if _, err := c.kube.RbacV1().RoleBindings(c.name).Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(RoleBinding b) after the other role was deleted = %v, want nil", err)
	}
}

// testPermissionRecreated checks that a ClusterPermission that is recreated with other content waits
// until the objects of the previous one are deleted.
func testPermissionRecreated(t *testing.T, c *cluster) {
	c.run()
	old := c.permission("-old", nil, clusterRole("NS", "[get]"), clusterRoleBinding("NS", "NS", "alice"))
	c.condition(old, workv1.WorkApplied, metav1.ConditionTrue)
	hold := func(finalizers string) {
		t.Helper()
		patch := []byte(fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, finalizers))
		if _, err := c.kube.RbacV1().ClusterRoles().Patch(t.Context(), c.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/slow"]`)
	c.delete(old)
	c.condition(old, workv1.WorkDeleting, metav1.ConditionTrue)
	next := c.permission("-new", nil, clusterRole("NS", "[list]"), clusterRoleBinding("NS", "NS", "bob"))
	c.refused(next, notOwned, roleNotApplied)
	hold(`null`)
	c.gone(old)
	c.condition(next, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasVerbs(c.name, "list")
	c.bound(c.name, true)
}

// testPermissionRace checks that the agent does not overwrite a role that another client creates
// between a read and a write of the agent.
func testPermissionRace(t *testing.T, c *cluster) {
	path := "/clusterroles"
	replace := func(role string) {
		err := c.kube.RbacV1().ClusterRoles().Delete(t.Context(), role, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			_, err = c.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: podRules("*")}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
	}
	// before makes fn run once, directly before the agent's first request with the method.
	before := func(method string, fn func()) *atomic.Bool {
		ran := &atomic.Bool{}
		c.onRequest(func(request *http.Request) error {
			if request.Method == method && strings.Contains(request.URL.Path, path) && ran.CompareAndSwap(false, true) {
				fn()
			}
			return nil
		})
		return ran
	}
	ran := before(http.MethodPost, func() { replace(c.name + "-created") })
	c.run()
	created := c.permission("-created", nil, clusterRole("NS-created", "[get]"), clusterRoleBinding("NS-created", "NS-created", "alice"))
	c.refused(created, notOwned, roleNotApplied)
	c.hasVerbs(c.name+"-created", "*")
	c.bound(c.name+"-created", false)

	c.onRequest(nil)
	changed := c.permission("-changed", nil, clusterRole("NS-changed", "[get]"), clusterRoleBinding("NS-changed", "NS-changed", "alice"))
	c.condition(changed, workv1.WorkApplied, metav1.ConditionTrue)
	again := before(http.MethodPut, func() { replace(c.name + "-changed") })
	c.replace(changed, clusterRole("NS-changed", "[list]"), clusterRoleBinding("NS-changed", "NS-changed", "alice"))
	c.refused(changed, notOwned, roleNotApplied)
	c.hasVerbs(c.name+"-changed", "*")
	c.bound(c.name+"-changed", false)
	if !ran.Load() || !again.Load() {
		t.Errorf("role replaced before POST: %t, before PUT: %t, want both", ran.Load(), again.Load())
	}
}

// testPermissionCrash stops the agent at each write in turn. It checks that the next agent changes and
// deletes the objects that the previous one created, even if the manifests have changed meanwhile.
func testPermissionCrash(t *testing.T, c *cluster) {
	for _, arrives := range []bool{false, true} {
		for n := int32(1); ; n++ {
			suffix := fmt.Sprintf("-%d-%t", n, arrives)
			manifests := func(verbs, role, user string) []string {
				return []string{clusterRole("NS"+suffix, verbs), clusterRoleBinding("NS"+suffix, role, user)}
			}
			died := c.dieAt(n, arrives)
			name := c.permission(suffix, nil, manifests("[get]", "NS"+suffix, "alice")...)
			c.run()
			finished := false
			eventually(t, "the agent has lost the cluster or reported the status", func(ctx context.Context) error {
				if died() {
					return nil
				}
				got, err := c.works().Get(ctx, name, metav1.GetOptions{})
				if err == nil && len(got.Status.Conditions) == 0 {
					err = errors.New("the status has no conditions")
				}
				finished = err == nil && !died()
				return err
			})
			c.kill()
			c.replace(name, manifests("[list]", "view", "bob")...)
			c.onExchange(nil)
			c.run()
			c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
			c.hasVerbs(c.name+suffix, "list")
			c.delete(name)
			c.gone(name)
			c.bound(c.name+suffix, false)
			c.kill()
			if finished {
				break
			}
		}
	}
}

// testPermissionOrphaned checks that a ManifestWork without its ClusterPermission as owner still does
// not take over an existing role.
func testPermissionOrphaned(t *testing.T, c *cluster) {
	role := c.makeRole(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Rules: podRules("*")})
	c.run()
	name := c.permission("", nil, clusterRole("NS", ""), clusterRoleBinding("NS", "NS", "alice"))
	c.refused(name, notOwned, roleNotApplied)
	if _, err := c.works().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.kill()
	c.replace(name, clusterRole("NS", "[get]"), clusterRoleBinding("NS", "NS", "alice"))
	c.run()
	c.refused(name, notOwned, roleNotApplied)
	c.bound(c.name, false)
	if after := c.role(c.name); after.ResourceVersion != role.ResourceVersion {
		t.Errorf("ClusterRole %s = %+v, want resourceVersion %s", c.name, after, role.ResourceVersion)
	}
}

// testPermissionReadOnly checks that a ClusterPermission can bind a role with strategy ReadOnly,
// regardless of the owner of the role.
func testPermissionReadOnly(t *testing.T, c *cluster) {
	c.run()
	name := c.permission("", func(spec *workv1.ManifestWorkSpec) {
		spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: new(rbacv1.GroupName), Resource: "clusterroles", Name: "*"},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
		}}
	}, clusterRole("view", ""), clusterRoleBinding("NS", "view", "alice"), clusterRole("NS-none", ""), clusterRoleBinding("NS-none", "NS-none", "alice"))
	c.refused(name, "", "", workv1.ReasonAppliedManifestFailed, "")
	c.bound(c.name, true)
}

// testPermissionRoleExtended checks a ClusterPermission that created a role which another ManifestWork
// then extends. The agent removes the binding while the role grants more than the ClusterPermission.
func testPermissionRoleExtended(t *testing.T, c *cluster) {
	c.run()
	squatter := c.permission("-squat", nil, clusterRole("NS", ""), clusterRoleBinding("NS", "NS", "alice"))
	c.condition(squatter, workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(c.name, true)
	keeper := c.create("-keeper", nil, clusterRole("NS", "['*']"))
	c.condition(keeper, workv1.WorkApplied, metav1.ConditionTrue)
	c.refused(squatter, notOwned, roleNotApplied)
	c.bound(c.name, false)
	c.hasVerbs(c.name, "*")

	// If the role grants no more than the ClusterPermission, it can be bound.
	c.replace(keeper, clusterRole("NS", "[get]"))
	c.condition(keeper, workv1.WorkApplied, metav1.ConditionTrue)
	c.replace(squatter, clusterRole("NS", "[get, list]"), clusterRoleBinding("NS", "NS", "alice"))
	c.refused(squatter, notOwned, "")
	c.bound(c.name, true)
	c.replace(keeper, clusterRole("NS", "[get, delete]"))
	c.refused(squatter, notOwned, roleNotApplied)
	c.bound(c.name, false)

	c.delete(keeper)
	c.gone(keeper)
	c.condition(squatter, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasVerbs(c.name, "get", "list")
	c.bound(c.name, true)
}

// testPermissionContested checks that the agent removes the binding to a role that another client
// changes repeatedly.
func testPermissionContested(t *testing.T, c *cluster) {
	c.run()
	name := c.permission("", nil, clusterRole("NS", "[get]"), clusterRoleBinding("NS", "NS", "alice"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	roles := c.kube.RbacV1().ClusterRoles()
	eventually(t, "the ClusterRoleBinding does not exist while the role is changed", func(ctx context.Context) error {
		role, err := roles.Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		role.Rules = podRules("*")
		if _, err := roles.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if _, err := c.kube.RbacV1().ClusterRoleBindings().Get(ctx, c.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(ClusterRoleBinding) = %v, want NotFound", err)
		}
		return nil
	})
	c.refused(name, notOwned, roleNotApplied)
}

// testPermissionMarked checks that a subject who may patch a binding cannot keep it by its metadata.
func testPermissionMarked(t *testing.T, c *cluster) {
	c.run()
	other := c.create("-other", nil, configMap("other", "x"))
	c.condition(other, workv1.WorkApplied, metav1.ConditionTrue)
	name := c.permission("", nil, clusterRoleBinding("NS", "view", "alice"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	thief, err := c.record(other)
	if err != nil {
		t.Fatal(err)
	}
	own, err := c.record(name)
	if err != nil {
		t.Fatal(err)
	}
	marked, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{"work.open-cluster-management.io/adopted": "true"},
		"ownerReferences": []metav1.OwnerReference{{
			APIVersion: workv1.SchemeGroupVersion.String(), Kind: "AppliedManifestWork", Name: thief.Name, UID: thief.UID,
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	bindings := c.kube.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Patch(t.Context(), c.name, types.MergePatchType, marked, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent restores its owner reference", func(ctx context.Context) error {
		got, err := bindings.Get(ctx, c.name, metav1.GetOptions{})
		if err == nil && (len(got.OwnerReferences) != 2 || got.OwnerReferences[1].UID != own.UID) {
			err = fmt.Errorf("ownerReferences = %v", got.OwnerReferences)
		}
		return err
	})
	c.delete(name)
	c.gone(name)
	c.bound(c.name, false)
}

// testPermissionKept checks that a subject who adds a finalizer to a binding keeps the object, but not its permissions.
func testPermissionKept(t *testing.T, c *cluster) {
	c.run()
	name := c.permission("", nil, clusterRoleBinding("NS", "view", "alice"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	bindings := c.kube.RbacV1().ClusterRoleBindings()
	keep := func(finalizers string) {
		t.Helper()
		patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
		if _, err := bindings.Patch(t.Context(), c.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	keep(`["example.com/keep"]`)
	c.delete(name)
	eventually(t, "the deleted ClusterRoleBinding has no subjects", func(ctx context.Context) error {
		got, err := bindings.Get(ctx, c.name, metav1.GetOptions{})
		if err == nil && (got.DeletionTimestamp == nil || len(got.Subjects) > 0) {
			err = fmt.Errorf("deletionTimestamp = %v, subjects = %v", got.DeletionTimestamp, got.Subjects)
		}
		return err
	})
	keep("null")
	c.gone(name)
	c.bound(c.name, false)
}
