package apiserver

import (
	"context"
	"maps"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
)

// NamespaceSource determines which namespaces the namespaceSelectors of ClusterPermissions match.
type NamespaceSource string

const (
	// NamespacesOfCluster are the namespaces of the managed cluster, as its agent reports them.
	NamespacesOfCluster NamespaceSource = "Cluster"
	// NamespacesOfHub are the namespaces of the hub, as in the upstream controller.
	NamespacesOfHub NamespaceSource = "Hub"
)

var NamespaceSources = []NamespaceSource{NamespacesOfCluster, NamespacesOfHub}

func (a *assembly) newDeliverer() *permissions.Deliverer {
	clients, informers, roles := a.server.clients, a.server.informers, a.server.hubRoles.Rbac().V1()
	namespaces := permissions.ManagedNamespaces(informers.own.Rbac().V1alpha1().ClusterNamespaces())
	if a.extra.NamespaceSource == NamespacesOfHub {
		// Admission uses the same informer.
		namespaces = permissions.HubNamespaces(a.generic.SharedInformerFactory.Core().V1().Namespaces())
	}
	deliverer := &permissions.Deliverer{
		Permissions:       clients.own.RbacV1alpha1(),
		CachedPermissions: informers.own.Rbac().V1alpha1().ClusterPermissions().Lister(),
		Works:             clients.works.WorkV1(),
		CachedWorks:       informers.works.Work().V1().ManifestWorks().Lister(),
		Present:           a.presence.Check,
		Sources: &permissions.Sources{
			Accounts:           clients.accounts.AuthenticationV1beta1(),
			CachedAccounts:     informers.accounts.Authentication().V1beta1().ManagedServiceAccounts().Lister(),
			Addons:             a.server.addons,
			HubRoles:           a.server.hub.RbacV1(),
			CachedRoles:        roles.Roles().Lister(),
			CachedClusterRoles: roles.ClusterRoles().Lister(),
			Namespaces:         namespaces,
		},
		SizeLimitBytes: a.extra.ManifestLimitBytes,
	}
	if executor := a.extra.WorkExecutor; executor != nil {
		deliverer.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: executor.Namespace, Name: executor.Name},
		}}
	}
	return deliverer
}

// onlyRules removes all metadata of a role except its identity and the labels that the server reads.
func onlyRules(obj any) (any, error) {
	switch role := obj.(type) {
	case *rbacv1.Role:
		role.ObjectMeta = identityOf(&role.ObjectMeta)
	case *rbacv1.ClusterRole:
		kept := maps.Clone(role.Labels)
		maps.DeleteFunc(kept, func(key, _ string) bool {
			return key != visibility.DefaultRoleLabel && key != clusterviewv1alpha1.DiscoverableLabel
		})
		role.ObjectMeta, role.AggregationRule = identityOf(&role.ObjectMeta), nil
		if len(kept) > 0 {
			role.Labels = kept
		}
	}
	return obj, nil
}

// identityOf returns the metadata that identifies an object and its version.
func identityOf(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
}

// followAddons builds the ManagedClusterAddOns of upstream agents for accounts. The hub may begin to serve
// ManagedClusterAddOns later.
func (s *Server) followAddons() (err error) {
	own, served := s.clients.addons == s.clients.own, &atomic.Bool{}
	served.Store(own)
	// Hubs may have upstream agents from before this server served add-ons.
	if s.addons, err = permissions.NewAccountAddons(s.clients.addons, served.Load, own); err != nil {
		return err
	}
	watch := func(ctx context.Context) {
		served.Store(true)
		s.addons.Informer().RunWithContext(ctx)
	}
	if !own {
		watch = s.whenServed(addonv1alpha1.SchemeGroupVersion.WithResource("managedclusteraddons"), watch)
	}
	s.hooks["account-addons"] = watch
	return nil
}
