// Package clustermanagementaddon serves ClusterManagementAddOns.
package clustermanagementaddon

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/validation"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition returns the row of ClusterManagementAddOns.
func Definition() definition.Resource {
	return definition.Resource{
		Name: "clustermanagementaddons", Singular: "clustermanagementaddon", Kind: "ClusterManagementAddOn",
		ShortNames: []string{"cma", "cmas"}, Categories: []string{"ocm"},
		ClusterScoped: true,
		Versions:      []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion},
		// v1alpha1 has fields that v1beta1 lacks.
		Stored:  v1alpha1.SchemeGroupVersion,
		New:     func() runtime.Object { return &addon.ClusterManagementAddOn{} },
		NewList: func() runtime.Object { return &addon.ClusterManagementAddOnList{} },
		Strategy: &definition.Strategy[*addon.ClusterManagementAddOn]{
			Spec:                 func(a *addon.ClusterManagementAddOn) any { return &a.Spec },
			Status:               func(a *addon.ClusterManagementAddOn) any { return &a.Status },
			Validate:             validation.ValidateClusterManagementAddOn,
			ValidateUpdate:       validation.ValidateClusterManagementAddOnUpdate,
			ValidateStatusUpdate: validation.ValidateClusterManagementAddOnStatusUpdate,
		},
		Columns: definition.Columns[*addon.ClusterManagementAddOn]{
			{Name: "Display Name", Description: "Display name of the add-on.", Value: func(a *addon.ClusterManagementAddOn) any { return a.Spec.AddOnMeta.DisplayName }},
			{Name: "Install Strategy", Description: "How the clusters of the add-on are chosen.", Wide: true, Value: func(a *addon.ClusterManagementAddOn) any {
				return a.Spec.InstallStrategy.Type
			}},
		},
	}
}
