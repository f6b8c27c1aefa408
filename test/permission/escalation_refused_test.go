package permission

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
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// manifest returns a ClusterPermission as JSON, in the form that users write.
func manifest(t *testing.T, cp *rbacv1alpha1.ClusterPermission) string {
	t.Helper()
	cp = cp.DeepCopy()
	cp.TypeMeta = metav1.TypeMeta{APIVersion: rbacv1alpha1.SchemeGroupVersion.String(), Kind: "ClusterPermission"}
	cp.ManagedFields = nil
	return string(framework.Must(json.Marshal(cp))(t))
}

// request is one way to write a ClusterPermission.
type request func(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error

func apiPatch(patch types.PatchType, options metav1.PatchOptions) request {
	return func(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error {
		content := manifest(t, cp)
		if patch == types.JSONPatchType {
			content = fmt.Sprintf(`[{"op":"replace","path":"/spec","value":%s}]`, framework.Must(json.Marshal(cp.Spec))(t))
		}
		_, err := c.Permissions().Patch(t.Context(), cp.Name, patch, []byte(content), options)
		return err
	}
}

func kubectlWrite(args ...string) request {
	return func(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error {
		out, err := c.Kubectl(t, manifest(t, cp), append(args, "-f", "-")...)
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

// creations contains the requests that create a ClusterPermission, and changes those that change
// one.
var creations = map[string]request{
	"create": func(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.Permissions().Create(t.Context(), cp, metav1.CreateOptions{})
		return err
	},
	"create dry-run": func(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.Permissions().Create(t.Context(), cp, metav1.CreateOptions{DryRun: dryRun})
		return err
	},
	"server-side apply":                     apiPatch(types.ApplyPatchType, metav1.PatchOptions{FieldManager: "test"}),
	"server-side apply dry-run":             apiPatch(types.ApplyPatchType, metav1.PatchOptions{FieldManager: "test", DryRun: dryRun}),
	"kubectl create":                        kubectlWrite("create"),
	"kubectl apply":                         kubectlWrite("apply"),
	"kubectl apply --server-side --dry-run": kubectlWrite("apply", "--server-side", "--dry-run=server"),
}

var changes = map[string]request{
	"update": func(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.Permissions().Update(t.Context(), cp, metav1.UpdateOptions{})
		return err
	},
	"update dry-run": func(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error {
		_, err := c.Permissions().Update(t.Context(), cp, metav1.UpdateOptions{DryRun: dryRun})
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

// TestEscalationIsRefused checks that an administrator of a cluster's namespace on the hub cannot
// grant permissions on the cluster. The administrator holds no permissions on the cluster.
func TestEscalationIsRefused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	alice := framework.NewCaller(t, f.Hub, "alice-refused").IsAdmin(t)

	t.Run("create", func(t *testing.T) {
		const name = "escalation-created"
		for title, write := range creations {
			err := write(t, alice, framework.Permission(name))
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s = %v, want 403", title, err)
				continue
			}
			rule := refusedFor(t, err, missingOf(name)...)
			want := rbacv1.PolicyRule{
				APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, ResourceNames: []string{name}, Verbs: []string{"bind", "escalate"},
			}
			if fmt.Sprint(rule) != fmt.Sprint(want) {
				t.Errorf("%s: rule in the message = %v, want %v", title, rule, want)
			}
			if !strings.Contains(err.Error(), `"alice-refused"`) {
				t.Errorf("%s = %v, want the user alice-refused in the message", title, err)
			}
		}
		f.notStored(t, name)
		f.notDelivered(t, name)
	})

	t.Run("change", func(t *testing.T) {
		const name = "escalation-changed"
		cp := framework.Permission(name)
		cp.Spec.ClusterRole, cp.Spec.ClusterRoleBinding = nil, nil
		framework.CreatePermission(t, f.OCM, cp)
		before := f.Applied(t, name)
		work := framework.Must(f.GetWork(t.Context(), before))(t)
		for title, write := range changes {
			changed := framework.Must(f.GetPermission(t.Context(), name))(t)
			changed.ResourceVersion = ""
			changed.Spec.ClusterRole = &rbacv1alpha1.ClusterRole{Rules: framework.ReadAll}
			changed.Spec.ClusterRoleBinding = &rbacv1alpha1.ClusterRoleBinding{Subject: framework.UserSubject(alice.Name)}
			(*changed.Spec.RoleBindings)[0].Subject = framework.UserSubject(alice.Name)
			if title == "server-side apply" || title == "server-side apply dry-run" {
				changed = &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: name}, Spec: changed.Spec}
			}
			err := write(t, alice, changed)
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s = %v, want 403", title, err)
				continue
			}
			// The message omits the rules of the existing Role. It contains its binding, because
			// alice is a new subject.
			missing := missingOf(name)
			refusedFor(t, err, slices.Delete(missing, 1, 2)...)
		}
		after := framework.Must(f.GetPermission(t.Context(), name))(t)
		if after.Generation != before.Generation || !equality.Semantic.DeepEqual(after.Spec, before.Spec) {
			t.Errorf("stored ClusterPermission = generation %d with spec %v, want generation %d and the same spec", after.Generation, after.Spec, before.Generation)
		}
		f.passes(t, "escalation-marker")
		if again := framework.Must(f.GetWork(t.Context(), before))(t); again.Generation != work.Generation {
			t.Errorf("generation of the ManifestWork = %d, want %d", again.Generation, work.Generation)
		}
	})

	t.Run("a status in the body approves nothing", func(t *testing.T) {
		cp := framework.Permission("escalation-self-approved")
		cp.Generation = 7
		cp.Status.Approval = &rbacv1alpha1.Approval{
			Approved:  &rbacv1alpha1.ApprovedGeneration{Generation: 1, ApprovedBy: "root", ApprovedAt: metav1.Now()},
			Delivered: &rbacv1alpha1.DeliveredGeneration{Generation: 1, Spec: cp.Spec},
		}
		_, err := alice.Permissions().Create(t.Context(), cp, metav1.CreateOptions{})
		refusedFor(t, err, missingOf(cp.Name)...)
	})
}

// TestEscalateAndBind checks that granting requires both verbs: escalate for rules, and bind for
// bindings.
func TestEscalateAndBind(t *testing.T) {
	t.Parallel()
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
			half := framework.NewCaller(t, f.Hub, "only-"+verb).IsAdmin(t)
			half.May(t, framework.Cluster1, mayGrant(verb))
			_, err := half.Permissions().Create(t.Context(), framework.Permission(name), metav1.CreateOptions{})
			if rule := refusedFor(t, err, test.missing...); !slices.Equal(rule.Verbs, []string{test.takes}) {
				t.Errorf("verbs of the rule in the message = %v, want %s", rule.Verbs, test.takes)
			}
			f.notStored(t, name)
		})
	}

	t.Run("both in another cluster's namespace", func(t *testing.T) {
		elsewhere := framework.NewCaller(t, f.Hub, "granter-elsewhere").IsAdmin(t)
		elsewhere.May(t, "default", mayGrant("escalate", "bind"))
		_, err := elsewhere.Permissions().Create(t.Context(), framework.Permission(name), metav1.CreateOptions{})
		refusedFor(t, err, missing...)
	})

	t.Run("both", func(t *testing.T) {
		granter := framework.NewCaller(t, f.Hub, "granter").IsAdmin(t).IsGranter(t)
		framework.CreatePermission(t, granter.OCM, framework.Permission(name))
		f.Applied(t, name)
		if texts := granter.Warnings.Take(); len(texts) > 0 {
			t.Errorf("warnings for the granter = %q, want none", texts)
		}
	})

	t.Run("both without permission to write", func(t *testing.T) {
		outsider := framework.NewCaller(t, f.Hub, "granter-only").IsGranter(t)
		_, err := outsider.Permissions().Create(t.Context(), framework.Permission("granting-outsider"), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("create without permission to write = %v, want 403", err)
		}
	})
}

