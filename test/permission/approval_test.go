package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	escalationFlag = "--clusterpermission-escalation-check="
	// author and approver are the user names of alice and root. They differ from the subjects of
	// framework.Permission, so neither of them holds the permissions that it grants.
	author, approver = "alice-asks", "root-approves"
)

// approvals is a fleet with a server in mode Approve. There, a ClusterPermission waits for approval
// if its author is not allowed to grant it.
type approvals struct {
	*fleet
	// alice administers the namespace of the cluster. root is also allowed to grant any rule.
	alice, root *framework.Caller
}

// TestApprovalRequests checks requests of authors, approvers and other users for ClusterPermissions that
// wait for approval. The subtests run in this order, because later ones restart the server in
// another mode.
func TestApprovalRequests(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}, APIServerArgs: []string{escalationFlag + "Approve"}})
	a := &approvals{
		fleet: f,
		alice: framework.NewCaller(t, f.Hub, author).IsAdmin(t),
		root:  framework.NewCaller(t, f.Hub, approver).IsAdmin(t).IsGranter(t),
	}
	// This ClusterPermission waits until the subtest Warn.
	a.asks(t, "warned-of")
	t.Run("a pending ClusterPermission is stored and not delivered", a.waits)
	t.Run("dry runs write nothing", a.dryRuns)
	t.Run("users without permission cannot approve", a.refusesApprovers)
	t.Run("an approval applies to one generation", a.approvesOneGeneration)
	t.Run("a later change waits again", a.changeWaits)
	t.Run("users with permission to grant need no approval", a.granterNeedsNone)
	t.Run("approval of roleRefs requires permission to read the role", a.readsRoleRefs)
	t.Run("a change races with an approval", a.races)
	t.Run("kubectl", a.kubectlApproves)
	t.Run("only the server writes the approval", a.ignoresForgeries)
	t.Run("a pending ClusterPermission can be deleted", a.deletes)
	t.Run("a crash delivers nothing", a.outlastsKill)
	t.Run("Enforce", a.enforces)
	t.Run("Warn", a.warns)
	t.Run("Off", a.isOff)
}

// asks creates a ClusterPermission as alice, and checks that it waits for approval.
func (a *approvals) asks(t *testing.T, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	cp := framework.CreatePermission(t, a.alice.OCM, framework.Permission(name))
	a.isPending(t, cp, 1)
	return cp
}

// isPending checks that a generation of a ClusterPermission, written by alice, waits for approval.
func (a *approvals) isPending(t *testing.T, cp *rbacv1alpha1.ClusterPermission, generation int64) {
	t.Helper()
	approval := cp.Status.Approval
	if approval == nil || approval.Pending == nil {
		t.Fatalf("approval of generation %d of %s = %v, want pending", cp.Generation, cp.Name, approval)
	}
	if p := approval.Pending; p.Generation != generation || cp.Generation != generation || p.RequestedBy != author || p.RequestedAt.IsZero() {
		t.Errorf("generation of %s = %d, pending generation = %d by %q at %v, want both %d by %q with a time", cp.Name, cp.Generation, p.Generation, p.RequestedBy, p.RequestedAt, generation, author)
	}
}

// approve approves the given version of a ClusterPermission as a caller.
func approve(ctx context.Context, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) (*rbacv1alpha1.ClusterPermission, error) {
	cp = cp.DeepCopy()
	// Otherwise, status writes of the server could cause a conflict.
	cp.ResourceVersion = ""
	return c.Permissions().UpdateApproval(ctx, cp.Name, cp, metav1.UpdateOptions{})
}

// approved creates a ClusterPermission as alice, and approves it as root. It returns the
// ClusterPermission after the agent has applied it.
func (a *approvals) approved(t *testing.T, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	a.asks(t, name)
	if _, err := approve(t.Context(), a.root, framework.Must(a.GetPermission(t.Context(), name))(t)); err != nil {
		t.Fatal(err)
	}
	return a.Applied(t, name)
}

