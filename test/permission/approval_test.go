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
	// author and approver are users that no permission of a test is for.
	author, approver = "alice-asks", "root-approves"
)

// approvals is a fleet whose server makes wait what its author may not grant.
type approvals struct {
	*fleet
	// alice administers the namespace of the cluster; root may grant anything, too.
	alice, root *framework.Caller
}

// TestApproval goes through what an author, those who may approve and those who
// may not do to ClusterPermissions that wait.
func TestApproval(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}, APIServerArgs: []string{escalationFlag + "Approve"}})
	a := &approvals{
		fleet: f,
		alice: framework.NewCaller(t, f.Hub, author).IsAdmin(t),
		root:  framework.NewCaller(t, f.Hub, approver).IsAdmin(t).IsGranter(t),
	}
	// This one waits until the server warns only.
	a.asks(t, "warned-of")
	t.Run("what waits is stored and not delivered", a.waits)
	t.Run("dry runs write nothing", a.dryRuns)
	t.Run("who may not approve", a.refusesApprovers)
	t.Run("one generation is approved", a.approvesOneGeneration)
	t.Run("a later change waits again", a.changeWaits)
	t.Run("who may grant needs no approval", a.granterNeedsNone)
	t.Run("roles of the hub are read by approvers, too", a.readsRoleRefs)
	t.Run("a change races with an approval", a.races)
	t.Run("kubectl", a.kubectlApproves)
	t.Run("nobody else writes the approval", a.ignoresForgeries)
	t.Run("what waits can be deleted", a.deletes)
	t.Run("a crash delivers nothing", a.outlastsKill)
	t.Run("Enforce", a.enforces)
	t.Run("Warn", a.warns)
	t.Run("Off", a.isOff)
}

// asks creates a ClusterPermission as alice, which waits from then on.
func (a *approvals) asks(t *testing.T, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	cp := framework.CreatePermission(t, a.alice.OCM, framework.Permission(name))
	a.isPending(t, cp, 1)
	return cp
}

// isPending checks that a generation waits which alice has written.
func (a *approvals) isPending(t *testing.T, cp *rbacv1alpha1.ClusterPermission, generation int64) {
	t.Helper()
	approval := cp.Status.Approval
	if approval == nil || approval.Pending == nil {
		t.Fatalf("generation %d of %s does not wait: %v", cp.Generation, cp.Name, approval)
	}
	if p := approval.Pending; p.Generation != generation || cp.Generation != generation || p.RequestedBy != author || p.RequestedAt.IsZero() {
		t.Errorf("of generation %d of %s, %d by %q at %v waits", cp.Generation, cp.Name, p.Generation, p.RequestedBy, p.RequestedAt)
	}
}

// approve approves a ClusterPermission as it was read.
func approve(ctx context.Context, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) (*rbacv1alpha1.ClusterPermission, error) {
	cp = cp.DeepCopy()
	// The server's own reports must not be in the way.
	cp.ResourceVersion = ""
	return c.Permissions().UpdateApproval(ctx, cp.Name, cp, metav1.UpdateOptions{})
}

// approved is what root has approved, once it is on the managed cluster.
func (a *approvals) approved(t *testing.T, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	a.asks(t, name)
	if _, err := approve(t.Context(), a.root, framework.Must(a.GetPermission(t.Context(), name))(t)); err != nil {
		t.Fatal(err)
	}
	return a.Applied(t, name)
}

// says waits for a condition that observes a generation.
func (a *approvals) says(t *testing.T, name, conditionType string, status metav1.ConditionStatus, reason string, generation int64) string {
	t.Helper()
	var message string
	framework.Eventually(t, fmt.Sprintf("%s of %s is %s for %s", conditionType, name, status, reason), func(ctx context.Context) error {
		cp, err := a.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(cp.Status.Conditions, conditionType)
		if condition == nil || condition.Status != status || condition.Reason != reason || condition.ObservedGeneration != generation {
			return fmt.Errorf("the conditions are %v", cp.Status.Conditions)
		}
		message = condition.Message
		return nil
	})
	return message
}

// change writes a change of the spec as some caller.
func (a *approvals) change(t *testing.T, c *framework.Caller, name, spec string) (*rbacv1alpha1.ClusterPermission, error) {
	t.Helper()
	return c.Permissions().Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
}

