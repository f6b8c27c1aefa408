// Package managedclusteraddon serves ManagedClusterAddOns.
package managedclusteraddon

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/validation"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition returns the row of ManagedClusterAddOns.
func Definition() definition.Resource {
	return definition.Resource{
		Name: "managedclusteraddons", Singular: "managedclusteraddon", Kind: "ManagedClusterAddOn",
		ShortNames: []string{"mca", "mcas"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion},
		// v1alpha1 has fields that v1beta1 lacks.
		Stored: v1alpha1.SchemeGroupVersion,
		Strategy: &definition.Strategy[*addon.ManagedClusterAddOn]{
			PrepareForCreate: func(_ context.Context, a *addon.ManagedClusterAddOn) { defaultNamespace(a) },
			PrepareForUpdate: func(_ context.Context, a, _ *addon.ManagedClusterAddOn) { defaultNamespace(a) },
			PrepareForStatusUpdate: func(ctx context.Context, a, old *addon.ManagedClusterAddOn) {
				if definition.RequestVersion(ctx) == v1beta1.SchemeGroupVersion {
					keepAlphaStatus(&a.Status, &old.Status)
				}
			},
			Rules: validation.ManagedClusterAddOn,
			Words: map[schema.GroupVersion]*strings.Replacer{v1beta1.SchemeGroupVersion: strings.NewReplacer(
				"spec.installNamespace", "metadata.annotations["+v1beta1.InstallNamespaceAnnotation+"]",
				"].signerName", "].customSigner.signerName",
				"status.kubeClientDriver", "status.registrations[].kubeClient.driver")},
		},
		Quota:  quota.Limits{Objects: 500, Bytes: 16 << 20},
		Limits: quota.ObjectLimits{SpecBytes: 64 << 10},
		Columns: definition.Columns[*addon.ManagedClusterAddOn]{
			{Name: "Available", Description: "Whether the agent of the add-on runs.", Condition: v1alpha1.ConditionAvailable},
			{Name: "Degraded", Description: "Whether the add-on is only partly functional.", Condition: v1alpha1.ConditionDegraded},
			{Name: "Progressing", Description: "Whether the add-on is being installed, configured or upgraded.", Condition: v1alpha1.ConditionProgressing},
		},
	}
}

// defaultNamespace stores the default install namespace of v1alpha1. v1beta1 has no default for it.
func defaultNamespace(a *addon.ManagedClusterAddOn) {
	if a.Spec.InstallNamespace == "" {
		a.Spec.InstallNamespace = v1alpha1.DefaultInstallNamespace
	}
}

// keepAlphaStatus keeps the fields that v1beta1 lacks in a write of that version, which would clear them.
func keepAlphaStatus(status, old *v1alpha1.ManagedClusterAddOnStatus) {
	status.AddOnConfiguration = old.AddOnConfiguration
	for i := range status.ConfigReferences {
		// The conversion takes the deprecated name from desiredConfig, if that is set.
		if reference := &status.ConfigReferences[i]; reference.DesiredConfig == nil {
			same := slices.IndexFunc(old.ConfigReferences, func(o v1alpha1.ConfigReference) bool {
				return o.DesiredConfig == nil && equality.Semantic.DeepEqual(o.ConfigGroupResource, reference.ConfigGroupResource)
			})
			if same >= 0 {
				reference.ConfigReferent = old.ConfigReferences[same].ConfigReferent
			}
		}
	}
	client := false
	for i := range status.Registrations {
		registration := &status.Registrations[i]
		if registration.SignerName != v1alpha1.KubeAPIServerClientSigner {
			continue
		}
		client = true
		same := slices.IndexFunc(old.Registrations, func(o v1alpha1.RegistrationConfig) bool {
			return o.SignerName == registration.SignerName && o.Subject.User == registration.Subject.User && slices.Equal(o.Subject.Groups, registration.Subject.Groups)
		})
		if same >= 0 {
			registration.Subject.OrganizationUnits = old.Registrations[same].Subject.OrganizationUnits
		}
	}
	if !client {
		status.KubeClientDriver = old.KubeClientDriver
	}
}