// says waits until a condition has a status, a reason and an observed generation. It returns the
// message of the condition.
func (a *approvals) says(t *testing.T, name, conditionType string, status metav1.ConditionStatus, reason string, generation int64) string {
	t.Helper()
	var message string
	framework.Eventually(t, fmt.Sprintf("condition %s of ClusterPermission %s is %s with reason %s at generation %d", conditionType, name, status, reason, generation), func(ctx context.Context) error {
		cp, err := a.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(cp.Status.Conditions, conditionType)
		if condition == nil || condition.Status != status || condition.Reason != reason || condition.ObservedGeneration != generation {
			return fmt.Errorf("conditions = %v", cp.Status.Conditions)
		}
		message = condition.Message
		return nil
	})
	return message
}

// change patches the spec of a ClusterPermission as a caller.
func (a *approvals) change(t *testing.T, c *framework.Caller, name, spec string) (*rbacv1alpha1.ClusterPermission, error) {
	t.Helper()
	return c.Permissions().Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
}

// table returns the row of a ClusterPermission in the output of kubectl get.
func (a *approvals) table(t *testing.T, name string) string {
	t.Helper()
	out, err := a.Kubectl(t, "", "-n", framework.Cluster1, "get", "clusterpermission", name, "--no-headers")
	if err != nil {
		t.Fatalf("kubectl get = %v, want nil:\n%s", err, out)
	}
	return out
}

func (a *approvals) waits(t *testing.T) {
	const name = "waits"
	a.alice.Warnings.Take()
	a.asks(t, name)
	warned := strings.Join(a.alice.Warnings.Take(), "\n")
	for _, want := range []string{"not delivered until it is approved", "spec.clusterRole", "spec.roles[0]", "spec.clusterRoleBinding", "spec.roleBindings[0]"} {
		if !strings.Contains(warned, want) {
			t.Errorf("warnings for alice = %q, want %q in them", warned, want)
		}
	}
	if row := a.table(t, name); !strings.Contains(row, "Pending (generation 1 by "+author+")") {
		t.Errorf("row of kubectl get = %s, want Pending by %s", row, author)
	}
	message := a.says(t, name, rbacv1alpha1.ConditionApproved, metav1.ConditionFalse, "ApprovalPending", 1)
	if !strings.Contains(message, "Generation 1 by "+author+" waits for approval") {
		t.Errorf("message of condition Approved = %q, want that generation 1 by %s waits for approval", message, author)
	}
	a.says(t, name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, "ApprovalPending", 1)
	a.notDelivered(t, name)
	if _, err := rendered(t, a.OCM, name); !apierrors.IsNotFound(err) {
		t.Errorf("rendered(%s) = %v, want NotFound", name, err)
	}

	// Alice does not hold the permissions of a ClusterPermission that is not delivered.
	waiting := grantTo("waits-for-alice", a.alice.Subject)
	framework.CreatePermission(t, a.alice.OCM, waiting)
	if again := a.asks(t, "waits-as-well"); again.Status.Approval.Delivered != nil {
		t.Errorf("status.approval.delivered = %v, want nil", again.Status.Approval.Delivered)
	}
}

func (a *approvals) dryRuns(t *testing.T) {
	const name = "dry"
	cp := framework.Must(a.alice.Permissions().Create(t.Context(), framework.Permission(name), metav1.CreateOptions{DryRun: dryRun}))(t)
	a.isPending(t, cp, 1)
	a.notStored(t, name)
	a.asks(t, name)
	stored := framework.Must(a.GetPermission(t.Context(), name))(t)
	stored.ResourceVersion = ""
	answer := framework.Must(a.root.Permissions().UpdateApproval(t.Context(), name, stored, metav1.UpdateOptions{DryRun: dryRun}))(t)
	if answer.Status.Approval == nil || answer.Status.Approval.Approved == nil {
		t.Errorf("approval in the response to a dry run = %v, want approved", answer.Status.Approval)
	}
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), name))(t), 1)
	a.notDelivered(t, name)
}

