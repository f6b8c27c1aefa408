package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/retry"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// approvalRaces contains an author and an approver with clients of two replicas of the server.
type approvalRaces struct {
	*fleet
	cluster string
	// alice and root contain one client for each replica.
	alice, root []rbacclient.ClusterPermissionInterface

	mu sync.Mutex
	// approved contains the subjects of the specs that root has read and tried to approve.
	approved sets.Set[string]
	// delivered contains the subjects of all ManifestWorks of the cluster at any time.
	delivered sets.Set[string]
}

// TestApprovalRaces checks that no ManifestWork ever delivers a spec that the approver has not
// approved, even if other requests change the object between the read and the approval.
func TestApprovalRaces(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := &approvalRaces{fleet: f, cluster: f.SilentCluster(t), approved: sets.New[string](), delivered: sets.New[string]()}
	alice, root := framework.NewCaller(t, f.Hub, "racing-author"), framework.NewCaller(t, f.Hub, "racing-approver")
	for c, roles := range map[*framework.Caller][]string{alice: {"admin"}, root: {"admin", framework.GrantRole}} {
		for _, role := range roles {
			c.Bind(t, a.cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role})
		}
		c.AwaitAllowed(t, a.cluster, mayGrant("create"))
	}
	root.AwaitAllowed(t, a.cluster, mayGrant("escalate", "bind"))
	servers := f.StartServers(t, []string{escalationFlag + "Approve"}, []string{escalationFlag + "Approve"})
	for _, server := range servers {
		a.alice = append(a.alice, alice.At(t, server).RbacV1alpha1().ClusterPermissions(a.cluster))
		a.root = append(a.root, root.At(t, server).RbacV1alpha1().ClusterPermissions(a.cluster))
	}
	a.watch(t)

	t.Run("the spec changes at one replica while it is approved at the other", a.changes)
	t.Run("the object is deleted and created again", a.recreates)
	t.Run("the approver has read an old version", a.stale)
	t.Run("the approver loses the permission", func(t *testing.T) {
		a.losesPermission(t, func(c *framework.Caller) rbacclient.ClusterPermissionInterface {
			return c.At(t, servers[1]).RbacV1alpha1().ClusterPermissions(a.cluster)
		})
	})
	t.Run("the same spec is applied again", a.appliesAgain)
	a.onlyApproved(t)
}

// watch records the subjects of all ManifestWorks of the cluster until the end of the test.
func (a *approvalRaces) watch(t *testing.T) {
	t.Helper()
	list := framework.Must(a.OCM.WorkV1().ManifestWorks(a.cluster).List(t.Context(), metav1.ListOptions{}))(t)
	watcher := framework.Must(a.OCM.WorkV1().ManifestWorks(a.cluster).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion}))(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for event := range watcher.ResultChan() {
			if work, ok := event.Object.(*workv1.ManifestWork); ok {
				a.record(work)
			}
		}
	})
	t.Cleanup(func() {
		watcher.Stop()
		wg.Wait()
	})
}

func (a *approvalRaces) record(work *workv1.ManifestWork) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delivered.Insert(boundBy(work)...)
}

// boundBy returns the subjects of the ClusterRoleBindings in a ManifestWork.
func boundBy(work *workv1.ManifestWork) []string {
	var out []string
	for _, manifest := range work.Spec.Workload.Manifests {
		binding := &rbacv1.ClusterRoleBinding{}
		if err := json.Unmarshal(manifest.Raw, binding); err != nil || binding.Kind != "ClusterRoleBinding" {
			continue
		}
		for _, subject := range binding.Subjects {
			out = append(out, subject.Name)
		}
	}
	return out
}

// onlyApproved checks that all ManifestWorks until now have bound only approved subjects.
func (a *approvalRaces) onlyApproved(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if more := a.delivered.Difference(a.approved); len(more) > 0 {
		t.Errorf("delivered subjects without approval = %v, want none; approved = %v", sets.List(more), sets.List(a.approved))
	}
	if len(a.delivered) == 0 {
		t.Error("delivered subjects = none, want the approved ones")
	}
}

// binding returns a ClusterPermission with one subject in its ClusterRoleBinding.
func (a *approvalRaces) binding(name, subject string) *rbacv1alpha1.ClusterPermission {
	cp := framework.PermissionIn(a.cluster, name)
	cp.Spec.ClusterRoleBinding.Subject = framework.UserSubject(subject)
	return cp
}

