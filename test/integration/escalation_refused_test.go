package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// manifest is a ClusterPermission as a user writes it, in JSON.
func manifest(t *testing.T, cp *rbacv1alpha1.ClusterPermission) string {
	t.Helper()
	cp = cp.DeepCopy()
	cp.TypeMeta = metav1.TypeMeta{APIVersion: rbacv1alpha1.SchemeGroupVersion.String(), Kind: "ClusterPermission"}
	cp.ManagedFields = nil
	return string(must(json.Marshal(cp))(t))
}

// request is one way to write a ClusterPermission.
type request func(t *testing.T, c *caller, cp *rbacv1alpha1.ClusterPermission) error

func apiPatch(patch types.PatchType, options metav1.PatchOptions) request {
	return func(t *testing.T, c *caller, cp *rbacv1alpha1.ClusterPermission) error {
		content := manifest(t, cp)
		if patch == types.JSONPatchType {
			content = fmt.Sprintf(`[{"op":"replace","path":"/spec","value":%s}]`, must(json.Marshal(cp.Spec))(t))
		}
		_, err := c.permissions().Patch(t.Context(), cp.Name, patch, []byte(content), options)
		return err
	}
}

func kubectlWrite(args ...string) request {
	return func(t *testing.T, c *caller, cp *rbacv1alpha1.ClusterPermission) error {
		out, err := c.kubectl(t, manifest(t, cp), append(args, "-f", "-")...)
		if err == nil {
			return nil
		}
		if !strings.Contains(out, "(Forbidden)") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return apierrors.NewForbidden(rbacv1alpha1.Resource("clusterpermissions"), cp.Name, fmt.Errorf("%s", out))
	}
}

var (
	dryRun = []string{metav1.DryRunAll}
	forced = true
)

// creations are all ways to create a ClusterPermission, changes those to change one.
var creations = map[string]request{
	"create": func(t *testing.T, c *caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.permissions().Create(t.Context(), cp, metav1.CreateOptions{})
		return err
	},
	"create dry-run": func(t *testing.T, c *caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.permissions().Create(t.Context(), cp, metav1.CreateOptions{DryRun: dryRun})
		return err
	},
	"server-side apply":                     apiPatch(types.ApplyPatchType, metav1.PatchOptions{FieldManager: "test"}),
	"server-side apply dry-run":             apiPatch(types.ApplyPatchType, metav1.PatchOptions{FieldManager: "test", DryRun: dryRun}),
	"kubectl create":                        kubectlWrite("create"),
	"kubectl apply":                         kubectlWrite("apply"),
	"kubectl apply --server-side --dry-run": kubectlWrite("apply", "--server-side", "--dry-run=server"),
}

var changes = map[string]request{
	"update": func(t *testing.T, c *caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.permissions().Update(t.Context(), cp, metav1.UpdateOptions{})
		return err
	},
	"update dry-run": func(t *testing.T, c *caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.permissions().Update(t.Context(), cp, metav1.UpdateOptions{DryRun: dryRun})
		return err
	},
	"merge patch":               apiPatch(types.MergePatchType, metav1.PatchOptions{}),
	"merge patch dry-run":       apiPatch(types.MergePatchType, metav1.PatchOptions{DryRun: dryRun}),
	"JSON patch":                apiPatch(types.JSONPatchType, metav1.PatchOptions{}),
	"strategic merge patch":     apiPatch(types.StrategicMergePatchType, metav1.PatchOptions{}),
	"server-side apply":         apiPatch(types.ApplyPatchType, metav1.PatchOptions{FieldManager: "test", Force: &forced}),
	"server-side apply dry-run": apiPatch(types.ApplyPatchType, metav1.PatchOptions{FieldManager: "test", Force: &forced, DryRun: dryRun}),
	"kubectl apply":             kubectlWrite("apply"),
	"kubectl replace":           kubectlWrite("replace"),
}