// TestErrorContainsTheMissingRule checks that the error message contains the missing rule. A Role
// with that rule allows the request, but not the same request for another name.
func TestErrorContainsTheMissingRule(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "named-rule"
	alice := framework.NewCaller(t, f.Hub, "alice-named-rule").IsAdmin(t)
	_, err := alice.Permissions().Create(t.Context(), framework.Permission(name), metav1.CreateOptions{})
	bella := framework.NewCaller(t, f.Hub, "bella-named-rule").IsAdmin(t)
	bella.May(t, framework.Cluster1, refusedFor(t, err, missingOf(name)...))
	framework.CreatePermission(t, bella.OCM, framework.Permission(name))
	f.Applied(t, name)

	const other = "other-than-named"
	_, err = bella.Permissions().Create(t.Context(), framework.Permission(other), metav1.CreateOptions{})
	refusedFor(t, err, missingOf(other)...)

	t.Run("generateName", func(t *testing.T) {
		generated := framework.Permission("")
		generated.GenerateName = "named-generated-"
		err := tries(t.Context(), alice, generated)
		if !apierrors.IsForbidden(err) {
			t.Fatalf("create = %v, want 403", err)
		}
		_, text, _ := strings.Cut(err.Error(), "that contains the rule ")
		var rule rbacv1.PolicyRule
		if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
			t.Fatalf("rule in the message = %q, want a PolicyRule: %v", text, err)
		}
		carla := framework.NewCaller(t, f.Hub, "carla-named-rule").IsAdmin(t)
		carla.May(t, framework.Cluster1, rule)
		// The next request gets another generated name.
		if err := tries(t.Context(), carla, generated); err != nil {
			t.Errorf("create with the rule %s = %v, want nil", text, err)
		}
	})
}

