// Package addondeploymentconfig serves AddOnDeploymentConfigs.
package addondeploymentconfig

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/validation"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition returns the row of AddOnDeploymentConfigs.
func Definition() definition.Resource {
	return definition.Resource{
		Name: "addondeploymentconfigs", Singular: "addondeploymentconfig", Kind: "AddOnDeploymentConfig",
		Categories: []string{"ocm"},
		Versions:   []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion},
		// v1alpha1 has fields that v1beta1 lacks.
		Stored: v1alpha1.SchemeGroupVersion,
		Strategy: &definition.Strategy[*addon.AddOnDeploymentConfig]{
			Rules: validation.AddOnDeploymentConfig,
		},
		Quota:   quota.Limits{Objects: 1_000, Bytes: 16 << 20},
		Columns: definition.Columns[*addon.AddOnDeploymentConfig]{},
	}
}