// table is the row of kubectl get.
func (a *approvals) table(t *testing.T, name string) string {
	t.Helper()
	out, err := a.Kubectl(t, "", "-n", framework.Cluster1, "get", "clusterpermission", name, "--no-headers")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

func (a *approvals) waits(t *testing.T) {
	const name = "waits"
	a.alice.Warnings.Take()
	a.asks(t, name)
	warned := strings.Join(a.alice.Warnings.Take(), "\n")
	for _, want := range []string{"not delivered before it is approved", "spec.clusterRole", "spec.roles[0]", "spec.clusterRoleBinding", "spec.roleBindings[0]"} {
		if !strings.Contains(warned, want) {
			t.Errorf("alice is not warned of %q, but: %q", want, warned)
		}
	}
	if row := a.table(t, name); !strings.Contains(row, "Pending (generation 1 by "+author+")") {
		t.Errorf("kubectl get shows %s", row)
	}
	message := a.says(t, name, rbacv1alpha1.ConditionApproved, metav1.ConditionFalse, "ApprovalPending", 1)
	if !strings.Contains(message, "Generation 1 by "+author+" waits for approval") {
		t.Errorf("the condition says %q", message)
	}
	a.says(t, name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, "ApprovalPending", 1)
	a.notDelivered(t, name)
	if _, err := rendered(t, a.OCM, name); !apierrors.IsNotFound(err) {
		t.Errorf("what waits is rendered as if it were delivered: %v", err)
	}

	// Of what others may grant, nothing is held before it is delivered.
	waiting := grantTo("waits-for-alice", a.alice.Subject)
	framework.CreatePermission(t, a.alice.OCM, waiting)
	if again := a.asks(t, "waits-as-well"); again.Status.Approval.Delivered != nil {
		t.Errorf("something is said to be delivered: %v", again.Status.Approval.Delivered)
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
		t.Errorf("a dry run does not show the approval: %v", answer.Status.Approval)
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
	if _, err := approve(t.Context(), granter, cp); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "may not grant") {
		t.Errorf("who may not update clusterpermissions/approval: got %v, not 403", err)
	}

	// What nobody has seen is not approved: there is nothing to patch or apply.
	for _, patch := range []types.PatchType{types.MergePatchType, types.JSONPatchType, types.ApplyPatchType} {
		_, err := a.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Patch(t.Context(), name, patch, []byte(`{}`), metav1.PatchOptions{FieldManager: "test"}, "approval")
		if !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s: got %v, not 405", patch, err)
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
	if _, err := approve(t.Context(), a.root, first); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "generation 1 was to be approved") {
		t.Errorf("a former generation: got %v, not 409", err)
	}
	second := framework.Must(a.GetPermission(t.Context(), name))(t)
	without := second.DeepCopy()
	without.Generation = 0
	if _, err := approve(t.Context(), a.root, without); !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), []string{"metadata.generation"}) {
		t.Errorf("no generation: got %v, not 422", err)
	}
	without.UID = ""
	if _, err := approve(t.Context(), a.root, without); !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), []string{"metadata.generation", "metadata.uid"}) {
		t.Errorf("neither UID nor generation: got %v, not 422", err)
	}
	other := second.DeepCopy()
	other.UID = "00000000-0000-0000-0000-000000000000"
	if _, err := approve(t.Context(), a.root, other); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "deleted and made again") {
		t.Errorf("another object of that name: got %v, not 409", err)
	}
	edited := second.DeepCopy()
	edited.Spec.ClusterRoleBinding.Subject = framework.UserSubject("mallory")
	if _, err := approve(t.Context(), a.root, edited); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "approved as it is, or not at all") {
		t.Errorf("a spec that was edited after it was read: got %v, not 409", err)
	}
	a.isPending(t, framework.Must(a.GetPermission(t.Context(), name))(t), 2)
	a.NoWorks(t, name)

	watcher := framework.Must(a.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Watch(t.Context(), metav1.ListOptions{
		ResourceVersion: second.ResourceVersion, FieldSelector: "metadata.name=" + name,
	}))(t)
	defer watcher.Stop()
	// Nothing else counts of what is put.
	forged := second.DeepCopy()
	forged.Labels = map[string]string{"forged": "true"}
	long := metav1.Unix(1, 0)
	forged.Status.Approval = &rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 99, ApprovedBy: "mallory", ApprovedAt: long}}
	answer := framework.Must(approve(t.Context(), a.root, forged))(t)
	for title, cp := range map[string]*rbacv1alpha1.ClusterPermission{"the answer": answer, "what is stored": framework.Must(a.GetPermission(t.Context(), name))(t)} {
		if !equality.Semantic.DeepEqual(cp.Spec, second.Spec) || cp.Generation != 2 || len(cp.Labels) > 0 {
			t.Errorf("%s has changed: generation %d, labels %v, %v", title, cp.Generation, cp.Labels, cp.Spec)
		}
		approval := cp.Status.Approval
		if approval == nil || approval.Approved == nil || approval.Pending != nil || approval.Delivered != nil {
			t.Fatalf("%s says of the approval: %v", title, approval)
		}
		if by := approval.Approved; by.Generation != 2 || by.ApprovedBy != approver || by.ApprovedAt.IsZero() || by.ApprovedAt.Equal(&long) {
			t.Errorf("%s says that %q approved generation %d at %v", title, by.ApprovedBy, by.Generation, by.ApprovedAt)
		}
	}
	framework.Eventually(t, "a watcher sees the approval", func(ctx context.Context) error {
		select {
		case event := <-watcher.ResultChan():
			cp, _ := event.Object.(*rbacv1alpha1.ClusterPermission)
			if event.Type != watch.Modified || cp == nil || cp.Status.Approval == nil || cp.Status.Approval.Approved == nil {
				return fmt.Errorf("%s of %v", event.Type, cp)
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
		t.Errorf("kubectl get shows %s", row)
	}
	a.binds(t, name, "carol")

	// Approving again changes nothing, whoever does it.
	again, err := approve(t.Context(), a.root, answer)
	if err != nil || !again.Status.Approval.Approved.ApprovedAt.Equal(&answer.Status.Approval.Approved.ApprovedAt) {
		t.Errorf("approving again: %v, %v", again.Status.Approval, err)
	}
}

// binds waits until the ClusterRoleBinding on the managed cluster has one subject.
func (a *approvals) binds(t *testing.T, name, subject string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s binds %s", name, subject), func(ctx context.Context) error {
		binding, err := a.ManagedClient.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		if err == nil && (len(binding.Subjects) != 1 || binding.Subjects[0].Name != subject) {
			err = fmt.Errorf("it binds %v", binding.Subjects)
		}
		return err
	})
}

