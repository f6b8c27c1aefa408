package clusterpermission

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// TestNewNamespaceIsDelivered checks that the ManifestWork contains the objects of a new namespace half a second after
// its report, also while other namespaces change all the time. The agent needs the rest of the documented second.
func TestNewNamespaceIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, own := kubefake.NewClientset(), fake.NewSimpleClientset()
		kube, informers := kubeinformers.NewSharedInformerFactory(hub, 0), externalversions.NewSharedInformerFactory(own, 0)
		from := Informers{
			Permissions: informers.Rbac().V1alpha1().ClusterPermissions(), Works: informers.Work().V1().ManifestWorks(),
			Clusters: informers.Cluster().V1().ManagedClusters(), Accounts: informers.Authentication().V1beta1().ManagedServiceAccounts(),
			Addons: informers.Addon().V1beta1().ManagedClusterAddOns().Informer(),
			Roles:  kube.Rbac().V1().Roles(), ClusterRoles: kube.Rbac().V1().ClusterRoles(),
		}
		c, err := NewController(&permissions.Deliverer{
			Permissions: own.RbacV1alpha1(), Works: own.WorkV1(),
			Sources: &permissions.Sources{
				HubRoles: hub.RbacV1(), CachedRoles: from.Roles.Lister(), CachedClusterRoles: from.ClusterRoles.Lister(),
				Namespaces: permissions.ManagedNamespaces(informers.Rbac().V1alpha1().ClusterNamespaces()),
			},
		}, from)
		if err != nil {
			t.Fatal(err)
		}
		report := func(name string) {
			_, err := own.RbacV1alpha1().ClusterNamespaces("cluster1").Create(t.Context(), &rbacv1alpha1.ClusterNamespace{
				ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name, Labels: map[string]string{"team": "shop"}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
			}
		}
		report("first")
		cp := permission(func(cp *rbacv1alpha1.ClusterPermission) {
			cp.Spec = rbacv1alpha1.ClusterPermissionSpec{Roles: &[]rbacv1alpha1.Role{{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}},
				Rules:             []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
			}}}
		})
		if err := own.Tracker().Add(cp); err != nil {
			t.Fatal(err)
		}
		if err := own.Tracker().Add(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		kube.Start(ctx.Done())
		informers.Start(ctx.Done())
		defer func() {
			cancel()
			running.Wait()
			kube.Shutdown()
			informers.Shutdown()
		}()
		time.Sleep(10 * time.Second)

		others, stop := context.WithCancel(ctx)
		running.Go(func() {
			for i := 0; others.Err() == nil; i++ {
				report(fmt.Sprint("other-", i))
				time.Sleep(50 * time.Millisecond)
			}
		})
		report("new")
		time.Sleep(500 * time.Millisecond)
		stop()
		work, err := own.WorkV1().ManifestWorks("cluster1").Get(t.Context(), render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		delivered := map[string]bool{}
		for _, object := range permissions.Objects(work) {
			delivered[object.Namespace] = true
		}
		if !delivered["first"] || !delivered["new"] {
			t.Errorf("namespaces with objects = %v half a second after the report, want first and new", delivered)
		}
	})
}
