package apiserver

import (
	"context"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/worksync"
)

// NamespaceSource says where namespaceSelectors of ClusterPermissions select from.
type NamespaceSource string

const (
	// NamespacesOfCluster are those of the managed cluster, as its agent reports them.
	NamespacesOfCluster NamespaceSource = "Cluster"
	// NamespacesOfHub are those of the hub, as today's public controller has it.
	NamespacesOfHub NamespaceSource = "Hub"
)

// NamespaceSources are all that there are.
var NamespaceSources = []NamespaceSource{NamespacesOfCluster, NamespacesOfHub}

// deliverer carries ClusterPermissions to managed clusters.
func (c CompletedConfig) deliverer(clients *clients, informers informerFactories, hub kubernetes.Interface, roles rbacinformers.Interface, addons *accountAddons) *worksync.Deliverer {
	var namespaces worksync.Namespaces
	if c.extra.NamespaceSource == NamespacesOfHub {
		// Admission watches them anyway.
		namespaces = worksync.HubNamespaces(c.generic.SharedInformerFactory.Core().V1().Namespaces())
	} else {
		namespaces = worksync.ManagedNamespaces(informers.own.Rbac().V1alpha1().ClusterNamespaces())
	}
	deliverer := &worksync.Deliverer{
		Permissions:       clients.own.RbacV1alpha1(),
		CachedPermissions: informers.own.Rbac().V1alpha1().ClusterPermissions().Lister(),
		Works:             clients.works.WorkV1(),
		CachedWorks:       informers.works.Work().V1().ManifestWorks().Lister(),
		Clusters:          clients.clusters.ClusterV1(),
		CachedClusters:    informers.clusters.Cluster().V1().ManagedClusters().Lister(),
		Sources: &worksync.Sources{
			Accounts:           clients.accounts.AuthenticationV1beta1(),
			CachedAccounts:     informers.accounts.Authentication().V1beta1().ManagedServiceAccounts().Lister(),
			Addons:             addons,
			HubRoles:           hub.RbacV1(),
			CachedRoles:        roles.Roles().Lister(),
			CachedClusterRoles: roles.ClusterRoles().Lister(),
			Namespaces:         namespaces,
		},
		SizeLimitBytes: c.extra.ManifestLimitBytes,
	}
	if executor := c.extra.WorkExecutor; executor != nil {
		deliverer.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: executor.Namespace, Name: executor.Name},
		}}
	}
	return deliverer
}

// onlyRules keeps of a role what can be delivered of it, and whether every cluster has it.
func onlyRules(obj any) (any, error) {
	kept := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
	}
	switch role := obj.(type) {
	case *rbacv1.Role:
		role.ObjectMeta = kept(role.ObjectMeta)
	case *rbacv1.ClusterRole:
		origin, known := role.Labels[visibility.DefaultRoleLabel]
		role.ObjectMeta, role.AggregationRule = kept(role.ObjectMeta), nil
		if known {
			role.Labels = map[string]string{visibility.DefaultRoleLabel: origin}
		}
	}
	return obj, nil
}

// accountAddons are the ManagedClusterAddOns of the public agent for accounts, from when there
// are ManagedClusterAddOns.
type accountAddons struct {
	*worksync.AccountAddons
	hub    discovery.DiscoveryInterface
	served atomic.Bool
}

func newAccountAddons(clients *clients, hub discovery.DiscoveryInterface) (_ *accountAddons, err error) {
	a := &accountAddons{hub: hub}
	own := clients.addons == clients.own
	a.served.Store(own)
	// Public agents were installed on hubs of this server before it served addons.
	a.AccountAddons, err = worksync.NewAccountAddons(clients.addons, a.served.Load, own)
	return a, err
}

// run watches the addons until ctx ends.
func (a *accountAddons) run(ctx context.Context) {
	if !a.served.Load() {
		if !waitUntilServed(ctx, a.hub, addonv1alpha1.SchemeGroupVersion.WithResource("managedclusteraddons")) {
			return
		}
		a.served.Store(true)
	}
	a.Informer().RunWithContext(ctx)
}
