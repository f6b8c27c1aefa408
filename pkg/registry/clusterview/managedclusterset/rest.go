// Package managedclusterset serves the ManagedClusterSets that the caller may get.
package managedclusterset

import (
	"k8s.io/client-go/tools/cache"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// NewREST returns the storage. The informer is of ManagedClusterSets.
func NewREST(sets cache.SharedIndexInformer, scopes search.Scopes) (*view.REST, error) {
	source, err := view.NewSource(clusterviewv1alpha1.Resource("managedclustersets"), sets, scopes, func(source view.Object) view.Object {
		s := source.(*clusterv1beta2.ManagedClusterSet)
		return &clusterviewv1alpha1.ManagedClusterSet{ObjectMeta: s.ObjectMeta, Spec: s.Spec, Status: s.Status}
	})
	if err != nil {
		return nil, err
	}
	return view.NewREST(view.Options{
		Base: definition.Base{
			Object: &clusterviewv1alpha1.ManagedClusterSet{}, Objects: &clusterviewv1alpha1.ManagedClusterSetList{},
			Singular: "managedclusterset", Short: []string{"mcsv", "mcsvs"},
		},
		Lister: source,
		Table: definition.NewTableConvertor(definition.Columns[*clusterviewv1alpha1.ManagedClusterSet]{
			{Name: "Empty", Description: "Whether the set has no clusters.", Condition: clusterv1beta2.ConditionClusterSetEmpty},
		}),
	}), nil
}
