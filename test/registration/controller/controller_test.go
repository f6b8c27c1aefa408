package registration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/util/retry"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

func (f *fleet) addWork(t *testing.T, cluster string) {
	t.Helper()
	_, err := f.ours.WorkV1().ManifestWorks(cluster).Create(t.Context(), &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: "work", Finalizers: []string{workv1.ManifestWorkFinalizer}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) deleteCluster(t *testing.T, name string) {
	t.Helper()
	if err := f.ours.ClusterV1().ManagedClusters().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addWorks creates ManifestWorks that an agent holds, with their cleanup priorities.
func (f *fleet) addWorks(t *testing.T, cluster string, priorities map[string]string) {
	t.Helper()
	for name, priority := range priorities {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{workv1.ManifestWorkFinalizer}}}
		if priority != "" {
			work.Annotations = map[string]string{clusterv1.CleanupPriorityAnnotation: priority}
		}
		if _, err := f.ours.WorkV1().ManifestWorks(cluster).Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// saysDeleting returns nil if the condition Deleting of a cluster names the remaining objects.
func (f *fleet) saysDeleting(ctx context.Context, cluster, what string) error {
	mc, err := f.ours.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return err
	}
	deleting := meta.FindStatusCondition(mc.Status.Conditions, clusterv1.ManagedClusterConditionDeleting)
	if deleting == nil || deleting.Reason != clusterv1.ReasonResourceRemaining || !strings.Contains(deleting.Message, what) {
		return fmt.Errorf("condition Deleting = %v", deleting)
	}
	return nil
}

// deletes returns nil if exactly these ManifestWorks of a cluster are being deleted, and the
// condition Deleting names all remaining ones.
func (f *fleet) deletes(ctx context.Context, cluster string, want ...string) error {
	works, err := f.ours.WorkV1().ManifestWorks(cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	mc, err := f.ours.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return err
	}
	deleting := meta.FindStatusCondition(mc.Status.Conditions, clusterv1.ManagedClusterConditionDeleting)
	if deleting == nil || deleting.Reason != clusterv1.ReasonResourceRemaining {
		return fmt.Errorf("condition Deleting = %v", deleting)
	}
	var got []string
	for _, work := range works.Items {
		if work.DeletionTimestamp != nil {
			got = append(got, work.Name)
		}
		if !strings.Contains(deleting.Message, work.Name) {
			return fmt.Errorf("message of condition Deleting = %q, want %s in it", deleting.Message, work.Name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Errorf("ManifestWorks being deleted = %v, want %v", got, want)
	}
	return nil
}

func (f *fleet) releaseWork(t *testing.T, cluster, name string) {
	t.Helper()
	if _, err := f.ours.WorkV1().ManifestWorks(cluster).Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A deleted cluster keeps its access until its agent has removed its ManifestWorks. The server deletes
// them in the order of their priorities.
func testDrained(t *testing.T, hub *realHub) {
	f := hub.fleet("drained")
	f.drain = time.Hour
	f.create(t, "drained", arnOf("drained"))
	f.serve(t, 0)
	f.accept(t, "drained")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "drained") })
	f.addWorks(t, "drained", map[string]string{"first": "", "invalid": "101", "second": "20", "last": "100"})
	addon := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "addon", Finalizers: []string{"example.com/manager"}}}
	addons := f.ours.AddonV1alpha1().ManagedClusterAddOns("drained")
	if _, err := addons.Create(t.Context(), addon, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.deleteCluster(t, "drained")
	// The manager of an addon may need its ManifestWorks to clean up.
	eventually(t, "the addon is being deleted", func(ctx context.Context) error {
		addon, err := addons.Get(ctx, "addon", metav1.GetOptions{})
		if err == nil && addon.DeletionTimestamp == nil {
			return errors.New("deletionTimestamp of the addon is not set")
		}
		return err
	})
	eventually(t, "condition Deleting names the addon", func(ctx context.Context) error {
		return f.saysDeleting(ctx, "drained", "ManagedClusterAddOns addon")
	})
	works, err := f.ours.WorkV1().ManifestWorks("drained").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, work := range works.Items {
		if work.DeletionTimestamp != nil {
			t.Errorf("ManifestWork %s is being deleted before the addon is removed, want it kept", work.Name)
		}
	}
	if _, err := addons.Patch(t.Context(), "addon", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first ManifestWorks are being deleted", func(ctx context.Context) error { return f.deletes(ctx, "drained", "first", "invalid") })
	if err := f.mayOnly(t.Context(), "drained", whenAccepted...); err != nil {
		t.Errorf("access of the drained cluster: %v, want it unchanged", err)
	}
	f.releaseWork(t, "drained", "first")
	f.releaseWork(t, "drained", "invalid")
	eventually(t, "the second ManifestWork is being deleted", func(ctx context.Context) error { return f.deletes(ctx, "drained", "second") })
	f.releaseWork(t, "drained", "second")
	eventually(t, "the last ManifestWork is being deleted", func(ctx context.Context) error { return f.deletes(ctx, "drained", "last") })
	// An agent without its identity cannot remove anything.
	if err := f.recordSays(t.Context(), "drained", registerv1alpha1.RegistrationIdentityReady, metav1.ConditionTrue, registerv1alpha1.ReasonProvisioned); err != nil {
		t.Errorf("identity of the drained cluster: %v, want it unchanged", err)
	}
	f.releaseWork(t, "drained", "last")
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error {
		return errors.Join(f.isGone(ctx, "drained"), f.mayOnly(ctx, "drained"))
	})
	if len(f.events.Events) > 0 {
		t.Errorf("event = %q, want none", <-f.events.Events)
	}
}