func (a *approvals) refusesApprovers(t *testing.T) {
	const name = "unapproved"
	a.asks(t, name)
	cp := framework.Must(a.GetPermission(t.Context(), name))(t)
	_, err := approve(t.Context(), a.alice, cp)
	refusedFor(t, err, missingOf(name)...)

	approves := rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions/approval"}, Verbs: []string{"update"}}
	bob := framework.NewCaller(t, a.Hub, "bob-approves")
	bob.May(t, framework.Cluster1, approves)
	_, err = approve(t.Context(), bob, cp)
	refusedFor(t, err, missingOf(name)...)

	binder := framework.NewCaller(t, a.Hub, "binder")
	binder.May(t, framework.Cluster1, approves, mayGrant("bind"))
	_, err = approve(t.Context(), binder, cp)
	refusedFor(t, err, missingOf(name)[:2]...)

	granter := framework.NewCaller(t, a.Hub, "granter")
	granter.May(t, framework.Cluster1, mayGrant("get", "update", "patch", "escalate", "bind"))
	if _, err := approve(t.Context(), granter, cp); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "cannot grant") {
		t.Errorf("approval without update on clusterpermissions/approval = %v, want 403 for that permission", err)
	}

	// A patch or an apply cannot approve, because it does not show that the approver read the spec.
	for _, patch := range []types.PatchType{types.MergePatchType, types.JSONPatchType, types.ApplyPatchType} {
		_, err := a.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Patch(t.Context(), name, patch, []byte(`{}`), metav1.PatchOptions{FieldManager: "test"}, "approval")
		if !apierrors.IsMethodNotSupported(err) {
			t.Errorf("patch of type %s on the approval = %v, want 405", patch, err)
		}
	}
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), name))(t), 1)
	a.notDelivered(t, name)
}

