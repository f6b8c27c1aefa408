package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// changeWaits checks that a change of an approved ClusterPermission waits for approval, and that the
// approved generation stays delivered.
func (a *approvals) changeWaits(t *testing.T) {
	const name = "changed"
	base := a.approved(t, name)
	work := framework.Must(a.GetWork(t.Context(), base))(t)
	stays := func(generation int64) {
		t.Helper()
		message := a.says(t, name, rbacv1alpha1.ConditionApproved, metav1.ConditionFalse, "ApprovalPending", generation)
		if !strings.Contains(message, fmt.Sprintf("Generation %d by %s waits", generation, author)) || !strings.Contains(message, "Generation 1 stays delivered") {
			t.Errorf("message of condition Approved = %q, want generation %d waiting and generation 1 delivered", message, generation)
		}
		a.says(t, name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue, "AppliedManifestWorkComplete", 1)
		a.passes(t, fmt.Sprintf("changed-marker-%d", generation))
		sameSpec(t, "the rendering", framework.Must(rendered(t, a.OCM, name))(t), work)
		if again := framework.Must(a.GetWork(t.Context(), base))(t); again.Generation != work.Generation {
			t.Errorf("generation of the ManifestWork = %d, want %d", again.Generation, work.Generation)
		}
		a.binds(t, name, "alice")
	}
	more := `{"clusterRole":{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}}`
	cp := framework.Must(a.change(t, a.alice, name, more))(t)
	a.isPending(t, cp, 2)
	delivered := cp.Status.Approval.Delivered
	if delivered == nil || delivered.Generation != 1 || !equality.Semantic.DeepEqual(delivered.Spec, base.Spec) {
		t.Errorf("status.approval.delivered = %v, want generation 1 with its spec", delivered)
	}
	stays(2)
	// A later change is compared with the delivered spec, not with the pending one.
	a.isPending(t, framework.Must(a.change(t, a.alice, name, `{"validate":true}`))(t), 3)
	stays(3)
	a.isPending(t, framework.Must(a.change(t, a.alice, name, `{"roleBindings":null,"roles":null}`))(t), 4)
	stays(4)
	if cp := framework.Must(a.GetPermission(t.Context(), name))(t); cp.Status.Approval.Approved == nil || cp.Status.Approval.Approved.Generation != 1 {
		t.Errorf("approval = %v, want generation 1 approved", cp.Status.Approval)
	}

	back := framework.Must(a.GetPermission(t.Context(), name))(t)
	back.Spec, back.ResourceVersion = base.Spec, ""
	content := framework.Must(json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": back.Spec}}))(t)
	cp = framework.Must(a.alice.Permissions().Patch(t.Context(), name, types.JSONPatchType, content, metav1.PatchOptions{}))(t)
	if cp.Status.Approval != nil && (cp.Status.Approval.Pending != nil || cp.Status.Approval.Delivered != nil) {
		t.Errorf("approval after a return to the approved spec = %v, want neither pending nor delivered", cp.Status.Approval)
	}
	if cp := a.Applied(t, name); meta.FindStatusCondition(cp.Status.Conditions, rbacv1alpha1.ConditionRBACManifestWorkCreated).ObservedGeneration != 5 {
		t.Errorf("conditions = %v, want RBACManifestWorkCreated at generation 5", cp.Status.Conditions)
	}
	// Removing permissions requires no approval. Adding them again does.
	if cp := framework.Must(a.change(t, a.alice, name, `{"roleBindings":null,"roles":null}`))(t); cp.Status.Approval != nil && cp.Status.Approval.Pending != nil {
		t.Errorf("approval after a removal of permissions = %v, want not pending", cp.Status.Approval)
	}
	a.Absent(t, framework.ObjectsOf(name)[2:]...)
	a.isPending(t, framework.Must(a.alice.Permissions().Patch(t.Context(), name, types.JSONPatchType, content, metav1.PatchOptions{}))(t), 7)
}

func (a *approvals) granterNeedsNone(t *testing.T) {
	const name = "granted"
	a.root.Warnings.Take()
	if cp := framework.CreatePermission(t, a.root.OCM, framework.Permission(name)); cp.Status.Approval != nil {
		t.Errorf("approval of a ClusterPermission by root = %v, want nil", cp.Status.Approval)
	}
	a.Applied(t, name)
	a.isPending(t, framework.Must(a.change(t, a.alice, name, `{"clusterRoleBinding":{"subject":{"name":"mallory"}}}`))(t), 2)
	// root may not have read the pending spec that its patch changes. So the patch waits for approval,
	// too.
	cp := framework.Must(a.change(t, a.root, name, `{"clusterRoleBinding":{"subject":{"name":"carol"}}}`))(t)
	if waiting := cp.Status.Approval; waiting == nil || waiting.Pending == nil || waiting.Pending.Generation != 3 || waiting.Pending.RequestedBy != approver {
		t.Fatalf("approval after a patch of a pending spec by root = %v, want generation 3 pending by %s", waiting, approver)
	}
	if texts := a.root.Warnings.Take(); len(texts) != 1 || !strings.Contains(texts[0], "not delivered until it is approved") {
		t.Errorf("warnings for root = %q, want one that the change waits for approval", texts)
	}
	a.binds(t, name, "alice")
	if _, err := approve(t.Context(), a.root, cp); err != nil {
		t.Fatal(err)
	}
	a.binds(t, name, "carol")
	if cp := a.Applied(t, name); cp.Status.Approval.Approved == nil || cp.Status.Approval.Approved.Generation != 3 {
		t.Errorf("approval = %v, want generation 3 approved", cp.Status.Approval)
	}
	// No spec is pending now, so a change by root requires no approval.
	if cp := framework.Must(a.change(t, a.root, name, `{"clusterRoleBinding":{"subject":{"name":"dave"}}}`))(t); cp.Status.Approval.Pending != nil {
		t.Errorf("approval after a patch by root = %v, want not pending", cp.Status.Approval)
	}
	a.binds(t, name, "dave")

	// A caller who holds the granted permissions requires no approval either.
	const source = "granted-to-author"
	framework.CreatePermission(t, a.root.OCM, grantTo(source, a.alice.Subject))
	a.Applied(t, source)
	framework.Eventually(t, author+" holds the delivered permissions", func(ctx context.Context) error {
		cp, err := a.alice.Permissions().Create(ctx, framework.Permission("granted-on"), metav1.CreateOptions{DryRun: dryRun})
		if err == nil && cp.Status.Approval != nil {
			err = errors.New("approval = pending, want nil")
		}
		return err
	})
	framework.CreatePermission(t, a.alice.OCM, framework.Permission("granted-on"))
	a.Applied(t, "granted-on")
	if err := a.root.Permissions().Delete(t.Context(), source, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, author+" no longer holds the deleted permissions", func(ctx context.Context) error {
		cp, err := a.alice.Permissions().Create(ctx, framework.Permission("granted-no-more"), metav1.CreateOptions{DryRun: dryRun})
		if err == nil && cp.Status.Approval == nil {
			err = errors.New("approval = nil, want pending")
		}
		return err
	})
}

// readsRoleRefs checks that an approval of roleRefs requires permission to read the role.
func (a *approvals) readsRoleRefs(t *testing.T) {
	const name, role = "refers-and-waits", "integration-role-that-waits"
	a.hubRole(t, role, framework.ReadPods...)
	get := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{role}, Verbs: []string{"get"}}
	reader, both := framework.NewCaller(t, a.Hub, "reads-and-asks").IsAdmin(t), framework.NewCaller(t, a.Hub, "reads-and-approves").IsAdmin(t).IsGranter(t)
	a.mayGet(t, reader, "integration-reads-and-asks", get)
	a.mayGet(t, both, "integration-reads-and-approves", get)
	cp := framework.CreatePermission(t, reader.OCM, refersTo(name, role))
	if cp.Status.Approval == nil || cp.Status.Approval.Pending == nil {
		t.Fatalf("approval = %v, want pending", cp.Status.Approval)
	}
	if _, err := approve(t.Context(), a.root, cp); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), role) {
		t.Errorf("approval without get on the role = %v, want 403", err)
	}
	if _, err := approve(t.Context(), both, cp); err != nil {
		t.Fatal(err)
	}
	a.Applied(t, name)
	a.Present(t, framework.NewObject("ClusterRole", "", role))
}