func (a *approvalRaces) approve(ctx context.Context, root rbacclient.ClusterPermissionInterface, cp *rbacv1alpha1.ClusterPermission) (*rbacv1alpha1.ClusterPermission, error) {
	a.mu.Lock()
	a.approved.Insert(cp.Spec.ClusterRoleBinding.Subject.Name)
	a.mu.Unlock()
	return root.UpdateApproval(ctx, cp.Name, cp, metav1.UpdateOptions{})
}

// bindsNow waits until the ManifestWork of a ClusterPermission binds a subject.
func (a *approvalRaces) bindsNow(t *testing.T, cp *rbacv1alpha1.ClusterPermission, subject string) {
	t.Helper()
	framework.Eventually(t, "the ManifestWork of ClusterPermission "+cp.Name+" binds "+subject, func(context.Context) error {
		work := a.WorkOf(t, cp)
		a.record(work)
		if bound := boundBy(work); !slices.Equal(bound, []string{subject}) {
			return fmt.Errorf("subjects = %v", bound)
		}
		return nil
	})
}

// waiting checks that a ClusterPermission waits for approval.
func waiting(t *testing.T, cp *rbacv1alpha1.ClusterPermission) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	if cp.Status.Approval == nil || cp.Status.Approval.Pending == nil || cp.Status.Approval.Pending.Generation != cp.Generation {
		t.Fatalf("approval of generation %d of %s = %+v, want pending", cp.Generation, cp.Name, cp.Status.Approval)
	}
	return cp
}

func setSubject(subject string) []byte {
	return fmt.Appendf(nil, `{"spec":{"clusterRoleBinding":{"subject":{"name":%q}}}}`, subject)
}

func (a *approvalRaces) changes(t *testing.T) {
	const name, rounds = "raced-by-replicas", 20
	ctx := t.Context()
	waiting(t, framework.Must(a.alice[0].Create(ctx, a.binding(name, "created"), metav1.CreateOptions{}))(t))
	inTime := 0
	for round := range rounds {
		one, other := round%2, 1-round%2
		changed := fmt.Sprintf("round-%d-changed", round)
		seen := waiting(t, framework.Must(a.alice[one].Patch(ctx, name, types.MergePatchType, setSubject(fmt.Sprintf("round-%d-read", round)), metav1.PatchOptions{}))(t))
		if round%3 == 0 {
			seen.ResourceVersion = ""
		}
		var wg sync.WaitGroup
		var after *rbacv1alpha1.ClusterPermission
		var errChange, errLabel, errApprove error
		wg.Go(func() {
			after, errChange = a.alice[one].Patch(ctx, name, types.MergePatchType, setSubject(changed), metav1.PatchOptions{})
		})
		wg.Go(func() {
			_, errLabel = a.alice[other].Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, round), metav1.PatchOptions{})
		})
		wg.Go(func() { _, errApprove = a.approve(ctx, a.root[other], seen) })
		wg.Wait()
		if err := errors.Join(errChange, errLabel); err != nil {
			t.Fatal(err)
		}
		waiting(t, after)
		now := waiting(t, framework.Must(a.root[other].Get(ctx, name, metav1.GetOptions{}))(t))
		delivered, generation := now.Delivered()
		switch {
		case errApprove == nil && (generation != seen.Generation || delivered.ClusterRoleBinding.Subject.Name != seen.Spec.ClusterRoleBinding.Subject.Name):
			t.Fatalf("round %d: delivered generation = %d, want the approved generation %d", round, generation, seen.Generation)
		case errApprove == nil:
			inTime++
			a.bindsNow(t, now, seen.Spec.ClusterRoleBinding.Subject.Name)
		case !apierrors.IsConflict(errApprove):
			t.Fatal(errApprove)
		case generation >= seen.Generation:
			t.Fatalf("round %d: delivered generation = %d after a conflict, want one before %d: %v", round, generation, seen.Generation, errApprove)
		}
	}
	t.Logf("%d of %d approvals were before the change", inTime, rounds)
	// Two requests approve the last pending generation at once, one at each replica.
	last := framework.Must(a.root[0].Get(ctx, name, metav1.GetOptions{}))(t)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() { _, errs[i] = a.approve(ctx, a.root[i], last) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	a.bindsNow(t, last, last.Spec.ClusterRoleBinding.Subject.Name)
}

