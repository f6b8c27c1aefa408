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

// permission creates the work of a ClusterPermission.
func (c *cluster) permission(suffix string, change func(*workv1.ManifestWorkSpec), manifests ...string) string {
	c.t.Helper()
	return c.createOwned([]metav1.OwnerReference{{
		APIVersion: "rbac.open-cluster-management.io/v1alpha1", Kind: "ClusterPermission", Name: c.name, UID: "0123abcd-0000-4000-8000-000000000000", Controller: ptr.To(true),
	}}, suffix, change, manifests...)
}

// clusterRole and clusterRoleBinding are manifests; verbs are a YAML list, none
// for a role without rules.
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

// makeRole makes a ClusterRole as somebody else than the agent.
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

// hasVerbs waits until a ClusterRole grants verbs on pods.
func (c *cluster) hasVerbs(name string, verbs ...string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%s allows %v", name, verbs), func(ctx context.Context) error {
		got, err := c.kube.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !equality.Semantic.DeepEqual(got.Rules, podRules(verbs...)) {
			err = fmt.Errorf("rules are %v", got.Rules)
		}
		return err
	})
}

// bound waits until a ClusterRoleBinding is there, or not.
func (c *cluster) bound(name string, want bool) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%s is there: %t", name, want), func(ctx context.Context) error {
		_, err := c.kube.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		switch {
		case want, err != nil && !apierrors.IsNotFound(err):
			return err
		case err == nil:
			return errors.New("it is")
		}
		return nil
	})
}

// refused waits until manifests of a work are not applied for a reason, empty
// for those that are applied.
func (c *cluster) refused(name string, reasons ...string) *workv1.ManifestWork {
	c.t.Helper()
	var got *workv1.ManifestWork
	eventually(c.t, fmt.Sprintf("the manifests are refused as %q", reasons), func(ctx context.Context) error {
		var err error
		if got, err = c.works().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		text, _ := json.Marshal(got.Status)
		manifests := got.Status.ResourceStatus.Manifests
		if len(manifests) != len(reasons) {
			return fmt.Errorf("status is %s", text)
		}
		for i, want := range reasons {
			applied := meta.FindStatusCondition(manifests[i].Conditions, workv1.WorkApplied)
			if applied == nil || applied.ObservedGeneration != got.Generation ||
				(want == "") != (applied.Status == metav1.ConditionTrue) || want != "" && applied.Reason != want {
				return fmt.Errorf("manifest %d: generation %d, status %s", i, got.Generation, text)
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

// testPermissionTakeover: a ClusterPermission takes over no role or binding that
// is there, binds nobody to such a role, and is applied once that is gone.
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
	// Whoever writes to one of them changes its resourceVersion.
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
		if !strings.Contains(message, "ClusterRole "+role+" exists") || !strings.Contains(message, "not made by this ClusterPermission") || !strings.Contains(message, "delete it") {
			t.Errorf("message: %s", message)
		}
		if after := c.role(role); after.UID != before[role].UID || after.ResourceVersion != before[role].ResourceVersion {
			t.Errorf("%s was changed to %+v", role, after)
		}
		c.bound(permission+"-alice", false)
	}
	c.refused(binding, notOwned, "", "")
	if after, err := c.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), ops.Name, metav1.GetOptions{}); err != nil || after.ResourceVersion != ops.ResourceVersion {
		t.Errorf("the binding was changed to %v, %v", after, err)
	}
	c.bound(name("-beside"), true)

	// What is not delivered any more is gone, what was never delivered stays.
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
		t.Errorf("cluster-admin was changed to %+v", after)
	}
}

// testPermissionOwnAccess: the agent does not cut off its own access.
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
		t.Errorf("changed to %v, %v", after, err)
	}
}

// testPermissionEqual: an object that is already as the ClusterPermission gives
// it counts as applied, but does not become the ClusterPermission's.
func testPermissionEqual(t *testing.T, c *cluster) {
	role := c.makeRole(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Rules: podRules("get")})
	c.run()
	name := c.permission("", nil, clusterRole("NS", "[get]"), clusterRoleBinding("NS", "NS", "alice"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(c.name, true)

	// Its keeper gives it other rules: nobody has them by the ClusterPermission.
	role.Rules = podRules("get", "delete")
	role, err := c.kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("somebody else has changed it: %v", err)
	}
	c.refused(name, notOwned, roleNotApplied)
	c.bound(c.name, false)
	role.Rules = podRules("get")
	if role, err = c.kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("somebody else has changed it: %v", err)
	}
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(c.name, true)

	// The ClusterPermission gives it other rules: they do not overwrite it, also
	// not after a restart.
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
		t.Errorf("changed to %+v", after)
	}
}

