package apiserver

import (
	"context"
	"fmt"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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
func (c CompletedConfig) deliverer(clients *clients, informers informerFactories, hub kubernetes.Interface, roles rbacinformers.Interface, addons *hubAddons) *worksync.Deliverer {
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

// hubAddons are the ManagedClusterAddOns of a hub, from when it has them.
type hubAddons struct {
	*worksync.HubAddons
	hub    discovery.DiscoveryInterface
	served atomic.Bool
}

func newHubAddons(config *rest.Config) (*hubAddons, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the hub's client: %w", err)
	}
	a := &hubAddons{}
	if a.hub, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, fmt.Errorf("building the hub's client: %w", err)
	}
	a.HubAddons, err = worksync.NewHubAddons(client, a.served.Load)
	return a, err
}

// run watches the addons until ctx ends.
func (a *hubAddons) run(ctx context.Context) {
	if !waitUntilServed(ctx, a.hub, worksync.AddonResource) {
		return
	}
	a.served.Store(true)
	a.Informer().RunWithContext(ctx)
}