func (a *approvalRaces) recreates(t *testing.T) {
	ctx := t.Context()
	for round := range 10 {
		name := fmt.Sprintf("recreated-%d", round)
		read := waiting(t, framework.Must(a.alice[0].Create(ctx, a.binding(name, name+"-read"), metav1.CreateOptions{}))(t))
		var wg sync.WaitGroup
		var created *rbacv1alpha1.ClusterPermission
		var errCreate, errApprove error
		wg.Go(func() {
			errCreate = a.alice[0].Delete(ctx, name, metav1.DeleteOptions{})
			if errCreate != nil {
				return
			}
			// A delivered object exists until its finalizer is removed.
			errCreate = await.Poll(ctx, func(ctx context.Context) (err error) {
				created, err = a.alice[0].Create(ctx, a.binding(name, name+"-again"), metav1.CreateOptions{})
				return err
			})
		})
		wg.Go(func() { _, errApprove = a.approve(ctx, a.root[1], read) })
		wg.Wait()
		if errCreate != nil {
			t.Fatal(errCreate)
		}
		if errApprove != nil && !apierrors.IsConflict(errApprove) && !apierrors.IsNotFound(errApprove) {
			t.Errorf("round %d: approval of the read object = %v, want nil, 409 or 404", round, errApprove)
		}
		if _, err := a.approve(ctx, a.root[1], read); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "deleted and created again") {
			t.Errorf("round %d: approval of the deleted object = %v, want 409", round, err)
		}
		forged := read.DeepCopy()
		forged.UID = created.UID
		if _, err := a.approve(ctx, a.root[0], forged); !apierrors.IsConflict(err) {
			t.Errorf("round %d: approval of the deleted spec with the new UID = %v, want 409", round, err)
		}
		waiting(t, framework.Must(a.root[0].Get(ctx, name, metav1.GetOptions{}))(t))
	}
}

func (a *approvalRaces) stale(t *testing.T) {
	const name = "stale"
	ctx := t.Context()
	first := waiting(t, framework.Must(a.alice[0].Create(ctx, a.binding(name, "stale-first"), metav1.CreateOptions{}))(t))
	second := waiting(t, framework.Must(a.alice[1].Patch(ctx, name, types.MergePatchType, setSubject("stale-second"), metav1.PatchOptions{}))(t))
	mixed := func(change func(cp *rbacv1alpha1.ClusterPermission)) *rbacv1alpha1.ClusterPermission {
		cp := first.DeepCopy()
		change(cp)
		return cp
	}
	for title, cp := range map[string]*rbacv1alpha1.ClusterPermission{
		"unchanged":                            first,
		"without resourceVersion":              mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.ResourceVersion = "" }),
		"with the current resourceVersion":     mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.ResourceVersion = second.ResourceVersion }),
		"with the current generation":          mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.Generation = second.Generation }),
		"with the current metadata":            mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.ObjectMeta = second.ObjectMeta }),
		"with the current metadata and status": mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.ObjectMeta, cp.Status = second.ObjectMeta, second.Status }),
		"with a later generation":              mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.Generation = second.Generation + 1 }),
		"with an unknown UID":                  mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.UID, cp.Spec, cp.Generation = "none", second.Spec, 2 }),
		"with the current spec":                mixed(func(cp *rbacv1alpha1.ClusterPermission) { cp.Spec = second.Spec }),
	} {
		for i, root := range a.root {
			if _, err := root.UpdateApproval(ctx, name, cp, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("approval of the old version %s at replica %d = %v, want 409", title, i, err)
			}
		}
	}
	if now := waiting(t, framework.Must(a.root[0].Get(ctx, name, metav1.GetOptions{}))(t)); now.Status.Approval.Approved != nil || now.Status.Approval.Delivered != nil {
		t.Errorf("approval = %+v, want pending only", now.Status.Approval)
	}
}

