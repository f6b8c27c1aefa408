package fleetreview

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// deliveries are the names of the ClusterPermissions that delivered a binding, by cluster.
type deliveries map[rbac.Key]map[string]string

// deliveriesTo returns the deliveries to clusters.
func (o Options) deliveriesTo(clusters []string) (deliveries, error) {
	all := deliveries{}
	for _, cluster := range clusters {
		names, err := o.deliveredBy(cluster)
		if err != nil {
			return nil, err
		}
		for binding, name := range names {
			if all[binding] == nil {
				all[binding] = map[string]string{}
			}
			all[binding][cluster] = name
		}
	}
	return all, nil
}

// deliveredBy returns the names of the ClusterPermissions that delivered the bindings of a cluster, the oldest if there are
// several. It reads their status, which only the server writes: authors of ManifestWorks choose the owner references,
// annotations and manifests of these.
func (o Options) deliveredBy(cluster string) (map[rbac.Key]string, error) {
	permissions, err := o.Permissions.ClusterPermissions(cluster).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	by := map[rbac.Key]*rbacv1alpha1.ClusterPermission{}
	for _, permission := range permissions {
		add := func(key rbac.Key, conditions []metav1.Condition) {
			if first := by[key]; meta.IsStatusConditionTrue(conditions, rbacv1alpha1.ConditionResourceApplied) && (first == nil || older(permission, first)) {
				by[key] = permission
			}
		}
		if applied := permission.Status.ResourceStatus; applied != nil {
			for _, b := range applied.ClusterRoleBindings {
				add(rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: b.Name}, b.Conditions)
			}
			for _, b := range applied.RoleBindings {
				add(rbac.Key{Kind: rbac.KindRoleBinding, Namespace: b.Namespace, Name: b.Name}, b.Conditions)
			}
		}
	}
	names := make(map[rbac.Key]string, len(by))
	for key, permission := range by {
		names[key] = permission.Name
	}
	return names, nil
}

func older(a, b *rbacv1alpha1.ClusterPermission) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}