// A cluster that is denied while it is drained loses its access immediately.
func testDrainDenied(t *testing.T, hub *realHub) {
	f := hub.fleet("drain-denied")
	f.drain = time.Hour
	f.create(t, "drain-denied", arnOf("drain-denied"))
	f.serve(t, 0)
	f.accept(t, "drain-denied")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "drain-denied") })
	f.addWork(t, "drain-denied")
	f.deleteCluster(t, "drain-denied")
	eventually(t, "the ManifestWork is being deleted", func(ctx context.Context) error { return f.deletes(ctx, "drain-denied", "work") })
	if _, err := f.ours.ClusterV1().ManagedClusters().Patch(t.Context(), "drain-denied", types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error {
		return errors.Join(f.isGone(ctx, "drain-denied"), f.mayOnly(ctx, "drain-denied"))
	})
}

// If an agent removes nothing, it delays the deletion of its cluster for a limited time only. An event
// then names the objects that may remain.
func testDrainTimesOut(t *testing.T, hub *realHub) {
	f := hub.fleet("drain-timeout")
	f.drain = 2 * time.Second
	f.create(t, "drain-timeout", arnOf("drain-timeout"))
	f.serve(t, 0)
	f.accept(t, "drain-timeout")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "drain-timeout") })
	f.addWork(t, "drain-timeout")
	f.deleteCluster(t, "drain-timeout")
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error {
		return errors.Join(f.isGone(ctx, "drain-timeout"), f.mayOnly(ctx, "drain-timeout"))
	})
	select {
	case event := <-f.events.Events:
		if !strings.Contains(event, clusterv1.ReasonDrainTimedOut) || !strings.Contains(event, "ManifestWorks work") {
			t.Errorf("event = %q, want a timeout that names ManifestWorks work", event)
		}
	default:
		t.Error("events = none, want one")
	}
}

// TestController checks the registration controller against a real control plane.
func TestController(t *testing.T) {
	hub := startHub(t)
	for name, test := range map[string]func(*testing.T, *realHub){
		"accept-deny-delete": testLife, "never-accepted": testNeverAccepted, "driver-fails": testFailingDriver,
		"slow-cloud": testSlowCloud, "drift": testDrift, "idle": testIdle, "partial-acceptance": testDeniedHalfWay,
		"finalizer-removed": testStripped, "namespace": testNamespaceDeleted, "left": testLeft, "withdrawn": testWithdrawn,
		"auto": testAutoApproval, "driver-off": testDriverOff, "foreign-namespace": testForeignNamespace, "older-namespace": testOlderNamespace,
		"no-record": testNoRecord, "access": testAccess, "crash": testCrashes, "deleted-meanwhile": testDeletedMeanwhile,
		"drained": testDrained, "drain-denied": testDrainDenied, "drain-times-out": testDrainTimesOut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, hub)
		})
	}
}

