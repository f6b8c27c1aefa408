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

// mayGrant are the verbs of clusterpermissions that are about granting.
func mayGrant(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, Verbs: verbs}
}

// refusedFor checks that a request was refused with 403 for exactly the grants of
// these lines, and returns the rule that is said to allow it.
func refusedFor(t *testing.T, err error, lines ...string) rbacv1.PolicyRule {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("got %v, not 403", err)
	}
	return refusedWith(t, err.Error(), lines...)
}

// refusedWith is refusedFor of the text of a refusal.
func refusedWith(t *testing.T, message string, lines ...string) rbacv1.PolicyRule {
	t.Helper()
	const head = "may not grant what it does not hold on managed cluster \"" + framework.Cluster1 + "\":\n"
	const takes = "\nit takes a Role in namespace \"" + framework.Cluster1 + "\" with the rule "
	_, body, refused := strings.Cut(strings.TrimSpace(message), head)
	missing, text, said := strings.Cut(body, takes)
	if !refused || !said {
		t.Fatalf("no refusal to grant, but:\n%s", message)
	}
	if want := strings.Join(lines, "\n"); missing != want {
		t.Fatalf("refused for\n%s\nnot for\n%s", missing, want)
	}
	var rule rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
		t.Fatalf("the rule cannot be pasted into a role: %v\n%s", err, text)
	}
	return rule
}

// missingOf are the lines of what framework.Permission(name) grants.
func missingOf(name string) []string {
	const nodesAndPods, pods = `{apiGroups: [""], resources: [nodes, pods], verbs: [get]}`, `{apiGroups: [""], resources: [pods], verbs: [get, list]}`
	return []string{
		"spec.clusterRole, cluster-wide: " + nodesAndPods,
		`spec.roles[0], in namespace "default": ` + pods,
		fmt.Sprintf("spec.clusterRoleBinding, cluster-wide: ClusterRole %q with %s", name, nodesAndPods),
		fmt.Sprintf(`spec.roleBindings[0], in namespace "default": Role %q in namespace "default" with %s`, name, pods),
	}
}

// passes waits until what is created now has arrived on the managed cluster: what
// was to arrive before has arrived as well.
func (f *fleet) passes(t *testing.T, name string) {
	t.Helper()
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	f.Applied(t, name)
}

// notDelivered checks that nothing of a ClusterPermission of that name is on its way.
func (f *fleet) notDelivered(t *testing.T, name string) {
	t.Helper()
	f.passes(t, name+"-marker")
	if works := framework.Must(framework.WorksOf(t.Context(), f.OCM, name))(t); len(works) > 0 {
		t.Errorf("there is a work %s", works[0].Name)
	}
	for _, o := range framework.ObjectsOf(name) {
		if _, err := framework.ReadObject(t.Context(), f.ManagedClient, o); framework.IsGone(err) != nil {
			t.Errorf("%s on the managed cluster: %v", o, framework.IsGone(err))
		}
	}
}

// notStored checks that there is no ClusterPermission of that name and no work of one.
func (f *fleet) notStored(t *testing.T, name string) {
	t.Helper()
	if _, err := f.GetPermission(t.Context(), name); !apierrors.IsNotFound(err) {
		t.Errorf("%s is stored, or: %v", name, err)
	}
	if works := framework.Must(framework.WorksOf(t.Context(), f.OCM, name))(t); len(works) > 0 {
		t.Errorf("there is a work %s", works[0].Name)
	}
}