// TestExistingRolesAreNotTakenOver checks a caller without permissions on a cluster. The caller can
// deliver roles without rules under any name. An existing role of such a name stays unchanged and
// gets no subjects.
func TestExistingRolesAreNotTakenOver(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "platform-team"
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	framework.CreateClusterRole(t, f.ManagedClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: everything})
	mallory := framework.NewCaller(t, f.Hub, "mallory-names").IsAdmin(t)
	cp := framework.CreatePermission(t, mallory.OCM, &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{}},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: &mallory.Subject},
			Roles:              &[]rbacv1alpha1.Role{{Namespace: "default", Rules: []rbacv1.PolicyRule{}}},
		},
	})
	f.PermissionSays(t, framework.Cluster1, name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse)
	framework.Eventually(t, "the status of the ManifestWork reports the existing ClusterRole and the missing binding", func(ctx context.Context) error {
		work, err := f.GetWork(ctx, cp)
		if err != nil {
			return err
		}
		text := framework.ToJSON(work.Status)
		if !strings.Contains(text, "was not created by this ClusterPermission") || !strings.Contains(text, "not bound: ") {
			return fmt.Errorf("status of the ManifestWork = %s", text)
		}
		return nil
	})
	f.Present(t, framework.NewObject("Role", "default", name))
	f.Absent(t, framework.NewObject("ClusterRoleBinding", "", name))
	role := framework.Must(f.ManagedClient.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}))(t)
	if !equality.Semantic.DeepEqual(role.Rules, everything) || len(role.OwnerReferences) > 0 || len(role.Annotations) > 0 {
		t.Errorf("existing ClusterRole = %v, want it unchanged", role)
	}
	if err := mallory.Permissions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Absent(t, framework.NewObject("Role", "default", name))
	if _, err := f.ManagedClient.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("get ClusterRole %s after the deletion of the ClusterPermission = %v, want nil", name, err)
	}
}