// A cluster with an EKS identity gets its access. A denial revokes the access immediately, although
// the cluster has ManifestWorks. The cluster gets the access again, and its deletion leaves nothing.
func testLife(t *testing.T, hub *realHub) {
	f := hub.fleet("life")
	f.create(t, "life", arnOf("life"))
	f.serve(t, 0)
	f.accept(t, "life")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "life") })
	if f.account.made != 1 || f.account.observed != 0 || f.account.roles() != 1 {
		t.Errorf("calls to AWS = %d creations and %d reads for %d roles, want 1, 0 and 1", f.account.made, f.account.observed, f.account.roles())
	}
	f.addWork(t, "life")

	f.deny(t, "life")
	eventually(t, "the cluster is denied", func(ctx context.Context) error {
		return errors.Join(f.isDenied(ctx, "life"), f.mayOnly(ctx, "life", whenDenied...))
	})
	if f.account.roles() != 0 {
		t.Error("AWS has the role of a denied cluster, want no role")
	}
	if _, err := f.ours.WorkV1().ManifestWorks("life").Get(t.Context(), "work", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(ManifestWork of a denied cluster) = %v, want nil", err)
	}
	mc, err := f.ours.ClusterV1().ManagedClusters().Get(t.Context(), "life", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if message := mc.Status.Conditions[0].Message; !strings.Contains(message, "admin") || !strings.Contains(message, "stolen") {
		t.Errorf("condition message = %q, want the user admin and the reason stolen", message)
	}

	f.accept(t, "life")
	eventually(t, "the cluster has full access again", func(ctx context.Context) error { return f.works(ctx, "life") })
	f.deleteCluster(t, "life")
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error {
		return errors.Join(f.isGone(ctx, "life"), f.mayOnly(ctx, "life"))
	})
}

// The server makes no objects and sends no requests to AWS for a cluster that was never accepted.
// The deletion of the cluster removes no foreign objects.
func testNeverAccepted(t *testing.T, hub *realHub) {
	f := hub.fleet("never")
	// The namespace of another owner has the same name and label as the namespace of the cluster.
	_, err := f.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "never", Labels: map[string]string{clusterv1.ClusterNameLabel: "never"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.create(t, "never", arnOf("never"))
	f.serve(t, 0)
	f.deleteCluster(t, "never")
	eventually(t, "the registration is deleted", func(ctx context.Context) error {
		if _, err := f.records.Get(ctx, "never"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(registration) = %v, want NotFound", err)
		}
		return nil
	})
	if f.account.made+f.account.observed > 0 {
		t.Error("calls to AWS for a cluster that was never accepted, want none")
	}
	namespace, err := f.admin.CoreV1().Namespaces().Get(t.Context(), "never", metav1.GetOptions{})
	if err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("Get(namespace never) = %v, deleted at %v, want it kept", err, namespace.DeletionTimestamp)
	}
	if len(f.records.reserved) > 0 {
		t.Error("the identity is still reserved, want it free")
	}
}

// A cluster without its identity gets no access, and the condition contains the cause.
func testFailingDriver(t *testing.T, hub *realHub) {
	f := hub.fleet("failing")
	f.account.fail = errors.New("AccessDenied: not authorized to perform iam:CreateRole")
	f.create(t, "failing", arnOf("failing"))
	r := f.serve(t, 0)
	f.accept(t, "failing")
	eventually(t, "the conditions report the failure", func(ctx context.Context) error {
		f.account.mu.Lock()
		fails := f.account.fails
		f.account.mu.Unlock()
		if fails < 3 {
			return fmt.Errorf("failed calls = %d, want at least 3", fails)
		}
		return errors.Join(
			f.hubAccepted(ctx, "failing", metav1.ConditionFalse, clusterv1.ReasonError),
			f.recordSays(ctx, "failing", registerv1alpha1.RegistrationIdentityReady, metav1.ConditionFalse, registerv1alpha1.ReasonProvisionFailed),
			f.recordSays(ctx, "failing", registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonPending),
			f.mayOnly(ctx, "failing"))
	})
	mc, err := f.ours.ClusterV1().ManagedClusters().Get(t.Context(), "failing", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(mc.Status.Conditions[0].Message, "iam:CreateRole") {
		t.Errorf("condition message = %q, want iam:CreateRole in it", mc.Status.Conditions[0].Message)
	}

	f.account.set(func(a *account) { a.fail = nil })
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "failing") })
	r.stop()

	// If the hub cannot verify the identity, a cluster with full access keeps it.
	f.account.set(func(a *account) { a.fail, a.fails = errors.New("RequestTimeout"), 1 })
	f.serve(t, 0)
	eventually(t, "the verification fails", func(ctx context.Context) error {
		return f.recordSays(ctx, "failing", registerv1alpha1.RegistrationIdentityReady, metav1.ConditionTrue, registerv1alpha1.ReasonProvisionFailed)
	})
	if err := f.works(t.Context(), "failing"); err != nil {
		t.Errorf("access after the failed verification: %v, want it unchanged", err)
	}
}

