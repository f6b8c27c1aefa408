package console

import (
	"fmt"
	"os"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/browser"
	"open-cluster-management.io/hub-apiserver/test/demo"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// picture writes a screenshot for the documentation, if the variable HUB_SCREENSHOTS names a directory.
func picture(p *browser.Page, name string) {
	if directory := os.Getenv("HUB_SCREENSHOTS"); directory != "" {
		p.Resize(1280, 720)
		p.Screenshot(directory, name)
	}
}

// TestDemo looks at the fleet of make run DEMO=1 as a new user does. The pictures of the documentation are from it.
func TestDemo(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{HubAgent: true, Join: localhub.JoinByRegistration, APIServerArgs: []string{"--clusterpermission-escalation-check=Approve"}})
	framework.Must(demo.Fill(t.Context(), f.Hub))(t)
	const cluster = "prod-frankfurt-1"
	author := framework.NewCaller(t, f.Hub, "dana")
	author.Bind(t, cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"})
	author.AwaitAllowed(t, cluster, rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, Verbs: []string{"create"}})
	permission := framework.PermissionIn(cluster, "debug-payments")
	permission.Spec.ClusterRole, permission.Spec.ClusterRoleBinding = nil, nil
	(*permission.Spec.Roles)[0] = rbacv1alpha1.Role{Namespace: "payments", Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "pods/log"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create"}},
	}}
	binding := &(*permission.Spec.RoleBindings)[0]
	binding.Namespace, binding.Subject = "payments", &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "payments-developers"}
	framework.CreatePermission(t, author.OCM, permission)

	p := open(t, framework.NewCaller(t, f.Hub, "maria", "system:masters"))
	show(t, p, "#/search?q=payments")
	p.AwaitText("Deployment")
	p.WantAccessible()
	picture(p, "console-search")

	show(t, p, "#/fleet")
	p.AwaitText(fmt.Sprintf("%d clusters, %d available, 1 waiting for acceptance", demo.Clusters+2, demo.Clusters-1))
	p.Await("button", "Accept … "+demo.Waiting)
	p.AwaitText("image must come from the mirror of the region")
	p.WantAccessible()
	picture(p, "console-fleet")

	show(t, p, "#/search?q=kind%3ADeployment%20desired%3E3%20cluster%3A"+cluster)
	becomes(t, p, `document.querySelector("tbody a") !== null`, true)
	browser.Evaluate[bool](p, `(document.querySelector("tbody a").click(), true)`)
	p.Click("button", "Show graph")
	p.AwaitText("Arrow keys walk")
	p.WantAccessible()
	picture(p, "console-graph")

	show(t, p, "#/access/approvals")
	p.Click("button", "Show what it would grant for debug-payments on "+cluster)
	p.AwaitText("Group payments-developers gets the Role debug-payments in namespace payments")
	picture(p, "console-approval")
	p.WantQuiet()
}
