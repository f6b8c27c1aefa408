package search

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const clusterViewRole = "open-cluster-management:clusterview:use"

// viewer returns a user with permission for the views, but not for any cluster.
func (f *fleet) viewer(t *testing.T) *caller {
	t.Helper()
	c := newCaller(t, f.Hub, framework.Unique("viewer"))
	c.bindEverywhere(t, clusterViewRole)
	return c
}

// gets grants permission to get objects of the group of ManagedClusters.
func (c *caller) gets(t *testing.T, resource string, names ...string) func() {
	t.Helper()
	return c.mayEverywhere(t, rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupName}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get"}})
}

// makeCluster creates a ManagedCluster that nobody accepts.
func (f *fleet) makeCluster(t *testing.T) string {
	t.Helper()
	name := framework.Unique("viewed")
	_, err := f.OCM.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.dropCluster(t, name) })
	return name
}

func (f *fleet) dropCluster(t *testing.T, name string) {
	t.Helper()
	err := f.OCM.ClusterV1().ManagedClusters().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// viewed returns the ManagedClusters that a caller sees.
func (c *caller) viewed(ctx context.Context) ([]string, error) {
	list, err := c.OCM.ClusterviewV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, nil
}

func (c *caller) awaitViewed(t *testing.T, want ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s sees %v", c.Name, want), func(ctx context.Context) error {
		names, err := c.viewed(ctx)
		if err == nil && !slices.Equal(names, slices.Sorted(slices.Values(want))) {
			err = fmt.Errorf("%s sees %v", c.Name, names)
		}
		return err
	})
}

// TestClusterViews checks that callers see the ManagedClusters and sets that they may get, and no others.
func TestClusterViews(t *testing.T) {
	t.Parallel()
	f := shared(t)
	one, two, other := f.makeCluster(t), f.makeCluster(t), f.makeCluster(t)
	viewer := f.viewer(t)
	viewer.awaitViewed(t)
	viewer.gets(t, "managedclusters", one, two, "missing")
	viewer.awaitViewed(t, one, two)

	ctx := t.Context()
	for name, want := range map[string]func(error) bool{
		one: func(err error) bool { return err == nil }, "missing": apierrors.IsNotFound, other: apierrors.IsForbidden, "never": apierrors.IsForbidden,
	} {
		got, err := viewer.OCM.ClusterviewV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if !want(err) || err == nil && got.Name != name {
			t.Errorf("get of %s = %v, %v", name, got.Name, err)
		}
	}
	exact := func(name string) string {
		_, err := viewer.OCM.ClusterviewV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		return strings.ReplaceAll(err.Error(), name, "NAME")
	}
	if existing, missing := exact(other), exact("never"); existing != missing {
		t.Errorf("message for an existing cluster = %q, for a missing one = %q, want the same", existing, missing)
	}
	list, err := viewer.OCM.ClusterviewV1().ManagedClusters().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + two})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != two {
		t.Errorf("list by name = %v, %v, want %s", list, err, two)
	}
	if _, err := viewer.OCM.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list of the group cluster.open-cluster-management.io = %v, want 403", err)
	}
	all, err := f.OCM.ClusterviewV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil || !slices.ContainsFunc(all.Items, func(c clusterviewv1.ManagedCluster) bool { return c.Name == other }) {
		t.Errorf("list of an administrator = %v, %v, want all clusters", all, err)
	}

	set := framework.Unique("viewed")
	if _, err := f.OCM.ClusterV1beta2().ManagedClusterSets().Create(ctx, &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: set}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.OCM.ClusterV1beta2().ManagedClusterSets().Delete(context.WithoutCancel(ctx), set, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	sets := viewer.OCM.ClusterviewV1alpha1().ManagedClusterSets()
	if found, err := sets.List(ctx, metav1.ListOptions{}); err != nil || len(found.Items) != 0 {
		t.Errorf("sets without permission = %v, %v, want none", found, err)
	}
	viewer.gets(t, "managedclustersets", set)
	framework.Eventually(t, "the caller sees the set", func(ctx context.Context) error {
		found, err := sets.List(ctx, metav1.ListOptions{})
		if err == nil && (len(found.Items) != 1 || found.Items[0].Name != set) {
			err = fmt.Errorf("sets = %v", found.Items)
		}
		return err
	})

	table := viewer.printed(t, "", "get", "mcv")
	if !strings.Contains(table, one) || strings.Contains(table, other) || !strings.Contains(table, "AVAILABLE") {
		t.Errorf("kubectl get mcv = %s", table)
	}
	if out, err := viewer.Kubectl(t, "", "get", "managedclusters"); err == nil || !strings.Contains(out+err.Error(), "cluster.open-cluster-management.io") {
		t.Errorf("kubectl get managedclusters = %s, %v, want an error of the group cluster.open-cluster-management.io", out, err)
	}
}