// While AWS does not answer, the server accepts a cluster of the other driver, and denies a cluster
// that waits for AWS.
func testSlowCloud(t *testing.T, hub *realHub) {
	f := hub.fleet("slow")
	stuck := make(chan struct{})
	f.account.stuck = stuck
	f.create(t, "slow", arnOf("slow"))
	f.serve(t, 0)
	f.accept(t, "slow")
	eventually(t, "the registration is marked as provisioned", func(ctx context.Context) error {
		record, err := f.records.Get(ctx, "slow")
		if err == nil && !record.Status.IRSA.Provisioned {
			err = errors.New("status.irsa.provisioned = false, want true")
		}
		return err
	})
	f.deny(t, "slow")
	eventually(t, "the cluster is denied", func(ctx context.Context) error {
		return errors.Join(
			f.hubAccepted(ctx, "slow", metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied),
			f.recordSays(ctx, "slow", registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonDenied),
			f.recordSays(ctx, "slow", registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse, registerv1alpha1.ReasonCleaningUp),
			f.mayOnly(ctx, "slow"))
	})
	close(stuck)
	eventually(t, "the role that AWS created late is removed", func(ctx context.Context) error { return f.isDenied(ctx, "slow") })
	if f.account.roles() != 0 {
		t.Error("AWS has a role of a denied cluster, want no role")
	}
}

// The server repairs any change to the access of a cluster.
func testDrift(t *testing.T, hub *realHub) {
	f := hub.fleet("drift")
	f.create(t, "drift", "")
	f.serve(t, 0)
	f.accept(t, "drift")
	works := func(ctx context.Context) error { return f.works(ctx, "drift") }
	eventually(t, "the cluster has full access", works)
	rbac := f.admin.RbacV1()
	const name = prefix + "drift"
	// Each change is a single request, so the controller repairs it only after it is complete.
	for what, change := range map[string]func(context.Context) error{
		"the role grants all permissions": func(ctx context.Context) error {
			role, err := rbac.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
			_, err = rbac.ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
			return err
		},
		"the role is deleted": func(ctx context.Context) error { return rbac.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}) },
		"the binding is deleted": func(ctx context.Context) error {
			return rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
		},
		"the binding refers to another role": func(ctx context.Context) error {
			if err := rbac.RoleBindings("drift").Delete(ctx, name+":inventory", metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := rbac.RoleBindings("drift").Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name + ":inventory", Finalizers: []string{"example.com/hold"}, Labels: map[string]string{clusterv1.ClusterNameLabel: "drift"}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:open-cluster-management:drift"}},
			}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil // the server has already repaired it
			}
			return err
		},
		"the lease is deleted": func(ctx context.Context) error {
			return f.admin.CoordinationV1().Leases("drift").Delete(ctx, registration.LeaseName, metav1.DeleteOptions{})
		},
		"the lease has no label": func(ctx context.Context) error {
			_, err := f.admin.CoordinationV1().Leases("drift").Patch(ctx, registration.LeaseName, types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
			return err
		},
		"the binding has another subject": func(ctx context.Context) error {
			binding, err := rbac.RoleBindings("drift").Get(ctx, name+":work", metav1.GetOptions{})
			if err != nil {
				return err
			}
			binding.Subjects[0].Name, binding.Labels, binding.Finalizers = "mallory", nil, nil
			_, err = rbac.RoleBindings("drift").Update(ctx, binding, metav1.UpdateOptions{})
			return err
		},
		"the namespace has no label": func(ctx context.Context) error {
			namespace, err := f.admin.CoreV1().Namespaces().Get(ctx, "drift", metav1.GetOptions{})
			if err != nil {
				return err
			}
			namespace.Labels = nil
			_, err = f.admin.CoreV1().Namespaces().Update(ctx, namespace, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return change(t.Context()) }); err != nil {
			t.Fatalf("change %q = %v, want nil", what, err)
		}
		eventually(t, "the access is repaired after the change: "+what, works)
	}
}