// An administrator of a cluster's namespace on the hub has no rights on that
// cluster by that, so whatever it writes there must not give any.
func TestEscalationIsRefused(t *testing.T) {
	f := shared(t)
	alice := newCaller(t, f.Hub, "alice-refused").isAdmin(t)

	t.Run("create", func(t *testing.T) {
		const name = "escalation-created"
		for title, write := range creations {
			err := write(t, alice, permission(name))
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: got %v, not 403", title, err)
				continue
			}
			rule := refusedFor(t, err, missingOf(name)...)
			want := rbacv1.PolicyRule{
				APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, ResourceNames: []string{name}, Verbs: []string{"bind", "escalate"},
			}
			if fmt.Sprint(rule) != fmt.Sprint(want) {
				t.Errorf("%s: it is said to take %v, not %v", title, rule, want)
			}
			if !strings.Contains(err.Error(), `"alice-refused"`) {
				t.Errorf("%s: the message does not name the user: %v", title, err)
			}
		}
		f.notStored(t, name)
		f.notDelivered(t, name)
	})

	t.Run("change", func(t *testing.T) {
		const name = "escalation-changed"
		cp := permission(name)
		cp.Spec.ClusterRole, cp.Spec.ClusterRoleBinding = nil, nil
		create(t, f.ocm, cp)
		before := f.applied(t, name)
		work := must(f.work(t.Context(), before))(t)
		for title, write := range changes {
			changed := must(f.get(t.Context(), name))(t)
			changed.ResourceVersion = ""
			changed.Spec.ClusterRole = &rbacv1alpha1.ClusterRole{Rules: readAll}
			changed.Spec.ClusterRoleBinding = &rbacv1alpha1.ClusterRoleBinding{Subject: user(alice.name)}
			(*changed.Spec.RoleBindings)[0].Subject = user(alice.name)
			if title == "server-side apply" || title == "server-side apply dry-run" {
				changed = &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name}, Spec: changed.Spec}
			}
			err := write(t, alice, changed)
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: got %v, not 403", title, err)
				continue
			}
			// What was granted to others before is not granted again, but to alice it is new.
			missing := missingOf(name)
			refusedFor(t, err, slices.Delete(missing, 1, 2)...)
		}
		after := must(f.get(t.Context(), name))(t)
		if after.Generation != before.Generation || !equality.Semantic.DeepEqual(after.Spec, before.Spec) {
			t.Errorf("the stored object has changed: generation %d, %v", after.Generation, after.Spec)
		}
		f.passes(t, "escalation-marker")
		if again := must(f.work(t.Context(), before))(t); again.Generation != work.Generation {
			t.Errorf("the work has changed: generation %d", again.Generation)
		}
	})

	t.Run("a status in the body approves nothing", func(t *testing.T) {
		cp := permission("escalation-self-approved")
		cp.Generation = 7
		cp.Status.Approval = &rbacv1alpha1.Approval{
			Approved:  &rbacv1alpha1.ApprovedGeneration{Generation: 1, ApprovedBy: "root", ApprovedAt: metav1.Now()},
			Delivered: &rbacv1alpha1.DeliveredGeneration{Generation: 1, Spec: cp.Spec},
		}
		_, err := alice.permissions().Create(t.Context(), cp, metav1.CreateOptions{})
		refusedFor(t, err, missingOf(cp.Name)...)
	})
}

// escalate is for rules and bind for bindings; each alone is half of what it takes.
func TestVerbsOfGranting(t *testing.T) {
	f := shared(t)
	const name = "granting-verbs"
	missing := missingOf(name)
	for verb, test := range map[string]struct {
		missing []string
		takes   string
	}{
		"escalate": {missing: missing[2:], takes: "bind"},
		"bind":     {missing: missing[:2], takes: "escalate"},
	} {
		t.Run("only "+verb, func(t *testing.T) {
			half := newCaller(t, f.Hub, "only-"+verb).isAdmin(t)
			half.may(t, cluster1, mayGrant(verb))
			_, err := half.permissions().Create(t.Context(), permission(name), metav1.CreateOptions{})
			if rule := refusedFor(t, err, test.missing...); !slices.Equal(rule.Verbs, []string{test.takes}) {
				t.Errorf("it is said to take %v, not %s", rule.Verbs, test.takes)
			}
			f.notStored(t, name)
		})
	}

	t.Run("both in another cluster's namespace", func(t *testing.T) {
		elsewhere := newCaller(t, f.Hub, "granter-elsewhere").isAdmin(t)
		elsewhere.may(t, "default", mayGrant("escalate", "bind"))
		_, err := elsewhere.permissions().Create(t.Context(), permission(name), metav1.CreateOptions{})
		refusedFor(t, err, missing...)
	})

	t.Run("both", func(t *testing.T) {
		granter := newCaller(t, f.Hub, "granter").isAdmin(t).isGranter(t)
		create(t, granter.ocm, permission(name))
		f.applied(t, name)
		if texts := granter.warnings.take(); len(texts) > 0 {
			t.Errorf("warned of %q", texts)
		}
	})

	t.Run("granting alone does not let write", func(t *testing.T) {
		outsider := newCaller(t, f.Hub, "granter-only").isGranter(t)
		_, err := outsider.permissions().Create(t.Context(), permission("granting-outsider"), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("got %v, not 403", err)
		}
	})
}