func (a *approvalRaces) losesPermission(t *testing.T, at func(*framework.Caller) rbacclient.ClusterPermissionInterface) {
	const name = "lost"
	ctx := t.Context()
	waiting(t, framework.Must(a.alice[0].Create(ctx, a.binding(name, "lost"), metav1.CreateOptions{}))(t))
	for which, left := range []bool{true, false} {
		c := framework.NewCaller(t, a.Hub, fmt.Sprintf("losing-approver-%d", which))
		admin := c.Bind(t, a.cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"})
		grants := c.Bind(t, a.cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: framework.GrantRole})
		c.AwaitAllowed(t, a.cluster, mayGrant("get", "escalate", "bind"))
		client := at(c)
		read := framework.Must(client.Get(ctx, name, metav1.GetOptions{}))(t)
		grants()
		verbs := []string{"escalate", "bind"}
		if !left {
			admin()
			verbs = append(verbs, "get")
		}
		for _, verb := range verbs {
			framework.Eventually(t, "the hub denies "+verb+" to the approver", func(ctx context.Context) error {
				allowed, err := c.Allowed(ctx, a.cluster, verb, rbacv1alpha1.GroupName, "clusterpermissions", "")
				if err == nil && allowed {
					err = errors.New("SubjectAccessReview = allowed, want denied")
				}
				return err
			})
		}
		if _, err := client.UpdateApproval(ctx, name, read, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("approval with admin %t and without permission to grant = %v, want 403", left, err)
		}
	}
	waiting(t, framework.Must(a.root[0].Get(ctx, name, metav1.GetOptions{}))(t))
}

func (a *approvalRaces) appliesAgain(t *testing.T) {
	const name = "applied-again"
	ctx := t.Context()
	content := func(labels string) []byte {
		cp := a.binding(name, name)
		return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"ClusterPermission","metadata":{"name":%q,"labels":%s},"spec":%s}`,
			rbacv1alpha1.SchemeGroupVersion.String(), name, labels, framework.Must(json.Marshal(cp.Spec))(t))
	}
	apply := func(client rbacclient.ClusterPermissionInterface, manager, labels string) *rbacv1alpha1.ClusterPermission {
		t.Helper()
		return framework.Must(client.Patch(ctx, name, types.ApplyPatchType, content(labels), metav1.PatchOptions{FieldManager: manager, Force: new(true)}))(t)
	}
	waiting(t, apply(a.alice[0], "author", `{}`))
	// If the same spec is applied again, the object stays pending for the same reason.
	for i, client := range append(slices.Clone(a.alice), a.root...) {
		cp := waiting(t, apply(client, fmt.Sprintf("again-%d", i), `{}`))
		if cp.Generation != 1 || cp.Status.Approval.Pending.RequestedBy != "racing-author" {
			t.Errorf("apply %d: generation = %d, pending = %+v, want generation 1 requested by racing-author", i, cp.Generation, cp.Status.Approval.Pending)
		}
	}
	read := framework.Must(a.root[0].Get(ctx, name, metav1.GetOptions{}))(t)
	// A change of metadata affects neither the read spec nor the approval.
	framework.Must(a.alice[1].Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`), metav1.PatchOptions{}))(t)
	framework.Must(a.approve(ctx, a.root[1], read))(t)
	a.bindsNow(t, read, name)
	kept := func(title string, cp *rbacv1alpha1.ClusterPermission) {
		t.Helper()
		approval := cp.Status.Approval
		if cp.Generation != 1 || approval == nil || approval.Pending != nil || approval.Approved == nil || approval.Approved.Generation != 1 || approval.Approved.ApprovedBy != "racing-approver" {
			t.Errorf("%s: generation = %d, approval = %+v, want generation 1 approved by racing-approver", title, cp.Generation, approval)
		}
	}
	for i, client := range append(slices.Clone(a.alice), a.root...) {
		kept("the same spec", apply(client, "author", `{}`))
		kept("another manager", apply(client, fmt.Sprintf("later-%d", i), `{}`))
		kept("another label", apply(client, "author", fmt.Sprintf(`{"round":"%d"}`, i)))
		kept("an annotation", framework.Must(client.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"c":"%d"}}}`, i), metav1.PatchOptions{}))(t))
		var put *rbacv1alpha1.ClusterPermission
		// The server may write the status at any time, so the update may conflict.
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
			put, err = client.Update(ctx, framework.Must(client.Get(ctx, name, metav1.GetOptions{}))(t), metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		kept("a PUT without a change", put)
	}
}
