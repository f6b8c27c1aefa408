package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// permissionsOfCluster is the number of ClusterPermissions of each cluster without an agent.
	permissionsOfCluster = 10
	// permissionsOfAccount is the number of ClusterPermissions that name the same account. It
	// equals bindings, because arrivals considers a key complete after this number of events.
	permissionsOfAccount = bindings
	accountsOfCluster    = permissionsOfCluster / permissionsOfAccount
	// elsewhere is the namespace on the cluster to which an account moves.
	elsewhere = "bench-elsewhere"
	// selected is the label that selects namespaces.
	selected = "bench-selected"
)

// inParallel calls do for the numbers from 0 to count-1 concurrently.
func inParallel(b *testing.B, count int, do func(i int) error) {
	b.Helper()
	numbers := make(chan int)
	var running sync.WaitGroup
	for range creators {
		running.Go(func() {
			for i := range numbers {
				if err := do(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	running.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func benchCluster(i int) string { return fmt.Sprintf("bench-cluster-%d", i) }

// accountKey returns the key of an account, and of each ManifestWork that binds it.
func accountKey(cluster string, i int) string {
	return fmt.Sprintf("%s-account-%d", cluster, i%accountsOfCluster)
}

// fill joins a cluster without an agent, and creates reported accounts and ClusterPermissions
// for them.
func fill(f *fleet, cluster string) error {
	ctx := context.Background()
	if err := localhub.JoinCluster(ctx, f.Hub, cluster); err != nil {
		return err
	}
	accounts := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
	for i := range accountsOfCluster {
		account, err := accounts.Create(ctx, &authenticationv1beta1.ManagedServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: accountKey(cluster, i)},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		account.Status.ServiceAccountRef = &authenticationv1beta1.ServiceAccountReference{Namespace: "default", Name: account.Name}
		if _, err := accounts.UpdateStatus(ctx, account, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	for i := range permissionsOfCluster {
		cp := permission(fmt.Sprintf("permission-%d", i))
		cp.Namespace = cluster
		(*cp.Spec.RoleBindings)[0].Subject = &rbacv1.Subject{
			APIGroup: rbacv1alpha1.ManagedServiceAccountGroup, Kind: rbacv1alpha1.ManagedServiceAccountKind, Name: accountKey(cluster, i),
		}
		if _, err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster).Create(ctx, cp, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// empty deletes the objects that fill created, except the cluster.
func empty(f *fleet, cluster string) error {
	ctx := context.Background()
	if err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// watchMoves records the times at which ManifestWorks bind accounts that have moved.
func watchMoves(b *testing.B, f *fleet) *watched {
	b.Helper()
	w := &watched{arrivals: newArrivals()}
	factory := externalversions.NewSharedInformerFactory(f.ocm, 0)
	works := factory.Work().V1().ManifestWorks().Informer()
	for _, informer := range []cache.SharedIndexInformer{works, factory.Rbac().V1alpha1().ClusterPermissions().Informer()} {
		if _, err := informer.AddEventHandler(w.count()); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := works.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, obj any) {
		if work := obj.(*workv1.ManifestWork); mentions(work, elsewhere) && !mentions(old.(*workv1.ManifestWork), elsewhere) {
			for i := range accountsOfCluster {
				if key := accountKey(work.Namespace, i); mentions(work, key) {
					w.note(&metav1.ObjectMeta{Name: key}, 1)
				}
			}
		}
	}}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return w
}

// mentions reports whether a manifest of a ManifestWork contains a name.
func mentions(work *workv1.ManifestWork, name string) bool {
	return slices.ContainsFunc(work.Spec.Workload.Manifests, func(manifest workv1.Manifest) bool {
		return bytes.Contains(manifest.Raw, []byte(`"`+name+`"`))
	})
}

// BenchmarkPermissionsOfAccount moves ManagedServiceAccounts on their clusters one after
// another, on a hub with many ClusterPermissions. It measures from before the report of the
// agent until a watch has received all ManifestWorks that bind the account.
func BenchmarkPermissionsOfAccount(b *testing.B) {
	f, stored := running(b), number(b, "BENCH_STORED", 1000)
	clusters := max(1, stored/permissionsOfCluster)
	count := min(number(b, "BENCH_COUNT", 200), clusters*accountsOfCluster)
	w := watchMoves(b, f)
	for range b.N {
		inParallel(b, clusters, func(i int) error { return fill(f, benchCluster(i)) })
		w.quiet()
		var moved []time.Duration
		for i := range count {
			cluster, ctx := benchCluster(i%clusters), context.Background()
			key := accountKey(cluster, i/clusters)
			accounts := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
			account, err := accounts.Get(ctx, key, metav1.GetOptions{})
			if err != nil {
				b.Fatal(err)
			}
			account.Status.ServiceAccountRef.Namespace = elsewhere
			started := time.Now()
			if _, err := accounts.UpdateStatus(ctx, account, metav1.UpdateOptions{}); err != nil {
				b.Fatal(err)
			}
			w.wait(b, "all ManifestWorks of "+key+" are updated", func() bool { _, ok := w.complete[key]; return ok })
			moved = append(moved, w.complete[key].Sub(started))
		}
		report(b, fmt.Sprintf("move of an account to its %d ManifestWorks among %d", permissionsOfAccount, clusters*permissionsOfCluster), "work", moved)
		inParallel(b, clusters, func(i int) error { return empty(f, benchCluster(i)) })
		w.quiet()
	}
}

// BenchmarkNamespaceSelected labels namespaces of the managed cluster, each after the Role
// in the previous one exists. It measures from before the request until a watch of the
// managed cluster has received the Role of a ClusterPermission that selects the label.
func BenchmarkNamespaceSelected(b *testing.B) {
	f, count := running(b), number(b, "BENCH_NAMESPACES", 100)
	for range b.N {
		namespaces := make([]string, count)
		inParallel(b, count, func(i int) error {
			namespace, err := f.managed.CoreV1().Namespaces().Create(context.Background(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-namespace-"}}, metav1.CreateOptions{})
			namespaces[i] = namespace.GetName()
			return err
		})
		a := watchRoles(b, f)
		known(b, f, namespaces)
		selectNamespaces(b, f)

		var delivered []time.Duration
		for _, namespace := range namespaces {
			started := time.Now()
			if _, err := f.managed.CoreV1().Namespaces().Patch(context.Background(), namespace, types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"`+selected+`":"true"}}}`), metav1.PatchOptions{}); err != nil {
				b.Fatal(err)
			}
			a.wait(b, "the Role in namespace "+namespace+" exists", func() bool { _, ok := a.complete[namespace]; return ok })
			delivered = append(delivered, a.complete[namespace].Sub(started))
		}
		report(b, "label of a namespace to the Role in it, one after another", "role", delivered)
		if err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(context.Background(), selected, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
		a.wait(b, "all Roles are deleted", func() bool { return len(a.seen) == 0 })
		inParallel(b, count, func(i int) error {
			return f.managed.CoreV1().Namespaces().Delete(context.Background(), namespaces[i], metav1.DeleteOptions{})
		})
	}
}

// selectNamespaces creates the ClusterPermission that selects namespaces.
func selectNamespaces(b *testing.B, f *fleet) {
	b.Helper()
	cp := permission(selected)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{selected: "true"}}
	for i := range *cp.Spec.Roles {
		(*cp.Spec.Roles)[i].Namespace, (*cp.Spec.Roles)[i].NamespaceSelector = "", selector
	}
	for i := range *cp.Spec.RoleBindings {
		(*cp.Spec.RoleBindings)[i].Namespace, (*cp.Spec.RoleBindings)[i].NamespaceSelector = "", selector
	}
	if _, err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Create(context.Background(), cp, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// watchRoles records the namespaces of the managed cluster that have the Role.
func watchRoles(b *testing.B, f *fleet) *arrivals {
	b.Helper()
	a := newArrivals()
	factory := informers.NewSharedInformerFactory(f.managed, 0)
	// An arrival is complete after two bindings. One Role counts as both.
	note := func(obj any, change int) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if role, ok := obj.(*rbacv1.Role); ok && role.Name == selected {
			a.note(&metav1.ObjectMeta{Name: role.Namespace}, change)
		}
	}
	if _, err := factory.Rbac().V1().Roles().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { note(obj, bindings) },
		DeleteFunc: func(obj any) { note(obj, -bindings) },
	}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return a
}

// known waits until the agent has reported namespaces to the hub.
func known(b *testing.B, f *fleet, namespaces []string) {
	b.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		reported, err := f.ocm.RbacV1alpha1().ClusterNamespaces(cluster1).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(namespaces, func(name string) bool {
			return !slices.ContainsFunc(reported.Items, func(n rbacv1alpha1.ClusterNamespace) bool { return n.Name == name })
		}), nil
	})
	if err != nil {
		b.Fatal(fmt.Errorf("waiting until the namespaces are reported: %w", err))
	}
}
