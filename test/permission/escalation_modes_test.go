package permission

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// keepsWaiting checks that a pending ClusterPermission stays pending in another mode, even after a
// change of its metadata.
func (a *approvals) keepsWaiting(t *testing.T, name string) {
	t.Helper()
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), name))(t), 1)
	framework.Must(a.alice.Permissions().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}))(t)
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), name))(t), 1)
	marker := framework.CreatePermission(t, a.OCM, framework.Permission(name+"-marker"))
	framework.AwaitWorkCreated(t, a.OCM, marker.Name)
	if works := framework.Must(framework.WorksOf(t.Context(), a.OCM, name))(t); len(works) > 0 {
		t.Errorf("ManifestWork = %s, want none", works[0].Name)
	}
}

// hasWork waits until a ClusterPermission has a ManifestWork. It does not wait for the agent, which
// does not depend on the mode and needs time to reconnect after each restart of the server.
func (a *approvals) hasWork(t *testing.T, cp *rbacv1alpha1.ClusterPermission) {
	t.Helper()
	framework.Eventually(t, "ClusterPermission "+cp.Name+" has a ManifestWork", func(ctx context.Context) error {
		_, err := a.GetWork(ctx, cp)
		return err
	})
}

func (a *approvals) enforces(t *testing.T) {
	const name = "enforced"
	a.asks(t, name)
	a.restart(t, "Enforce")
	a.keepsWaiting(t, name)
	_, err := a.change(t, a.alice, name, `{"validate":true}`)
	refusedFor(t, err, missingOf(name)...)
	_, err = approve(t.Context(), a.alice, framework.Must(a.GetPermission(t.Context(), name))(t))
	refusedFor(t, err, missingOf(name)...)
	a.hasWork(t, framework.Must(approve(t.Context(), a.root, framework.Must(a.GetPermission(t.Context(), name))(t)))(t))
}

func (a *approvals) warns(t *testing.T) {
	a.restart(t, "Warn")
	const name = "warned"
	a.alice.Warnings.Take()
	cp := framework.CreatePermission(t, a.alice.OCM, framework.Permission(name))
	if cp.Status.Approval != nil {
		t.Errorf("approval = %v, want nil", cp.Status.Approval)
	}
	texts := a.alice.Warnings.Take()
	if len(texts) != 4 {
		t.Errorf("warnings for alice = %d, want 4, one for each part: %q", len(texts), texts)
	}
	for i, want := range []string{"spec.clusterRole (cluster-wide): requires escalate: ", `spec.roles[0] (in namespace "default"): requires escalate: `,
		"spec.clusterRoleBinding (cluster-wide): requires bind: ", `spec.roleBindings[0] (in namespace "default"): requires bind: `} {
		if i < len(texts) && !strings.HasPrefix(texts[i], want) {
			t.Errorf("warning %d for alice = %q, want the prefix %q", i, texts[i], want)
		}
	}
	a.hasWork(t, cp)
	framework.Must(a.change(t, a.alice, name, `{"clusterRoleBinding":{"subject":{"name":"carol"}}}`))(t)
	if texts := a.alice.Warnings.Take(); len(texts) != 1 || !strings.HasPrefix(texts[0], "spec.clusterRoleBinding") {
		t.Errorf("warnings for a change of the binding = %q, want one for spec.clusterRoleBinding", texts)
	}
	framework.Must(a.alice.Permissions().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}))(t)
	framework.CreatePermission(t, a.root.OCM, framework.Permission("warned-nobody"))
	if texts := append(a.alice.Warnings.Take(), a.root.Warnings.Take()...); len(texts) > 0 {
		t.Errorf("warnings without missing permissions = %q, want none", texts)
	}
	out, err := a.alice.Kubectl(t, manifest(t, framework.Permission("warned-kubectl")), "create", "-f", "-")
	framework.DeletePermissionLater(t, a.OCM, framework.Cluster1, "warned-kubectl")
	if err != nil || strings.Count(out, "Warning: spec.") != 4 {
		t.Errorf("kubectl create = %v, want nil and 4 warnings:\n%s", err, out)
	}
	a.keepsWaiting(t, "warned-of")
}

func (a *approvals) isOff(t *testing.T) {
	a.restart(t, "Off")
	const name = "off"
	a.alice.Warnings.Take()
	cp := framework.CreatePermission(t, a.alice.OCM, framework.Permission(name))
	if texts := a.alice.Warnings.Take(); len(texts) > 0 {
		t.Errorf("warnings for alice = %q, want none", texts)
	}
	a.hasWork(t, cp)
}

// TestBadPermissionFlags checks that the server does not start if a flag has an invalid value. The
// error contains the flag and the value.
func TestBadPermissionFlags(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for _, flag := range []string{
		"--clusterpermission-escalation-check=Maybe", "--clusterpermission-escalation-check=enforce", "--clusterpermission-escalation-check=",
		"--namespace-selector-source=Moon",
		"--work-executor=klusterlet-work-sa", "--work-executor=open-cluster-management-agent/", "--work-executor=/klusterlet-work-sa",
		"--work-executor=Not_A_Namespace/klusterlet-work-sa", "--work-executor=a/b/c",
	} {
		t.Run(flag, func(t *testing.T) {
			err := framework.NewServer(t, localhub.APIServerOptions{Hub: f.Hub, Dir: filepath.Join(framework.OwnDir(t), "server"), Args: []string{flag}}).Start(t.Context())
			name, value, _ := strings.Cut(flag, "=")
			if err == nil || !strings.Contains(err.Error(), name+" must be") || !strings.Contains(err.Error(), `not \"`+value+`\"`) {
				t.Errorf("start of the server = %v, want an error with %s and the value %q", err, name, value)
			}
		})
	}
}