// The server sends no requests and no writes for clusters that do not change.
func testIdle(t *testing.T, hub *realHub) {
	f := hub.fleet("idle")
	f.create(t, "idle", arnOf("idle"))
	r := f.serve(t, 0)
	f.accept(t, "idle")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "idle") })
	r.stop()

	// A server that starts verifies everything once.
	r = f.serve(t, 0)
	eventually(t, "the identity is verified", func(context.Context) error {
		f.account.mu.Lock()
		defer f.account.mu.Unlock()
		if f.account.observed == 0 {
			return errors.New("reads of the role in AWS = 0, want 1")
		}
		return nil
	})
	// The reports of the agent concern no controller here.
	mc, err := f.ours.ClusterV1().ManagedClusters().Get(t.Context(), "idle", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mc.Status.Version.Kubernetes = "v1.36.3"
	if _, err := f.ours.ClusterV1().ManagedClusters().UpdateStatus(t.Context(), mc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server sees the report", func(context.Context) error {
		seen, err := r.clusters.Get("idle")
		if err == nil && seen.Status.Version.Kubernetes != mc.Status.Version.Kubernetes {
			err = fmt.Errorf("version = %s, want %s", seen.Status.Version.Kubernetes, mc.Status.Version.Kubernetes)
		}
		return err
	})
	for _, write := range r.fate.written() {
		if !strings.HasPrefix(write, "AWS ") {
			t.Errorf("write of a server with nothing to change = %s, want none", write)
		}
	}
	f.deny(t, "idle")
	eventually(t, "the cluster is denied", func(ctx context.Context) error { return f.isDenied(ctx, "idle") })
	if f.account.made != 1 || f.account.observed != 1 {
		t.Errorf("calls to AWS = %d creations and %d reads of the role, want 1 and 1", f.account.made, f.account.observed)
	}
}

// A denial revokes all access and the identity, even after a partial acceptance.
func testDeniedHalfWay(t *testing.T, hub *realHub) {
	f := hub.fleet("halfway")
	f.account.fail = errors.New("ServiceFailure")
	f.create(t, "halfway", arnOf("halfway"))
	f.serve(t, 0)
	f.accept(t, "halfway")
	eventually(t, "AWS has the role of the partial acceptance", func(context.Context) error {
		if f.account.roles() == 0 {
			return errors.New("roles in AWS = 0, want 1")
		}
		return nil
	})
	// A user or an older server created more objects.
	access := registration.NewAccess(f.admin, kubeinformers.NewSharedInformerFactory(f.admin, 0))
	if err := access.Grant(t.Context(), "halfway", registration.Agents{Groups: clusterv1.AgentGroups("halfway")[1:]}, 60); err != nil {
		t.Fatal(err)
	}
	f.deny(t, "halfway")
	eventually(t, "the cluster is denied", func(ctx context.Context) error {
		return errors.Join(f.isDenied(ctx, "halfway"), f.mayOnly(ctx, "halfway", whenDenied...))
	})
	if f.account.roles() != 0 {
		t.Error("AWS has a role of a denied cluster, want no role")
	}
}

