package clusterpermission

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

const (
	// byOwner indexes ManifestWorks by namespace/name of the ClusterPermission that controls them.
	byOwner = "byClusterPermission"
	// byAccount indexes ClusterPermissions by namespace/name of their ManagedServiceAccounts.
	byAccount = "byManagedServiceAccount"
	// byHubRole indexes ClusterPermissions by the hub roles to which they refer.
	byHubRole = "byHubRole"
	// bySelector indexes ClusterPermissions with namespace selectors by their cluster, and by the empty string.
	bySelector = "byNamespaceSelector"
)

var workIndexers = cache.Indexers{byOwner: reconcile.IndexNames(ownerKeys)}

var permissionIndexers = cache.Indexers{
	byAccount: reconcile.IndexNames(func(permission *rbacv1alpha1.ClusterPermission) []cache.ObjectName {
		var out []cache.ObjectName
		for _, name := range render.AccountNames(permission) {
			out = append(out, cache.NewObjectName(permission.Namespace, name))
		}
		return out
	}),
	byHubRole: reconcile.Index(func(permission *rbacv1alpha1.ClusterPermission) []string {
		var out []string
		for _, key := range render.HubRoleKeys(permission) {
			out = append(out, key.String())
		}
		return out
	}),
	bySelector: reconcile.Index(func(permission *rbacv1alpha1.ClusterPermission) []string {
		if !render.HasSelectors(permission) {
			return nil
		}
		return []string{permission.Namespace, ""}
	}),
}

// indexed returns the ClusterPermissions under a value of an index.
func (c *Controller) indexed(index, value string) []*rbacv1alpha1.ClusterPermission {
	return reconcile.Indexed[*rbacv1alpha1.ClusterPermission](c.Permissions.Informer().GetIndexer(), index, value)
}

// ownerKeys returns the ClusterPermission that controls a ManifestWork.
func ownerKeys(work *workv1.ManifestWork) []cache.ObjectName {
	owner := controllingPermission(work)
	if owner == nil {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName(work.Namespace, owner.Name)}
}

// clusterKeys returns the ClusterPermissions for a ManagedCluster.
func (c *Controller) clusterKeys(cluster metav1.Object) []cache.ObjectName {
	return reconcile.Listed(c.Permissions.Lister().ClusterPermissions(cluster.GetName()).List(labels.Everything()))
}

// accountKeys returns the ClusterPermissions that name an account.
func (c *Controller) accountKeys(account *authenticationv1beta1.ManagedServiceAccount) []cache.ObjectName {
	return reconcile.Names(c.indexed(byAccount, cache.MetaObjectToName(account).String()))
}

// sameAccount reports whether an update of an account keeps its ServiceAccount on the managed cluster, with every agent.
func sameAccount(a, b *authenticationv1beta1.ManagedServiceAccount) bool {
	noAgent := render.PublicAgent{Absent: "none"}
	before, absentBefore := render.ServiceAccount(a, noAgent)
	after, absentAfter := render.ServiceAccount(b, noAgent)
	return before == after && absentBefore == absentAfter
}

// addonKeys returns the ClusterPermissions for the cluster of an add-on.
func (c *Controller) addonKeys(addon metav1.Object) []cache.ObjectName {
	return reconcile.Listed(c.Permissions.Lister().ClusterPermissions(addon.GetNamespace()).List(labels.Everything()))
}

// allKeys returns all ClusterPermissions. When all add-ons are cached, the clusters without the add-on are known.
func (c *Controller) allKeys() []cache.ObjectName {
	return reconcile.Listed(c.Permissions.Lister().List(labels.Everything()))
}

// roleKeys returns the ClusterPermissions that refer to a hub role.
func (c *Controller) roleKeys(obj any) []cache.ObjectName {
	var key render.ObjectKey
	switch role := obj.(type) {
	case *rbacv1.ClusterRole:
		key = render.ObjectKey{Kind: rbac.KindClusterRole, Name: role.Name}
	case *rbacv1.Role:
		key = render.ObjectKey{Kind: rbac.KindRole, Namespace: role.Namespace, Name: role.Name}
	default:
		return nil
	}
	return reconcile.Names(c.indexed(byHubRole, key.String()))
}

// namespaceKeys returns the ClusterPermissions that select a namespace, or that wait for the first
// report of namespaces.
func (c *Controller) namespaceKeys(namespace metav1.Object) []cache.ObjectName {
	set := labels.Set(namespace.GetLabels())
	var out []cache.ObjectName
	for _, permission := range c.indexed(bySelector, c.deliverer.Sources.Namespaces.Cluster(namespace)) {
		selected := meta.FindStatusCondition(permission.Status.Conditions, rbacv1alpha1.ConditionNamespacesSelected)
		waiting := selected == nil || selected.Status == metav1.ConditionUnknown
		if waiting || slices.ContainsFunc(render.Selectors(permission), func(s labels.Selector) bool { return s.Matches(set) }) {
			out = append(out, cache.MetaObjectToName(permission))
		}
	}
	return out
}

// sameNamespace reports whether an update of a namespace keeps the selectors that match it.
func sameNamespace(a, b metav1.Object) bool {
	return maps.Equal(a.GetLabels(), b.GetLabels()) &&
		(a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil)
}
