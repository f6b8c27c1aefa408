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

// writesOfWorks is an audit policy for our server that logs who writes works.
const writesOfWorks = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: Metadata
  verbs: ["create", "update", "patch"]
  resources: [{group: work.open-cluster-management.io, resources: ["manifestworks"]}]
- level: None
`

// serverOnHub is who our server is on its hub.
const serverOnHub = "system:serviceaccount:" + localhub.HubNamespace + ":" + localhub.ServerName

// executorFleet is a fleet whose server says in an audit log what it has judged, and is
// restarted with other flags.
type executorFleet struct{ *fleet }

// serverWith restarts the server with further arguments.
func (f *executorFleet) serverWith(t *testing.T, args ...string) {
	t.Helper()
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The last of several flags wins.
	f.Server.Args = slices.Concat(f.Server.Args, args)
	if err := f.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the hub has its server back", func(ctx context.Context) error {
		_, err := f.OCM.WorkV1().ManifestWorks("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

// judged waits for the audit log to say of a write of a work in a cluster what was
// decided of it, and why.
func (f *executorFleet) judged(t *testing.T, cluster, user string, code int32, decision, reason string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the audit log has %s of %s in %s", decision, user, cluster), func(context.Context) error {
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
			return errors.New("it has not")
		}
		return nil
	})
}

// TestExecutorOfServer: what the server writes itself is judged as what anybody writes,
// and works without executor are what --nil-executor says.
func TestExecutorOfServer(t *testing.T) {
	t.Parallel()
	permissions := types.NamespacedName{Namespace: "apps", Name: "permissions"}
	f := &executorFleet{ownFleet(t, localhub.FleetOptions{
		ServerAuditPolicy: writesOfWorks, APIServerArgs: []string{"--work-executor=" + permissions.String()},
	})}
	t.Run("delivers by its right", func(t *testing.T) { f.deliversByRight(t, permissions) })
	t.Run("is not delivered without", func(t *testing.T) { f.deliversNotWithout(t, permissions) })

	cluster := f.SilentCluster(t)
	old := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).Create(t.Context(), judgedWork("old", nil), metav1.CreateOptions{}))(t)
	f.serverWith(t, "--nil-executor=Deny")
	t.Run("Deny", func(t *testing.T) { f.deniesNilExecutors(t, cluster, old) })
	f.serverWith(t, "--nil-executor=Check", "--work-executor=")
	t.Run("Check", func(t *testing.T) { f.checksNilExecutors(t, cluster) })
}

// deliversByRight: the ClusterRole of the server lets it name every executor.
func (f *executorFleet) deliversByRight(t *testing.T, executor types.NamespacedName) {
	cluster := f.SilentCluster(t)
	cp := framework.CreatePermission(t, f.OCM, framework.PermissionIn(cluster, "delivered"))
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	work := f.WorkOf(t, cp)
	if got := work.Spec.Executor; got == nil || got.Subject.ServiceAccount.Namespace != executor.Namespace || got.Subject.ServiceAccount.Name != executor.Name {
		t.Errorf("executor %+v", got)
	}
	if choice := work.Status.ExecutorChoice; choice == nil || choice.ChosenBy.Username != "system:apiserver" {
		t.Errorf("chosen by %+v", choice)
	}
	f.judged(t, cluster, "system:apiserver", 201, "allow", "ClusterRole")
}

// deliversNotWithout takes that away from the server and gives it back by the very
// rule that the ClusterPermission says is missing.
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
	framework.Eventually(t, "the hub no longer lets the server name an executor", func(ctx context.Context) error {
		allowed, err := server.Allowed(ctx, cluster, "execute-as", workv1.GroupName, "manifestworks", executorName(executor))
		if err == nil && allowed {
			err = errors.New("it does")
		}
		return err
	})

	cp := framework.CreatePermission(t, f.OCM, framework.PermissionIn(cluster, "kept-back"))
	said := f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, serverOnHub, executor.String())
	f.judged(t, cluster, "system:apiserver", 403, "forbid", serverOnHub)
	if works := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).List(t.Context(), metav1.ListOptions{}))(t); len(works.Items) > 0 {
		t.Errorf("refused and stored: %s", works.Items[0].Name)
	}
	for _, condition := range said.Status.Conditions {
		if condition.Type == rbacv1alpha1.ConditionRBACManifestWorkCreated {
			server.May(t, cluster, ruleIn(t, condition.Message))
		}
	}
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	f.judged(t, cluster, "system:apiserver", 201, "allow", "Role")
}

// deniesNilExecutors: nobody gives a work without executor its spec, and one that was
// there can be cleaned up, or be given an executor.
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
			t.Errorf("%s: %v", way, err)
		}
	}
	f.judged(t, cluster, "admin", 403, "forbid", "spec.executor is required")

	_, agent := f.AgentOf(t, cluster)
	for _, content := range []string{`{"metadata":{"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"]}}`, `{"metadata":{"finalizers":null}}`} {
		if _, err := agent.WorkV1().ManifestWorks(cluster).Patch(ctx, old.Name, types.MergePatchType, []byte(content), metav1.PatchOptions{}); err != nil {
			t.Errorf("the agent writes %s: %v", content, err)
		}
	}
	if err := patch(`{"status":{"conditions":[]}}`, "status"); err != nil {
		t.Errorf("the status: %v", err)
	}
	if err := patch(fmt.Sprintf(`{"spec":{"executor":%s}}`, asJSON(t, judgedExecutor))); err != nil {
		t.Errorf("an executor: %v", err)
	}
	if err := patch(`{"spec":{"executor":null}}`); !apierrors.IsForbidden(err) {
		t.Errorf("no executor any more: %v", err)
	}
}

// checksNilExecutors: a work without executor takes a right of its own.
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
		t.Fatalf("created without executor: %v", err)
	}
	rule := ruleIn(t, err.Error())
	if want := executeAs("system:serviceaccount::klusterlet-work-sa"); rule.String() != want.String() {
		t.Errorf("rule %v, not %v", rule, want)
	}
	if _, err := works.Create(t.Context(), judgedWork("of-the-deployer", executorOf(judgedExecutor)), metav1.CreateOptions{}); err != nil {
		t.Errorf("with an executor: %v", err)
	}
	// To take the executor away is to write a work without.
	if _, err := works.Patch(t.Context(), "of-the-deployer", types.MergePatchType, []byte(`{"spec":{"executor":null}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the executor is taken away: %v", err)
	}
	c.May(t, cluster, rule)
	framework.Eventually(t, "the rule of the refusal allows the write", func(context.Context) error { return write() })

	// The server has its ClusterRole back, which was applied when it started.
	cp := framework.CreatePermission(t, f.OCM, framework.PermissionIn(cluster, "of-the-server"))
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
}
