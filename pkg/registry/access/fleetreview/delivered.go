package fleetreview

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
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

// deliveredBy returns the names of the ClusterPermissions that delivered the bindings of a cluster. The status of their
// ManifestWorks contains the objects that are applied.
func (o Options) deliveredBy(cluster string) (map[rbac.Key]string, error) {
	works, err := o.Works.ManifestWorks(cluster).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	names := map[rbac.Key]string{}
	for _, work := range works {
		owner := metav1.GetControllerOf(work)
		if owner == nil || owner.Kind != "ClusterPermission" || owner.APIVersion != rbacv1alpha1.SchemeGroupVersion.String() {
			continue
		}
		for i := range work.Status.ResourceStatus.Manifests {
			m := &work.Status.ResourceStatus.Manifests[i]
			binding := m.ResourceMeta.Kind == rbac.KindRoleBinding || m.ResourceMeta.Kind == rbac.KindClusterRoleBinding
			if binding && m.ResourceMeta.Group == rbacv1.GroupName && meta.IsStatusConditionTrue(m.Conditions, workv1.WorkApplied) {
				names[rbac.Key{Kind: m.ResourceMeta.Kind, Namespace: m.ResourceMeta.Namespace, Name: m.ResourceMeta.Name}] = owner.Name
			}
		}
	}
	return names, nil
}