// Who is refused is told the rule that it takes: pasted into a Role, that rule
// allows this and nothing else.
func TestRefusalNamesTheRule(t *testing.T) {
	f := shared(t)
	const name = "named-rule"
	alice := newCaller(t, f.Hub, "alice-named-rule").isAdmin(t)
	_, err := alice.permissions().Create(t.Context(), permission(name), metav1.CreateOptions{})
	bella := newCaller(t, f.Hub, "bella-named-rule").isAdmin(t)
	bella.may(t, cluster1, refusedFor(t, err, missingOf(name)...))
	create(t, bella.ocm, permission(name))
	f.applied(t, name)

	const other = "other-than-named"
	_, err = bella.permissions().Create(t.Context(), permission(other), metav1.CreateOptions{})
	refusedFor(t, err, missingOf(other)...)

	t.Run("of a generated name", func(t *testing.T) {
		generated := permission("")
		generated.GenerateName = "named-generated-"
		err := tries(t.Context(), alice, generated)
		if !apierrors.IsForbidden(err) {
			t.Fatalf("got %v, not 403", err)
		}
		_, text, _ := strings.Cut(err.Error(), "with the rule ")
		var rule rbacv1.PolicyRule
		if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
			t.Fatalf("no rule: %v", err)
		}
		carla := newCaller(t, f.Hub, "carla-named-rule").isAdmin(t)
		carla.may(t, cluster1, rule)
		// The next one is called something else.
		if err := tries(t.Context(), carla, generated); err != nil {
			t.Errorf("with the rule %s: %v", text, err)
		}
	})
}

// Who holds nothing on a cluster can deliver roles without rules under any name.
// What is there under such a name stays as it is, and nobody is bound to it.
func TestNothingOnTheClusterIsTakenOver(t *testing.T) {
	f := shared(t)
	const name = "platform-team"
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	createClusterRole(t, f.managed, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: everything})
	mallory := newCaller(t, f.Hub, "mallory-names").isAdmin(t)
	cp := create(t, mallory.ocm, &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{}},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: &mallory.subject},
			Roles:              &[]rbacv1alpha1.Role{{Namespace: "default", Rules: []rbacv1.PolicyRule{}}},
		},
	})
	f.permissionSays(t, cluster1, name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse)
	eventually(t, "it is said what is in the way", func(ctx context.Context) error {
		work, err := f.work(ctx, cp)
		if err != nil {
			return err
		}
		text := toJSON(work.Status)
		if !strings.Contains(text, "was not made by this ClusterPermission") || !strings.Contains(text, "nobody is bound") {
			return fmt.Errorf("the agent says %s", text)
		}
		return nil
	})
	f.present(t, object{"Role", "default", name})
	f.absent(t, object{"ClusterRoleBinding", "", name})
	role := must(f.managed.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}))(t)
	if !equality.Semantic.DeepEqual(role.Rules, everything) || len(role.OwnerReferences) > 0 || len(role.Annotations) > 0 {
		t.Errorf("the role has been touched: %v", role)
	}
	if err := mallory.permissions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.absent(t, object{"Role", "default", name})
	if _, err := f.managed.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("the role has gone with the ClusterPermission: %v", err)
	}
}
