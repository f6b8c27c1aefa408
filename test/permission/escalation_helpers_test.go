package permission

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// mayGrant returns a rule with verbs on clusterpermissions. The verbs escalate and bind allow
// granting.
func mayGrant(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, Verbs: verbs}
}

// refusedFor checks that a request was denied with 403, and that the message contains exactly these
// lines of missing permissions. It returns the rule in the message that would allow the request.
func refusedFor(t *testing.T, err error, lines ...string) rbacv1.PolicyRule {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("error = %v, want 403", err)
	}
	return refusedWith(t, err.Error(), lines...)
}

// refusedWith does the same as refusedFor for the text of an error.
func refusedWith(t *testing.T, message string, lines ...string) rbacv1.PolicyRule {
	t.Helper()
	const head = "cannot grant permissions that the user does not hold on managed cluster \"" + framework.Cluster1 + "\":\n"
	const takes = "\ngrant it with a Role in namespace \"" + framework.Cluster1 + "\" that contains the rule "
	_, body, refused := strings.Cut(strings.TrimSpace(message), head)
	missing, text, said := strings.Cut(body, takes)
	if !refused || !said {
		t.Fatalf("message =\n%s\nwant missing permissions and a rule", message)
	}
	if want := strings.Join(lines, "\n"); missing != want {
		t.Fatalf("missing permissions in the message =\n%s\nwant\n%s", missing, want)
	}
	var rule rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
		t.Fatalf("rule in the message = %s, want a PolicyRule: %v", text, err)
	}
	return rule
}

// missingOf returns the lines of missing permissions for a caller that holds none of the rules of
// framework.Permission(name).
func missingOf(name string) []string {
	const nodesAndPods, pods = `{apiGroups: [""], resources: [nodes, pods], verbs: [get]}`, `{apiGroups: [""], resources: [pods], verbs: [get, list]}`
	return []string{
		"spec.clusterRole, cluster-wide: " + nodesAndPods,
		`spec.roles[0], in namespace "default": ` + pods,
		fmt.Sprintf("spec.clusterRoleBinding, cluster-wide: ClusterRole %q with %s", name, nodesAndPods),
		fmt.Sprintf(`spec.roleBindings[0], in namespace "default": Role %q in namespace "default" with %s`, name, pods),
	}
}

// passes waits until a new ClusterPermission is applied on the managed cluster. All earlier changes
// are then processed as well.
func (f *fleet) passes(t *testing.T, name string) {
	t.Helper()
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	f.Applied(t, name)
}

// notDelivered checks that a ClusterPermission has neither a ManifestWork nor objects on the managed
// cluster.
func (f *fleet) notDelivered(t *testing.T, name string) {
	t.Helper()
	f.passes(t, name+"-marker")
	if works := framework.Must(framework.WorksOf(t.Context(), f.OCM, name))(t); len(works) > 0 {
		t.Errorf("ManifestWork = %s, want none", works[0].Name)
	}
	for _, o := range framework.ObjectsOf(name) {
		if _, err := framework.ReadObject(t.Context(), f.ManagedClient, o); framework.IsGone(err) != nil {
			t.Errorf("get %s on the managed cluster: %v, want NotFound", o, framework.IsGone(err))
		}
	}
}

// notStored checks that a ClusterPermission and its ManifestWork do not exist.
func (f *fleet) notStored(t *testing.T, name string) {
	t.Helper()
	if _, err := f.GetPermission(t.Context(), name); !apierrors.IsNotFound(err) {
		t.Errorf("get ClusterPermission %s = %v, want NotFound", name, err)
	}
	if works := framework.Must(framework.WorksOf(t.Context(), f.OCM, name))(t); len(works) > 0 {
		t.Errorf("ManifestWork = %s, want none", works[0].Name)
	}
}