// No objects remain although a user removes the finalizer and deletes the namespace first, and no agent
// releases the ManifestWorks.
func testStripped(t *testing.T, hub *realHub) {
	f := hub.fleet("stripped")
	mc := f.create(t, "stripped", arnOf("stripped"))
	r := f.serve(t, 0)
	f.accept(t, "stripped")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "stripped") })
	f.addWork(t, "stripped")
	r.stop()
	f.deleteCluster(t, "stripped")
	if err := f.admin.CoreV1().Namespaces().Delete(t.Context(), "stripped", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := f.ours.ClusterV1().ManagedClusters().Patch(t.Context(), "stripped", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	// A new cluster with the same name does not get the access of the old one.
	if _, err := f.ours.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "stripped"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.serve(t, 0)
	eventually(t, "the new cluster has its own registration", func(ctx context.Context) error {
		record, err := f.records.Get(ctx, "stripped")
		if err == nil && record.Spec.ManagedClusterUID == mc.UID {
			err = errors.New("registration belongs to the previous cluster")
		}
		return err
	})
	f.deleteCluster(t, "stripped")
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error { return f.isGone(ctx, "stripped") })
}

// If a user deletes the namespace of an accepted cluster, the server creates it again.
func testNamespaceDeleted(t *testing.T, hub *realHub) {
	f := hub.fleet("renewed")
	f.create(t, "renewed", "")
	f.serve(t, 0)
	f.accept(t, "renewed")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "renewed") })
	before, err := f.admin.CoreV1().Namespaces().Get(t.Context(), "renewed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.admin.CoreV1().Namespaces().Delete(t.Context(), "renewed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the condition reports an error while the namespace is being deleted", func(ctx context.Context) error {
		return f.hubAccepted(ctx, "renewed", metav1.ConditionFalse, clusterv1.ReasonError)
	})
	// No agent cleans up here, and no controller releases the ManifestWork.
	_, err = f.admin.RbacV1().RoleBindings("renewed").Patch(t.Context(), prefix+"renewed:work", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster has full access again", func(ctx context.Context) error {
		after, err := f.admin.CoreV1().Namespaces().Get(ctx, "renewed", metav1.GetOptions{})
		if err == nil && after.UID == before.UID {
			err = errors.New("the previous namespace still exists")
		}
		return errors.Join(err, f.works(ctx, "renewed"))
	})
}

// If a cluster leaves the hub, the server deletes all its objects.
func testLeft(t *testing.T, hub *realHub) {
	f := hub.fleet("left")
	f.create(t, "left", arnOf("left"))
	f.serve(t, 0)
	f.accept(t, "left")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "left") })
	f.addWork(t, "left")
	f.decide(t, "left", clusterv1.Acceptance{Left: true, DecidedBy: "system:open-cluster-management:left:agent"})
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error { return f.isGone(ctx, "left") })
}

// A withdrawn claim ends when AWS has no more objects for it.
func testWithdrawn(t *testing.T, hub *realHub) {
	f := hub.fleet("withdrawn")
	f.create(t, "withdrawn", arnOf("withdrawn"))
	f.serve(t, 0)
	f.accept(t, "withdrawn")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "withdrawn") })
	f.deny(t, "withdrawn")
	_, err := f.records.Update(t.Context(), "withdrawn", func(r *registerv1alpha1.ManagedClusterRegistration) error {
		r.Spec.IRSA.Withdrawn = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim has ended", func(ctx context.Context) error {
		record, err := f.records.Get(ctx, "withdrawn")
		if err == nil && (record.Spec.IRSA != nil || record.Status.IRSA != nil || record.Spec.Driver != registerv1alpha1.DriverCSR) {
			err = fmt.Errorf("claim = %v, status %v, driver %s, want driver csr without a claim", record.Spec.IRSA, record.Status.IRSA, record.Spec.Driver)
		}
		return errors.Join(err, f.isDenied(ctx, "withdrawn"))
	})
	if f.account.roles() != 0 || len(f.records.reserved) != 0 {
		t.Errorf("after the withdrawal, AWS has %d roles and the hub %d reservations, want none", f.account.roles(), len(f.records.reserved))
	}
	f.accept(t, "withdrawn")
	eventually(t, "the cluster has full access with the other driver", func(ctx context.Context) error { return f.works(ctx, "withdrawn") })
	if f.account.roles() != 0 {
		t.Error("AWS has a role of a cluster without a claim, want no role")
	}
}