// kubectlApproves is the documented way: what was read is put.
func (a *approvals) kubectlApproves(t *testing.T) {
	const name = "by-kubectl"
	const path = "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + framework.Cluster1 + "/clusterpermissions/" + name + "/approval"
	a.asks(t, name)
	a.says(t, name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, "ApprovalPending", 1)
	seen, err := a.root.Kubectl(t, "", "-n", framework.Cluster1, "get", "clusterpermission", name, "-o", "json")
	if err != nil {
		t.Fatalf("%v\n%s", err, seen)
	}
	if out, err := a.alice.Kubectl(t, seen, "replace", "--raw", path, "-f", "-"); err == nil || !strings.Contains(out, "may not grant") {
		t.Errorf("alice approves: %v\n%s", err, out)
	}
	if out, err := a.root.Kubectl(t, seen, "replace", "--raw", path, "-f", "-"); err != nil {
		t.Fatalf("root approves: %v\n%s", err, out)
	}
	a.Applied(t, name)
	if row := a.table(t, name); !strings.Contains(row, "By "+approver) {
		t.Errorf("kubectl get shows %s", row)
	}
}

// ignoresForgeries: a status is written by the server and by whoever may write it;
// the approval by the server alone.
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
				t.Errorf("%s: %v", title, err)
				continue
			}
			a.isPending(t, cp, 1)
			if cp.Status.Approval.Approved != nil || cp.Status.Approval.Delivered != nil {
				t.Errorf("%s by %v: %v", title, subresources, cp.Status.Approval)
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
		t.Errorf("a new object brings its approval: %v", cp.Status.Approval)
	}
	// Neither does a change of anything but the spec.
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
	framework.Eventually(t, "it is gone", func(ctx context.Context) error {
		_, err := a.GetPermission(ctx, name)
		return framework.IsGone(err)
	})
	_, err := approve(t.Context(), a.root, &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: name, Generation: 1}})
	if !apierrors.IsNotFound(err) {
		t.Errorf("approving what is gone: got %v, not 404", err)
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

// restart starts the server again, as after a crash, with a mode.
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
		t.Errorf("the work has changed: generation %d", again.Generation)
	}
	a.binds(t, later, "alice")
	if _, err := approve(t.Context(), a.root, framework.Must(a.GetPermission(t.Context(), later))(t)); err != nil {
		t.Fatal(err)
	}
	a.binds(t, later, "carol")
}