func (a *approvals) approvesOneGeneration(t *testing.T) {
	const name = "approved"
	a.asks(t, name)
	first := framework.Must(a.GetPermission(t.Context(), name))(t)
	a.isPending(t, framework.Must(a.change(t, a.alice, name, `{"clusterRoleBinding":{"subject":{"name":"carol"}}}`))(t), 2)
	if _, err := approve(t.Context(), a.root, first); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "approves generation 1") {
		t.Errorf("approval of generation 1 = %v, want 409", err)
	}
	second := framework.Must(a.GetPermission(t.Context(), name))(t)
	without := second.DeepCopy()
	without.Generation = 0
	if _, err := approve(t.Context(), a.root, without); !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), []string{"metadata.generation"}) {
		t.Errorf("approval without generation = %v, want 422 for metadata.generation", err)
	}
	without.UID = ""
	if _, err := approve(t.Context(), a.root, without); !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), []string{"metadata.generation", "metadata.uid"}) {
		t.Errorf("approval without UID and generation = %v, want 422 for both", err)
	}
	other := second.DeepCopy()
	other.UID = "00000000-0000-0000-0000-000000000000"
	if _, err := approve(t.Context(), a.root, other); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "deleted and created again") {
		t.Errorf("approval with another UID = %v, want 409", err)
	}
	edited := second.DeepCopy()
	edited.Spec.ClusterRoleBinding.Subject = framework.UserSubject("mallory")
	if _, err := approve(t.Context(), a.root, edited); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "differs from the stored spec") {
		t.Errorf("approval with an edited spec = %v, want 409", err)
	}
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), name))(t), 2)
	a.notDelivered(t, name)

	watcher := framework.Must(a.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Watch(t.Context(), metav1.ListOptions{
		ResourceVersion: second.ResourceVersion, FieldSelector: "metadata.name=" + name,
	}))(t)
	defer watcher.Stop()
	// The server ignores all other fields of the request.
	forged := second.DeepCopy()
	forged.Labels = map[string]string{"forged": "true"}
	long := metav1.Unix(1, 0)
	forged.Status.Approval = &rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 99, ApprovedBy: "mallory", ApprovedAt: long}}
	answer := framework.Must(approve(t.Context(), a.root, forged))(t)
	for title, cp := range map[string]*rbacv1alpha1.ClusterPermission{"response": answer, "stored object": framework.Must(a.GetPermission(t.Context(), name))(t)} {
		if !equality.Semantic.DeepEqual(cp.Spec, second.Spec) || cp.Generation != 2 || len(cp.Labels) > 0 {
			t.Errorf("%s: generation = %d, labels = %v, spec = %v, want generation 2, no labels and the approved spec", title, cp.Generation, cp.Labels, cp.Spec)
		}
		approval := cp.Status.Approval
		if approval == nil || approval.Approved == nil || approval.Pending != nil || approval.Delivered != nil {
			t.Fatalf("%s: approval = %v, want approved only", title, approval)
		}
		if by := approval.Approved; by.Generation != 2 || by.ApprovedBy != approver || by.ApprovedAt.IsZero() || by.ApprovedAt.Equal(&long) {
			t.Errorf("%s: approved by %q, generation = %d, at %v, want %q, generation 2, at the time of the request", title, by.ApprovedBy, by.Generation, by.ApprovedAt, approver)
		}
	}
	framework.Eventually(t, "the watch returns the approved ClusterPermission", func(ctx context.Context) error {
		select {
		case event := <-watcher.ResultChan():
			cp, _ := event.Object.(*rbacv1alpha1.ClusterPermission)
			if event.Type != watch.Modified || cp == nil || cp.Status.Approval == nil || cp.Status.Approval.Approved == nil {
				return fmt.Errorf("event = %s of %v, want MODIFIED with an approval", event.Type, cp)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	a.Applied(t, name)
	a.Present(t, framework.ObjectsOf(name)...)
	a.says(t, name, rbacv1alpha1.ConditionApproved, metav1.ConditionTrue, "Approved", 2)
	if row := a.table(t, name); !strings.Contains(row, "By "+approver) {
		t.Errorf("row of kubectl get = %s, want By %s", row, approver)
	}
	a.binds(t, name, "carol")

	// A repeated approval by any approver changes nothing.
	again, err := approve(t.Context(), a.root, answer)
	if err != nil || !again.Status.Approval.Approved.ApprovedAt.Equal(&answer.Status.Approval.Approved.ApprovedAt) {
		t.Errorf("second approval = %v, error %v, want the same approvedAt", again.Status.Approval, err)
	}
}

// binds waits until the ClusterRoleBinding on the managed cluster has one subject.
func (a *approvals) binds(t *testing.T, name, subject string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("ClusterRoleBinding %s binds %s only", name, subject), func(ctx context.Context) error {
		binding, err := a.ManagedClient.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		if err == nil && (len(binding.Subjects) != 1 || binding.Subjects[0].Name != subject) {
			err = fmt.Errorf("subjects = %v", binding.Subjects)
		}
		return err
	})
}

// kubectlApproves checks the documented commands: kubectl replace sends the object that kubectl get
// has returned.
func (a *approvals) kubectlApproves(t *testing.T) {
	const name = "by-kubectl"
	const path = "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + framework.Cluster1 + "/clusterpermissions/" + name + "/approval"
	a.asks(t, name)
	a.says(t, name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, "ApprovalPending", 1)
	seen, err := a.root.Kubectl(t, "", "-n", framework.Cluster1, "get", "clusterpermission", name, "-o", "json")
	if err != nil {
		t.Fatalf("kubectl get by root = %v, want nil:\n%s", err, seen)
	}
	if out, err := a.alice.Kubectl(t, seen, "replace", "--raw", path, "-f", "-"); err == nil || !strings.Contains(out, "cannot grant") {
		t.Errorf("kubectl replace by alice = %v, want \"cannot grant\" in:\n%s", err, out)
	}
	if out, err := a.root.Kubectl(t, seen, "replace", "--raw", path, "-f", "-"); err != nil {
		t.Fatalf("kubectl replace by root = %v, want nil:\n%s", err, out)
	}
	a.Applied(t, name)
	if row := a.table(t, name); !strings.Contains(row, "By "+approver) {
		t.Errorf("row of kubectl get = %s, want By %s", row, approver)
	}
}

// ignoresForgeries checks that writes of the status by users do not change the approval. Only the
// server writes the approval.
func (a *approvals) ignoresForgeries(t *testing.T) {
	const name = "forged"
	a.asks(t, name)
	forger := framework.NewCaller(t, a.Hub, "forger").IsAdmin(t)
	forger.May(t, framework.Cluster1, rbacv1.PolicyRule{
		APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions/status"}, Verbs: []string{"update", "patch"},
	})
	const approved = `{"generation":1,"approvedBy":"mallory","approvedAt":"2020-01-01T00:00:00Z"}`
	for title, content := range map[string]string{
		"nothing":   `{"status":{"approval":null}}`,
		"approved":  `{"status":{"approval":{"pending":null,"approved":` + approved + `}}}`,
		"delivered": `{"status":{"approval":{"delivered":{"generation":1,"spec":` + string(framework.Must(json.Marshal(framework.Permission(name).Spec))(t)) + `}}}}`,
		"requester": `{"status":{"approval":{"pending":{"requestedBy":"mallory"}}}}`,
	} {
		for _, subresources := range [][]string{nil, {"status"}} {
			cp, err := forger.Permissions().Patch(t.Context(), name, types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresources...)
			if err != nil {
				t.Errorf("patch of %v with %s = %v, want nil", subresources, title, err)
				continue
			}
			a.isPending(t, cp, 1)
			if cp.Status.Approval.Approved != nil || cp.Status.Approval.Delivered != nil {
				t.Errorf("approval after a patch of %v with %s = %v, want pending only", subresources, title, cp.Status.Approval)
			}
		}
	}
	applied := fmt.Sprintf(`{"apiVersion":%q,"kind":"ClusterPermission","metadata":{"name":%q},"status":{"approval":{"approved":%s}}}`,
		rbacv1alpha1.SchemeGroupVersion.String(), name, approved)
	cp := framework.Must(forger.Permissions().Patch(t.Context(), name, types.ApplyPatchType, []byte(applied),
		metav1.PatchOptions{FieldManager: "forger", Force: &forced}, "status"))(t)
	a.isPending(t, cp, 1)
	created := framework.Permission("forged-created")
	created.Status.Approval = &rbacv1alpha1.Approval{
		Approved:  &rbacv1alpha1.ApprovedGeneration{Generation: 1, ApprovedBy: approver, ApprovedAt: metav1.Now()},
		Delivered: &rbacv1alpha1.DeliveredGeneration{Generation: 1, Spec: created.Spec},
	}
	cp = framework.CreatePermission(t, a.alice.OCM, created)
	if a.isPending(t, cp, 1); cp.Status.Approval.Approved != nil || cp.Status.Approval.Delivered != nil {
		t.Errorf("approval of a new object = %v, want pending only", cp.Status.Approval)
	}
	// A change of metadata by an approver does not approve the spec either.
	framework.Must(a.root.Permissions().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}))(t)
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), name))(t), 1)
	a.notDelivered(t, name)
}

