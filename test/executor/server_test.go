package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// writesOfWorks is an audit policy for the server that logs the user of each write of a
// ManifestWork.
const writesOfWorks = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: Metadata
  verbs: ["create", "update", "patch"]
  resources: [{group: work.open-cluster-management.io, resources: ["manifestworks"]}]
- level: None
`

// serverOnHub is the user name of the server on its hub.
const serverOnHub = "system:serviceaccount:" + localhub.HubNamespace + ":" + localhub.ServerName

// executorFleet is a fleet with an audit log of the decisions of its server. The server can be
// restarted with other flags.
type executorFleet struct{ *fleet }

// serverWith restarts the server with further arguments.
func (f *executorFleet) serverWith(t *testing.T, args ...string) {
	t.Helper()
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// If a flag is repeated, its last value applies.
	f.Server.Args = slices.Concat(f.Server.Args, args)
	if err := f.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the hub serves ManifestWorks again", func(ctx context.Context) error {
		_, err := f.OCM.WorkV1().ManifestWorks("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

// judged waits until the audit log contains a decision for a write of a ManifestWork, and a text in
// its reason.
func (f *executorFleet) judged(t *testing.T, cluster, user string, code int32, decision, reason string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the audit log contains the decision %q for user %s in namespace %s", decision, user, cluster), func(context.Context) error {
		events, _, err := localhub.ReadAudit(f.Server.AuditLog(), 0)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events, func(event auditv1.Event) bool {
			return event.ObjectRef != nil && event.ObjectRef.Namespace == cluster && event.User.Username == user &&
				event.ResponseStatus != nil && event.ResponseStatus.Code == code &&
				event.Annotations["executor.work.open-cluster-management.io/decision"] == decision &&
				strings.Contains(event.Annotations["executor.work.open-cluster-management.io/reason"], reason)
		}) {
			return errors.New("no such event")
		}
		return nil
	})
}

// TestExecutorOfServer checks that the server's own writes require the same permissions as
// other writes, and that --nil-executor applies to ManifestWorks without an executor.
func TestExecutorOfServer(t *testing.T) {
	t.Parallel()
	permissions := types.NamespacedName{Namespace: "apps", Name: "permissions"}
	f := &executorFleet{ownFleet(t, localhub.FleetOptions{
		ServerAuditPolicy: writesOfWorks, APIServerArgs: []string{"--work-executor=" + permissions.String()},
	})}
	t.Run("the server delivers with execute-as", func(t *testing.T) { f.deliversByRight(t, permissions) })
	t.Run("the server does not deliver without execute-as", func(t *testing.T) { f.deliversNotWithout(t, permissions) })

	cluster := f.SilentCluster(t)
	old := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).Create(t.Context(), judgedWork("old", nil), metav1.CreateOptions{}))(t)
	f.serverWith(t, "--nil-executor=Deny")
	t.Run("Deny", func(t *testing.T) { f.deniesNilExecutors(t, cluster, old) })
	f.serverWith(t, "--nil-executor=Check", "--work-executor=")
	t.Run("Check", func(t *testing.T) { f.checksNilExecutors(t, cluster) })
}

// deliversByRight checks that the ClusterRole of the server allows every executor.
func (f *executorFleet) deliversByRight(t *testing.T, executor types.NamespacedName) {
	cluster := f.SilentCluster(t)
	cp := framework.CreatePermission(t, f.OCM, framework.PermissionIn(cluster, "delivered"))
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	work := f.WorkOf(t, cp)
	if got := work.Spec.Executor; got == nil || got.Subject.ServiceAccount.Namespace != executor.Namespace || got.Subject.ServiceAccount.Name != executor.Name {
		t.Errorf("executor = %+v, want ServiceAccount %s", got, executor)
	}
	if choice := work.Status.ExecutorChoice; choice == nil || choice.ChosenBy.Username != "system:apiserver" {
		t.Errorf("executorChoice = %+v, want chosenBy system:apiserver", choice)
	}
	f.judged(t, cluster, "system:apiserver", 201, "allow", "ClusterRole")
}

// deliversNotWithout checks that the server does not deliver a ClusterPermission without execute-as.
// The rule in the condition of the ClusterPermission restores the permission.
func (f *executorFleet) deliversNotWithout(t *testing.T, executor types.NamespacedName) {
	server := &framework.Caller{
		Name: serverOnHub, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + localhub.HubNamespace, "system:authenticated"},
		Subject:   rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: localhub.HubNamespace, Name: localhub.ServerName},
		HubClient: f.HubClient,
	}
	role := framework.Must(f.HubClient.RbacV1().ClusterRoles().Get(t.Context(), framework.ServerRole, metav1.GetOptions{}))(t)
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Verbs, "execute-as") })
	if _, err := f.HubClient.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster := f.SilentCluster(t)
	framework.Eventually(t, "the hub denies execute-as to the server", func(ctx context.Context) error {
		allowed, err := server.Allowed(ctx, cluster, "execute-as", workv1.GroupName, "manifestworks", executorName(executor))
		if err == nil && allowed {
			err = errors.New("SubjectAccessReview = allowed, want denied")
		}
		return err
	})

	cp := framework.CreatePermission(t, f.OCM, framework.PermissionIn(cluster, "kept-back"))
	said := f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, serverOnHub, executor.String())
	f.judged(t, cluster, "system:apiserver", 403, "forbid", serverOnHub)
	if works := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).List(t.Context(), metav1.ListOptions{}))(t); len(works.Items) > 0 {
		t.Errorf("stored ManifestWork = %s, want none after the denial", works.Items[0].Name)
	}
	for _, condition := range said.Status.Conditions {
		if condition.Type == rbacv1alpha1.ConditionRBACManifestWorkCreated {
			server.May(t, cluster, ruleIn(t, condition.Message))
		}
	}
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	f.judged(t, cluster, "system:apiserver", 201, "allow", "Role")
}

// deniesNilExecutors checks that no user can write the spec of a ManifestWork without an
// executor. An existing one can be cleaned up, or receive an executor.
func (f *executorFleet) deniesNilExecutors(t *testing.T, cluster string, old *workv1.ManifestWork) {
	ctx, works := t.Context(), f.OCM.WorkV1().ManifestWorks(cluster)
	patch := func(content string, subresources ...string) error {
		_, err := works.Patch(ctx, old.Name, types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresources...)
		return err
	}
	another := fmt.Sprintf(`{"spec":{"workload":{"manifests":[%s]}}}`, judgedManifest("another"))
	_, err := works.Create(ctx, judgedWork("new", nil), metav1.CreateOptions{})
	for way, err := range map[string]error{"create": err, "another manifest": patch(another)} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.executor is required on this hub") {
			t.Errorf("%s without executor = %v, want Forbidden for spec.executor", way, err)
		}
	}
	f.judged(t, cluster, "admin", 403, "forbid", "spec.executor is required")

	_, agent := f.AgentOf(t, cluster)
	for _, content := range []string{`{"metadata":{"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"]}}`, `{"metadata":{"finalizers":null}}`} {
		if _, err := agent.WorkV1().ManifestWorks(cluster).Patch(ctx, old.Name, types.MergePatchType, []byte(content), metav1.PatchOptions{}); err != nil {
			t.Errorf("update of %s by the agent = %v, want nil", content, err)
		}
	}
	if err := patch(`{"status":{"conditions":[]}}`, "status"); err != nil {
		t.Errorf("update of the status = %v, want nil", err)
	}
	if err := patch(fmt.Sprintf(`{"spec":{"executor":%s}}`, asJSON(t, judgedExecutor))); err != nil {
		t.Errorf("update with an executor = %v, want nil", err)
	}
	if err := patch(`{"spec":{"executor":null}}`); !apierrors.IsForbidden(err) {
		t.Errorf("removal of the executor = %v, want Forbidden", err)
	}
}

// checksNilExecutors checks that a ManifestWork without an executor requires a separate
// permission.
func (f *executorFleet) checksNilExecutors(t *testing.T, cluster string) {
	c := framework.NewCaller(t, f.Hub, "nil-writer")
	c.May(t, cluster, writeWorks, executeAs(executorName(judgedExecutor)))
	works := c.OCM.WorkV1().ManifestWorks(cluster)
	write := func() error {
		_, err := works.Create(t.Context(), judgedWork("of-the-agent", nil), metav1.CreateOptions{})
		return err
	}
	err := write()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "without spec.executor") {
		t.Fatalf("create without executor = %v, want Forbidden", err)
	}
	rule := ruleIn(t, err.Error())
	if want := executeAs("system:serviceaccount::klusterlet-work-sa"); rule.String() != want.String() {
		t.Errorf("rule in the message = %v, want %v", rule, want)
	}
	if _, err := works.Create(t.Context(), judgedWork("of-the-deployer", executorOf(judgedExecutor)), metav1.CreateOptions{}); err != nil {
		t.Errorf("create with an executor = %v, want nil", err)
	}
	// Removing the executor requires the same permission as creating a ManifestWork without one.
	if _, err := works.Patch(t.Context(), "of-the-deployer", types.MergePatchType, []byte(`{"spec":{"executor":null}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("removal of the executor = %v, want Forbidden", err)
	}
	c.May(t, cluster, rule)
	framework.Eventually(t, "the rule in the error message allows the write", func(context.Context) error { return write() })

	// The server restored its ClusterRole when it started, so it has execute-as again.
	cp := framework.CreatePermission(t, f.OCM, framework.PermissionIn(cluster, "of-the-server"))
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
}