// races checks that the delivered spec is the approved one, even if the author changes the spec at
// the same time.
func (a *approvals) races(t *testing.T) {
	const name = "raced"
	a.asks(t, name)
	const rounds = 20
	approvals := 0
	for round := range rounds {
		subject := fmt.Sprintf(`{"clusterRoleBinding":{"subject":{"name":"round-%d`, round)
		framework.Must(a.change(t, a.alice, name, subject+`-seen"}}}`))(t)
		seen := framework.Must(a.GetPermission(t.Context(), name))(t)
		var err, errChange error
		approves := func() { _, err = approve(t.Context(), a.root, seen) }
		changes := func() { _, errChange = a.change(t, a.alice, name, subject+`-unseen"}}}`) }
		// The first approval comes before the change, and the second one after it. The others race.
		switch round {
		case 0:
			approves()
			changes()
		case 1:
			changes()
			approves()
		default:
			var wg sync.WaitGroup
			wg.Go(changes)
			approves()
			wg.Wait()
		}
		if errChange != nil {
			t.Fatal(errChange)
		}
		now := framework.Must(a.GetPermission(t.Context(), name))(t)
		delivered, generation := now.Delivered()
		switch {
		case apierrors.IsConflict(err) && generation >= seen.Generation:
			t.Fatalf("round %d: delivered generation = %d after a conflict, want one before %d: %v", round, generation, seen.Generation, err)
		case apierrors.IsConflict(err):
		case err != nil:
			t.Fatal(err)
		case generation != seen.Generation || !equality.Semantic.DeepEqual(*delivered, seen.Spec):
			t.Fatalf("round %d: delivered generation = %d with spec %v, want the approved generation %d", round, generation, delivered, seen.Generation)
		default:
			approvals++
			a.binds(t, name, fmt.Sprintf("round-%d-seen", round))
		}
		a.isPending(t, now, seen.Generation+1)
	}
	if approvals == 0 || approvals == rounds {
		t.Errorf("approvals before the change = %d of %d, want some and not all", approvals, rounds)
	}
}