// TestClusterViewWatch follows a view with an informer of client-go while objects and permissions change.
func TestClusterViewWatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	one, two := f.makeCluster(t), f.makeCluster(t)
	viewer := f.viewer(t)
	viewer.awaitViewed(t)

	var mu sync.Mutex
	known := map[string]string{} // by name, the value of a label
	seen := map[string]struct{}{}
	informer := externalversions.NewSharedInformerFactory(viewer.OCM, 0).Clusterview().V1().ManagedClusters().Informer()
	record := func(obj any) {
		if c, ok := obj.(*clusterviewv1.ManagedCluster); ok {
			mu.Lock()
			defer mu.Unlock()
			known[c.Name], seen[c.Name] = c.Labels["step"], struct{}{}
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: record, UpdateFunc: func(_, obj any) { record(obj) },
		DeleteFunc: func(obj any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			delete(known, key)
		},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { informer.RunWithContext(ctx) })
	await := func(what string, want map[string]string) {
		t.Helper()
		framework.Eventually(t, what, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if !informer.HasSynced() || !maps.Equal(known, want) {
				return fmt.Errorf("synced %t, known %v, want %v", informer.HasSynced(), known, want)
			}
			return nil
		})
	}
	label := func(name, step string) {
		t.Helper()
		patch := []byte(`{"metadata":{"labels":{"step":"` + step + `"}}}`)
		if _, err := f.OCM.ClusterV1().ManagedClusters().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	await("the informer has synced without clusters", map[string]string{})
	revoke := viewer.gets(t, "managedclusters", one)
	await("a granted cluster is added", map[string]string{one: ""})
	label(one, "1")
	label(two, "1")
	await("a change is reported", map[string]string{one: "1"})
	viewer.gets(t, "managedclusters", two)
	await("another granted cluster is added", map[string]string{one: "1", two: "1"})
	revoked := time.Now()
	revoke()
	await("a revoked cluster is deleted", map[string]string{two: "1"})
	framework.Soon(t, "the watch follows the revocation", revoked, followed)
	label(one, "2")
	label(two, "2")
	await("changes continue", map[string]string{two: "2"})
	f.dropCluster(t, two)
	await("a deleted cluster is deleted", map[string]string{})
	mu.Lock()
	defer mu.Unlock()
	delete(seen, one)
	delete(seen, two)
	if len(seen) > 0 {
		t.Errorf("the watch showed %v, want only the granted clusters", seen)
	}
}

// TestClusterViewResume checks that a watch continues from a list if nothing has changed, and that clients list again
// otherwise: permissions have no version, so the server cannot repeat the events.
func TestClusterViewResume(t *testing.T) {
	t.Parallel()
	f := shared(t)
	one := f.makeCluster(t)
	viewer := f.viewer(t)
	revoke := viewer.gets(t, "managedclusters", one)
	viewer.awaitViewed(t, one)
	views := viewer.OCM.ClusterviewV1().ManagedClusters()
	ctx := t.Context()
	listed, err := views.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := views.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion})
	if err != nil {
		t.Fatalf("watch from the version of a list = %v, want none", err)
	}
	revoke()
	event, open := <-watcher.ResultChan()
	if !open || event.Type != "DELETED" {
		t.Errorf("first event after the list = %v, want DELETED", event)
	}
	watcher.Stop()
	viewer.awaitViewed(t)
	if watcher, err := views.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion}); !apierrors.IsResourceExpired(err) {
		if err == nil {
			watcher.Stop()
		}
		t.Errorf("watch from the version of a list with other permissions = %v, want 410", err)
	}
	viewer.gets(t, "managedclusters", one)
	viewer.awaitViewed(t, one)
	watcher, err = views.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion})
	if err != nil {
		t.Fatalf("watch from a version with the same content = %v, want none", err)
	}
	watcher.Stop()
}
