// Package managedclustersetbinding serves ManagedClusterSetBindings.
package managedclustersetbinding

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster/validation"
	"open-cluster-management.io/hub-apiserver/pkg/authz/clusterset"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition returns the row of ManagedClusterSetBindings. authz decides whether a caller may bind
// a set.
func Definition(authz authorizer.Authorizer) definition.Resource {
	return definition.Resource{
		Name: "managedclustersetbindings", Singular: "managedclustersetbinding", Kind: "ManagedClusterSetBinding",
		ShortNames: []string{"mclsetbinding", "mclsetbindings"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{clusterv1beta2.SchemeGroupVersion},
		Strategy: &definition.Strategy[*cluster.ManagedClusterSetBinding]{
			Rules: validation.ManagedClusterSetBinding,
		},
		// Validation refuses an update that binds another set.
		Wrap: definition.Guard[*cluster.ManagedClusterSetBinding](func(ctx context.Context, b, old *cluster.ManagedClusterSetBinding) error {
			if old != nil {
				return nil
			}
			return clusterset.Bind(ctx, authz, b.Spec.ClusterSet)
		}).Wrap,
		Quota: quota.Limits{Objects: 1_000, Bytes: 4 << 20},
		Columns: definition.Columns[*cluster.ManagedClusterSetBinding]{
			{Name: "Bound", Description: "Whether the set exists.", Condition: clusterv1beta2.ConditionBound},
		},
	}
}