func (a *approvals) deletes(t *testing.T) {
	const name = "deleted"
	a.asks(t, name)
	if err := a.alice.Permissions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ClusterPermission "+name+" does not exist", func(ctx context.Context) error {
		_, err := a.GetPermission(ctx, name)
		return framework.IsGone(err)
	})
	_, err := approve(t.Context(), a.root, &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: name, Generation: 1}})
	if !apierrors.IsNotFound(err) {
		t.Errorf("approval of a deleted ClusterPermission = %v, want 404", err)
	}
	const delivered = "deleted-later"
	a.approved(t, delivered)
	a.isPending(t, framework.Must(a.change(t, a.alice, delivered, `{"clusterRoleBinding":{"subject":{"name":"carol"}}}`))(t), 2)
	if err := a.alice.Permissions().Delete(t.Context(), delivered, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.Absent(t, framework.ObjectsOf(delivered)...)
	a.NoWorks(t, delivered)
}

// restart kills the server, and starts it again with an escalation mode.
func (a *approvals) restart(t *testing.T, mode string) {
	t.Helper()
	if err := a.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	a.Server.Args = append(slices.Clone(a.Server.Args), escalationFlag+mode)
	if err := a.Server.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the hub serves ClusterPermissions again", func(ctx context.Context) error {
		_, alice := a.alice.Permissions().List(ctx, metav1.ListOptions{})
		_, works := a.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(ctx, metav1.ListOptions{})
		return errors.Join(alice, works)
	})
}

func (a *approvals) outlastsKill(t *testing.T) {
	const never, later = "killed", "killed-later"
	a.asks(t, never)
	base := a.approved(t, later)
	work := framework.Must(a.GetWork(t.Context(), base))(t)
	a.isPending(t, framework.Must(a.change(t, a.alice, later, `{"clusterRoleBinding":{"subject":{"name":"carol"}}}`))(t), 2)
	a.restart(t, "Approve")
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), never))(t), 1)
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), later))(t), 2)
	a.notDelivered(t, never)
	if again := framework.Must(a.GetWork(t.Context(), base))(t); again.Generation != work.Generation {
		t.Errorf("generation of the ManifestWork = %d, want %d", again.Generation, work.Generation)
	}
	a.binds(t, later, "alice")
	if _, err := approve(t.Context(), a.root, framework.Must(a.GetPermission(t.Context(), later))(t)); err != nil {
		t.Fatal(err)
	}
	a.binds(t, later, "carol")
}