// testPermissionShared: of two ClusterPermissions that deliver one role, the one
// that made it may change it, and the other inherits it.
func testPermissionShared(t *testing.T, c *cluster) {
	c.run()
	manifests := func(suffix, verbs string) []string {
		return []string{clusterRole("NS", verbs), clusterRoleBinding("NS"+suffix, "NS", "alice")}
	}
	first := c.permission("-1", nil, manifests("-1", "[get]")...)
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	second := c.permission("-2", nil, manifests("-2", "[get]")...)
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)

	// Where both follow a change one after the other, nobody loses anything meanwhile.
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
		t.Errorf("the binding was not there all the time: %v", err)
	}

	// One that does not follow is not bound to what the other has made of the role.
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
		t.Errorf("the last one left the role behind: %v", err)
	}
}

// testPermissionRoleReplaced: a role that somebody else has made in place of the
// delivered one is not bound any more, whether or not the agent was there.
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
	// A ClusterRole of the same name is another role.
	c.refused(name, notOwned, roleNotApplied, "")
	if _, err := c.kube.RbacV1().RoleBindings(c.name).Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the binding is still there: %v", err)
	}
	if after, err := roles.Get(t.Context(), "r", metav1.GetOptions{}); err != nil || after.ResourceVersion != other.ResourceVersion {
		t.Errorf("the role was changed to %v, %v", after, err)
	}
	if err := roles.Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if _, err := c.kube.RbacV1().RoleBindings(c.name).Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
		t.Errorf("the binding did not come back: %v", err)
	}
}

// testPermissionRecreated: a ClusterPermission that was deleted and made again
// with other content waits for what its predecessor leaves.
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

// testPermissionRace: somebody else makes the role between the agent's look and
// its write.
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
	// before lets fn run once, right before the agent's first request of the method.
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
		t.Error("nobody was faster")
	}
}

// testPermissionCrash kills the agent at each write in turn: what it made is
// its own when it is back, even if it has other content by then.
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
			eventually(t, "the agent is dead or done", func(ctx context.Context) error {
				if died() {
					return nil
				}
				got, err := c.works().Get(ctx, name, metav1.GetOptions{})
				if err == nil && len(got.Status.Conditions) == 0 {
					err = errors.New("neither")
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

// testPermissionOrphaned: a work that stays when its ClusterPermission is
// deleted gets no more power by that.
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
		t.Errorf("changed to %+v", after)
	}
}

// testPermissionOnlyLooks: a role that a ClusterPermission only looks at is not
// one that it delivers, and can be bound whoever made it.
func testPermissionOnlyLooks(t *testing.T, c *cluster) {
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

// testPermissionSquatting: who was first to deliver a role is not bound to what
// another work makes of it, and a role that has grown is not bound while it is more
// than what was granted.
func testPermissionSquatting(t *testing.T, c *cluster) {
	c.run()
	squatter := c.permission("-squat", nil, clusterRole("NS", ""), clusterRoleBinding("NS", "NS", "alice"))
	c.condition(squatter, workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(c.name, true)
	keeper := c.create("-keeper", nil, clusterRole("NS", "['*']"))
	c.condition(keeper, workv1.WorkApplied, metav1.ConditionTrue)
	c.refused(squatter, notOwned, roleNotApplied)
	c.bound(c.name, false)
	c.hasVerbs(c.name, "*")

	// As long as the role is no more than what the ClusterPermission gives, it may be bound.
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

// testPermissionContested: nobody is bound to a role that somebody on the cluster
// changes again and again.
func testPermissionContested(t *testing.T, c *cluster) {
	c.run()
	name := c.permission("", nil, clusterRole("NS", "[get]"), clusterRoleBinding("NS", "NS", "alice"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	roles := c.kube.RbacV1().ClusterRoles()
	eventually(t, "the role counts as somebody else's", func(ctx context.Context) error {
		role, err := roles.Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		role.Rules = podRules("*")
		if _, err := roles.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if _, err := c.kube.RbacV1().ClusterRoleBindings().Get(ctx, c.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the binding is there: %v", err)
		}
		return nil
	})
	c.refused(name, notOwned, roleNotApplied)
}
