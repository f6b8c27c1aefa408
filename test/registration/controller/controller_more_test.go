package registration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// If an administrator denies a cluster that a rule accepted, the rule does not accept it again.
func testAutoApproval(t *testing.T, hub *realHub) {
	f := hub.fleet("auto")
	var err error
	if f.auto, err = registration.NewAutoApproval([]string{`arn:aws:eks:us-east-1:444455556666:cluster/auto`}, nil); err != nil {
		t.Fatal(err)
	}
	f.create(t, "auto", arnOf("auto"))
	r := f.serve(t, 0)
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "auto") })
	eventually(t, "the cluster and its registration report the automatic approval", func(ctx context.Context) error {
		mc, err := f.ours.ClusterV1().ManagedClusters().Get(ctx, "auto", metav1.GetOptions{})
		if err != nil {
			return err
		}
		record, err := f.records.Get(ctx, "auto")
		if err != nil {
			return err
		}
		if mc.Annotations[registration.AutoAcceptedAnnotation] == "" || record.Status.AutoApprovedAt == nil {
			return fmt.Errorf("annotations = %v, autoApprovedAt = %v, want both to report the approval", mc.Annotations, record.Status.AutoApprovedAt)
		}
		return nil
	})
	f.deny(t, "auto")
	denied := func(ctx context.Context) error { return f.isDenied(ctx, "auto") }
	eventually(t, "the cluster is denied", denied)
	r.stop()
	// A new server knows only the stored state.
	f.serve(t, 0)
	if _, err := f.ours.ClusterV1().ManagedClusters().Patch(t.Context(), "auto", types.MergePatchType, []byte(`{"metadata":{"annotations":null},"spec":{"leaseDurationSeconds":30}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.accept(t, "auto")
	eventually(t, "the cluster has full access after an administrator accepts it", func(ctx context.Context) error { return f.works(ctx, "auto") })
}

// The server keeps a registration if its driver is disabled, because AWS may still have its role.
func testDriverOff(t *testing.T, hub *realHub) {
	f := hub.fleet("driveroff")
	f.create(t, "driveroff", arnOf("driveroff"))
	r := f.serve(t, 0)
	f.accept(t, "driveroff")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "driveroff") })
	r.stop()
	f.drivers = func(all []registration.Driver) []registration.Driver { return all[:1] }
	r = f.serve(t, 0)
	f.deleteCluster(t, "driveroff")
	eventually(t, "condition CleanedUp names the remaining identity", func(ctx context.Context) error {
		record, err := f.records.Get(ctx, "driveroff")
		if err != nil {
			return err
		}
		for _, condition := range record.Status.Conditions {
			if condition.Type == registerv1alpha1.RegistrationCleanedUp && strings.HasPrefix(condition.Message, "Not removed yet: the identity of the driver aws-irsa (this driver is not enabled).") {
				return f.mayOnly(ctx, "driveroff", whenDenied...)
			}
		}
		return fmt.Errorf("conditions = %v", record.Status.Conditions)
	})
	r.stop()
	f.drivers = nil
	f.serve(t, 0)
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error { return f.isGone(ctx, "driveroff") })
}

// A namespace without the label of the cluster is not deleted with the cluster.
func testForeignNamespace(t *testing.T, hub *realHub) {
	f := hub.fleet("foreign")
	f.create(t, "foreign", "")
	r := f.serve(t, 0)
	f.accept(t, "foreign")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "foreign") })
	r.stop()
	_, err := f.admin.CoreV1().Namespaces().Patch(t.Context(), "foreign", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"open-cluster-management.io/cluster-name":null}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.deleteCluster(t, "foreign")
	f.serve(t, 0)
	eventually(t, "all objects of the cluster except the namespace are deleted", func(ctx context.Context) error {
		err := f.isGone(ctx, "foreign")
		if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.HasPrefix(err.Error(), "Namespace:") {
			return fmt.Errorf("remaining objects: %v, want the namespace only", err)
		}
		return nil
	})
	if err := f.admin.CoreV1().Namespaces().Delete(t.Context(), "foreign", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// If the namespace exists before the cluster, the server does not delete it with the cluster. The
// namespace keeps the objects of other users.
func testOlderNamespace(t *testing.T, hub *realHub) {
	f := hub.fleet("older")
	namespaces := f.admin.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "older"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	others := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "others"}}
	if _, err := f.admin.CoreV1().ConfigMaps("older").Create(t.Context(), others, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.create(t, "older", "")
	f.serve(t, 0)
	f.accept(t, "older")
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "older") })
	f.deleteCluster(t, "older")
	eventually(t, "all objects of the cluster except the namespace are deleted", func(ctx context.Context) error {
		err := f.isGone(ctx, "older")
		if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.HasPrefix(err.Error(), "Namespace:") {
			return fmt.Errorf("remaining objects: %v, want the namespace only", err)
		}
		return f.mayOnly(ctx, "older")
	})
	namespace, err := namespaces.Get(t.Context(), "older", metav1.GetOptions{})
	if err != nil || namespace.DeletionTimestamp != nil || namespace.Labels[clusterv1.ClusterNameLabel] != "" {
		t.Errorf("Get(existing namespace) = %+v, %v, want it kept without the label of the cluster", namespace, err)
	}
	if _, err := f.admin.CoreV1().ConfigMaps("older").Get(t.Context(), "others", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(foreign ConfigMap in the namespace) = %v, want nil", err)
	}
}

// If a cluster has no registration, the server creates it.
func testNoRecord(t *testing.T, hub *realHub) {
	f := hub.fleet("norecord")
	_, err := f.ours.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "norecord"}, Spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: new(int32(60))},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.accept(t, "norecord")
	f.serve(t, 0)
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, "norecord") })
}

// Revoke needs only the name of the cluster. It revokes access regardless of the existing objects, and
// does not affect another cluster.
func testAccess(t *testing.T, hub *realHub) {
	f := hub.fleet("access")
	server, err := kubernetes.NewForConfig(f.rights)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	labelled := kubeinformers.NewSharedInformerFactoryWithOptions(server, 0, kubeinformers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = clusterv1.ClusterNameLabel
	}))
	access := registration.NewAccess(server, labelled)
	labelled.Start(ctx.Done())
	t.Cleanup(labelled.Shutdown)
	labelled.WaitForCacheSync(ctx.Done())
	for _, name := range []string{"access", "access-2"} {
		if err := access.Grant(ctx, name, registration.Agents{Groups: clusterv1.AgentGroups(name)[:1]}, 60); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the caches contain the access of "+name, func(context.Context) error {
			complete, err := access.Granted(name, registration.Agents{Groups: clusterv1.AgentGroups(name)[:1]}, 60)
			if err == nil && !complete {
				err = errors.New("access is incomplete")
			}
			return err
		})
	}
	eventually(t, "the agents have access", func(ctx context.Context) error { return f.mayOnly(ctx, "access", whenAccepted...) })

	// A foreign finalizer, a binding to another role and a binding without our label do not keep the
	// access open.
	rbac := f.admin.RbacV1()
	if _, err := rbac.RoleBindings("access").Patch(ctx, prefix+"access:work", types.MergePatchType,
		[]byte(`{"metadata":{"labels":null,"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup","example.com/hold"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := rbac.ClusterRoleBindings().Delete(ctx, prefix+"access", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: prefix + "access"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:open-cluster-management:access"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The agents lose access to the Secrets of the accounts as well.
	if _, err := rbac.RoleBindings("access").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clusterv1.AgentSecretsAccess},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: clusterv1.AgentSecretsAccess},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := access.Revoke(ctx, "access"); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.RoleBindings("access").Get(ctx, clusterv1.AgentSecretsAccess, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(RoleBinding for the Secrets of accounts) = %v, want NotFound", err)
	}
	eventually(t, "the agents have no access", func(ctx context.Context) error { return f.mayOnly(ctx, "access") })
	if done, err := access.Remove(ctx, "access"); err != nil || !done {
		t.Errorf("Remove(access) = %t, %v, want true", done, err)
	}
	if err := access.Revoke(ctx, "access"); err != nil {
		t.Errorf("Revoke(access) after the removal = %v, want nil", err)
	}
	if err := f.mayOnly(ctx, "access-2", whenAccepted...); err != nil {
		t.Errorf("access of access-2: %v, want it unchanged", err)
	}
	if _, err := rbac.RoleBindings("access").Patch(ctx, prefix+"access:work", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}

	// The driver of a denied cluster may change. Its previous groups then lose the access of denied
	// clusters.
	groups := clusterv1.AgentGroups("access-3")
	if err := access.Grant(ctx, "access-3", registration.Agents{Groups: groups[:1]}, 60); err != nil {
		t.Fatal(err)
	}
	if err := access.Revoke(ctx, "access-3"); err != nil {
		t.Fatal(err)
	}
	for _, groups := range [][]string{groups[1:], nil} {
		if err := access.Regroup(ctx, "access-3", groups); err != nil {
			t.Fatal(err)
		}
	}
	if err := access.Regroup(ctx, "never-there", groups); err != nil {
		t.Errorf("Regroup() of a cluster without access = %v, want no error", err)
	}
	eventually(t, "only the present group can read its cluster", func(ctx context.Context) error {
		for group, want := range map[string]bool{groups[0]: false, groups[1]: true} {
			if got, err := f.may(ctx, group, rights("access-3")["get itself"]); err != nil || got != want {
				return fmt.Errorf("group %s can read its cluster = %v, %v, want %v", group, got, err, want)
			}
		}
		return nil
	})

	// The roles that all clusters share belong to no cluster.
	for _, name := range []string{"work", "kube-system", "default"} {
		if err := access.Grant(ctx, name, registration.Agents{Groups: clusterv1.AgentGroups(name)[:1]}, 60); err == nil {
			t.Errorf("Grant(%s) = nil, want an error", name)
		}
		if _, err := access.Remove(ctx, name); err != nil {
			t.Errorf("Remove(%s) = %v, want nil", name, err)
		}
	}
	if _, err := rbac.ClusterRoles().Get(ctx, prefix+"work", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(ClusterRole of all clusters) = %v, want nil", err)
	}
	if err := f.mayOnly(ctx, "access-2", whenAccepted...); err != nil {
		t.Errorf("access of access-2: %v, want it unchanged", err)
	}
	if _, err := f.admin.CoreV1().Namespaces().Get(ctx, "another", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(namespace without a cluster) = %v, want NotFound", err)
	}
}

// crashesAtOnce bounds how many servers crash concurrently.
const crashesAtOnce = 24

// Regardless of where a server stops, the next server reaches the same final state.
func testCrashes(t *testing.T, hub *realHub) {
	for what, scenario := range map[string]struct {
		begin func(*testing.T, *fleet)
		end   func(context.Context, *fleet) error
	}{
		"accept": {
			begin: func(t *testing.T, f *fleet) {
				f.create(t, f.only, arnOf(f.only))
				f.accept(t, f.only)
			},
			end: func(ctx context.Context, f *fleet) error { return f.works(ctx, f.only) },
		},
		"deny": {
			begin: func(t *testing.T, f *fleet) {
				f.prepare(t)
				f.deny(t, f.only)
			},
			end: func(ctx context.Context, f *fleet) error {
				if f.account.roles() > 0 {
					return errors.New("AWS still has its role")
				}
				return errors.Join(f.isDenied(ctx, f.only), f.mayOnly(ctx, f.only, whenDenied...))
			},
		},
		"delete": {
			begin: func(t *testing.T, f *fleet) {
				f.prepare(t)
				f.deleteCluster(t, f.only)
			},
			end: func(ctx context.Context, f *fleet) error { return f.isGone(ctx, f.only) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			// The number of writes grows until a server completes its work before it crashes.
			for first := 1; ; first += crashesAtOnce {
				var fleets []*fleet
				for n := first; n < first+crashesAtOnce; n++ {
					f := hub.fleet(fmt.Sprintf("crash-%s-%d", what, n))
					scenario.begin(t, f)
					fleets = append(fleets, f)
				}
				if crash(t, first, fleets, scenario.end) < crashesAtOnce {
					return
				}
			}
		})
	}
}

// crash runs a server for each fleet. The first server crashes after this number of writes, and each
// other server one write later. New servers then reach the final state. crash returns the number of
// servers that crashed.
func crash(t *testing.T, after int, fleets []*fleet, end func(context.Context, *fleet) error) (crashed int) {
	t.Helper()
	var servers []*running
	for i, f := range fleets {
		servers = append(servers, f.serve(t, after+i))
	}
	for i, r := range servers {
		eventually(t, fmt.Sprintf("the server has crashed after %d writes or reached the final state", after+i), func(ctx context.Context) error {
			if !r.fate.alive() {
				return nil
			}
			return end(ctx, fleets[i])
		})
		if !r.fate.alive() {
			crashed++
		}
		r.stop()
	}
	for _, f := range fleets {
		f.serve(t, 0)
	}
	for i, f := range fleets {
		eventually(t, fmt.Sprintf("the server after a crash at %d writes has reached the final state", after+i), func(ctx context.Context) error { return end(ctx, f) })
	}
	return crashed
}

// prepare creates a cluster that has full access and a ManifestWork.
func (f *fleet) prepare(t *testing.T) {
	t.Helper()
	f.create(t, f.only, arnOf(f.only))
	f.accept(t, f.only)
	r := f.serve(t, 0)
	eventually(t, "the cluster has full access", func(ctx context.Context) error { return f.works(ctx, f.only) })
	f.addWork(t, f.only)
	r.stop()
}
