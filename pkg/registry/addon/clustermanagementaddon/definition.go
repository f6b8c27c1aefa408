// Package clustermanagementaddon serves ClusterManagementAddOns.
package clustermanagementaddon

import (
	"context"
	"strings"

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
		Stored: v1alpha1.SchemeGroupVersion,
		Strategy: &definition.Strategy[*addon.ClusterManagementAddOn]{
			PrepareForUpdate: keepConfiguration,
			Rules:            validation.ClusterManagementAddOn,
			Words: map[schema.GroupVersion]*strings.Replacer{v1beta1.SchemeGroupVersion: strings.NewReplacer(
				"spec.supportedConfigs", "spec.defaultConfigs", "].defaultConfig.", "].", "status.defaultconfigReferences", "status.defaultConfigReferences")},
			Warnings: validation.WarningsForClusterManagementAddOn,
		},
		Columns: definition.Columns[*addon.ClusterManagementAddOn]{
			{Name: "Display Name", Description: "Display name of the add-on.", Value: func(a *addon.ClusterManagementAddOn) any { return a.Spec.AddOnMeta.DisplayName }},
			{Name: "Install Strategy", Description: "How the clusters of the add-on are chosen.", Wide: true, Value: func(a *addon.ClusterManagementAddOn) any {
				return a.Spec.InstallStrategy.Type
			}},
		},
	}
}

// keepConfiguration keeps the field that v1beta1 lacks in a write of that version, which would clear it.
func keepConfiguration(ctx context.Context, a, old *addon.ClusterManagementAddOn) {
	if definition.RequestVersion(ctx) == v1beta1.SchemeGroupVersion {
		a.Spec.AddOnConfiguration = old.Spec.AddOnConfiguration
	}
}
