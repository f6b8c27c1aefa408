package v1beta1

import (
	"cmp"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
)

// These conversions match the conversion webhook of OCM.

// Convert_v1beta1_ManagedClusterAddOn_To_addon_ManagedClusterAddOn also converts the annotation
// that is a field of the internal type.
func Convert_v1beta1_ManagedClusterAddOn_To_addon_ManagedClusterAddOn(in *ManagedClusterAddOn, out *addon.ManagedClusterAddOn, s conversion.Scope) error {
	if err := autoConvert_v1beta1_ManagedClusterAddOn_To_addon_ManagedClusterAddOn(in, out, s); err != nil {
		return err
	}
	out.Mismatches = mismatchesOf(in.Status.Registrations, out.Status.KubeClientDriver)
	namespace, ok := in.Annotations[InstallNamespaceAnnotation]
	if !ok {
		return nil
	}
	out.Spec.InstallNamespace = namespace
	// The generated conversion shares the map with the input.
	out.Annotations = maps.Clone(out.Annotations)
	delete(out.Annotations, InstallNamespaceAnnotation)
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	return nil
}

// Convert_addon_ManagedClusterAddOn_To_v1beta1_ManagedClusterAddOn also converts the field that is an
// annotation in this version.
func Convert_addon_ManagedClusterAddOn_To_v1beta1_ManagedClusterAddOn(in *addon.ManagedClusterAddOn, out *ManagedClusterAddOn, s conversion.Scope) error {
	if err := autoConvert_addon_ManagedClusterAddOn_To_v1beta1_ManagedClusterAddOn(in, out, s); err != nil {
		return err
	}
	if in.Spec.InstallNamespace == "" {
		return nil
	}
	out.Annotations = maps.Clone(out.Annotations)
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, InstallNamespaceAnnotation, in.Spec.InstallNamespace)
	return nil
}

// Convert_v1alpha1_ManagedClusterAddOnSpec_To_v1beta1_ManagedClusterAddOnSpec omits the field that is an annotation.
func Convert_v1alpha1_ManagedClusterAddOnSpec_To_v1beta1_ManagedClusterAddOnSpec(in *v1alpha1.ManagedClusterAddOnSpec, out *ManagedClusterAddOnSpec, s conversion.Scope) error {
	return autoConvert_v1alpha1_ManagedClusterAddOnSpec_To_v1beta1_ManagedClusterAddOnSpec(in, out, s)
}

// Convert_v1beta1_ManagedClusterAddOnStatus_To_v1alpha1_ManagedClusterAddOnStatus uses the first driver of the
// registrations of type kubeClient, since the internal type has one driver.
func Convert_v1beta1_ManagedClusterAddOnStatus_To_v1alpha1_ManagedClusterAddOnStatus(in *ManagedClusterAddOnStatus, out *v1alpha1.ManagedClusterAddOnStatus, s conversion.Scope) error {
	if err := autoConvert_v1beta1_ManagedClusterAddOnStatus_To_v1alpha1_ManagedClusterAddOnStatus(in, out, s); err != nil {
		return err
	}
	for _, registration := range in.Registrations {
		if registration.Type == KubeClient && registration.KubeClient != nil {
			out.KubeClientDriver = cmp.Or(out.KubeClientDriver, registration.KubeClient.Driver)
		}
	}
	return nil
}

// Convert_v1alpha1_ManagedClusterAddOnStatus_To_v1beta1_ManagedClusterAddOnStatus sets the driver of
// each registration of type kubeClient.
func Convert_v1alpha1_ManagedClusterAddOnStatus_To_v1beta1_ManagedClusterAddOnStatus(in *v1alpha1.ManagedClusterAddOnStatus, out *ManagedClusterAddOnStatus, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_ManagedClusterAddOnStatus_To_v1beta1_ManagedClusterAddOnStatus(in, out, s); err != nil {
		return err
	}
	for i := range out.Registrations {
		if client := out.Registrations[i].KubeClient; client != nil {
			client.Driver = in.KubeClientDriver
		}
	}
	return nil
}

// Convert_v1beta1_RegistrationConfig_To_v1alpha1_RegistrationConfig converts a type to its signer. Fields that do not
// belong to the type are lost; see mismatchesOf.
func Convert_v1beta1_RegistrationConfig_To_v1alpha1_RegistrationConfig(in *RegistrationConfig, out *v1alpha1.RegistrationConfig, s conversion.Scope) error {
	if in.Type == KubeClient {
		out.SignerName = v1alpha1.KubeAPIServerClientSigner
		if in.KubeClient != nil {
			subject := in.KubeClient.Subject
			out.Subject = v1alpha1.Subject{User: subject.User, Groups: subject.Groups}
		}
		return nil
	}
	if in.CustomSigner == nil {
		return nil
	}
	out.SignerName = in.CustomSigner.SignerName
	return Convert_v1beta1_Subject_To_v1alpha1_Subject(&in.CustomSigner.Subject, &out.Subject, s)
}

// mismatchesOf returns the registrations with fields that do not belong to their type or have another driver, which the
// conversion loses, for the validation.
func mismatchesOf(registrations []RegistrationConfig, driver string) []addon.RegistrationMismatch {
	var found []addon.RegistrationMismatch
	for i, in := range registrations {
		client, signer := in.KubeClient != nil, in.CustomSigner != nil
		switch {
		case in.Type == KubeClient && !signer:
			if client && in.KubeClient.Driver != "" && in.KubeClient.Driver != driver {
				found = append(found, addon.RegistrationMismatch{Index: i, Type: string(KubeClient), Driver: in.KubeClient.Driver})
			}
		case in.Type == CustomSigner && !client && signer && in.CustomSigner.SignerName != v1alpha1.KubeAPIServerClientSigner:
		default:
			found = append(found, addon.RegistrationMismatch{Index: i, Type: string(in.Type), KubeClient: client, CustomSigner: signer})
		}
	}
	return found
}

// Convert_v1alpha1_RegistrationConfig_To_v1beta1_RegistrationConfig converts a signer to its type.
func Convert_v1alpha1_RegistrationConfig_To_v1beta1_RegistrationConfig(in *v1alpha1.RegistrationConfig, out *RegistrationConfig, s conversion.Scope) error {
	if in.SignerName == v1alpha1.KubeAPIServerClientSigner {
		out.Type = KubeClient
		out.KubeClient = &KubeClientConfig{Subject: KubeClientSubject{BaseSubject{User: in.Subject.User, Groups: in.Subject.Groups}}}
		return nil
	}
	out.Type = CustomSigner
	out.CustomSigner = &CustomSignerConfig{SignerName: in.SignerName}
	return Convert_v1alpha1_Subject_To_v1beta1_Subject(&in.Subject, &out.CustomSigner.Subject, s)
}

// Convert_v1beta1_Subject_To_v1alpha1_Subject converts to the internal form.
func Convert_v1beta1_Subject_To_v1alpha1_Subject(in *Subject, out *v1alpha1.Subject, _ conversion.Scope) error {
	*out = v1alpha1.Subject{User: in.User, Groups: in.Groups, OrganizationUnits: in.OrganizationUnits}
	return nil
}

// Convert_v1alpha1_Subject_To_v1beta1_Subject converts from the internal form.
func Convert_v1alpha1_Subject_To_v1beta1_Subject(in *v1alpha1.Subject, out *Subject, _ conversion.Scope) error {
	*out = Subject{BaseSubject: BaseSubject{User: in.User, Groups: in.Groups}, OrganizationUnits: in.OrganizationUnits}
	return nil
}

// Convert_v1beta1_ConfigReference_To_v1alpha1_ConfigReference also sets the deprecated fields of v1alpha1.
func Convert_v1beta1_ConfigReference_To_v1alpha1_ConfigReference(in *ConfigReference, out *v1alpha1.ConfigReference, s conversion.Scope) error {
	if err := autoConvert_v1beta1_ConfigReference_To_v1alpha1_ConfigReference(in, out, s); err != nil {
		return err
	}
	if out.DesiredConfig != nil {
		out.ConfigReferent = out.DesiredConfig.ConfigReferent
	}
	return nil
}

// Convert_v1alpha1_ConfigReference_To_v1beta1_ConfigReference omits the deprecated fields of v1alpha1.
func Convert_v1alpha1_ConfigReference_To_v1beta1_ConfigReference(in *v1alpha1.ConfigReference, out *ConfigReference, s conversion.Scope) error {
	return autoConvert_v1alpha1_ConfigReference_To_v1beta1_ConfigReference(in, out, s)
}

// Convert_v1beta1_ClusterManagementAddOnSpec_To_v1alpha1_ClusterManagementAddOnSpec converts a reserved
// name to a missing default.
func Convert_v1beta1_ClusterManagementAddOnSpec_To_v1alpha1_ClusterManagementAddOnSpec(in *ClusterManagementAddOnSpec, out *v1alpha1.ClusterManagementAddOnSpec, s conversion.Scope) error {
	if err := autoConvert_v1beta1_ClusterManagementAddOnSpec_To_v1alpha1_ClusterManagementAddOnSpec(in, out, s); err != nil {
		return err
	}
	if in.DefaultConfigs != nil {
		out.SupportedConfigs = make([]v1alpha1.ConfigMeta, 0, len(in.DefaultConfigs))
	}
	for _, config := range in.DefaultConfigs {
		kind := v1alpha1.ConfigMeta{ConfigGroupResource: config.ConfigGroupResource}
		// The validation rejects the reserved name with a namespace, which would be lost.
		if config.Name != NoDefaultConfigName || config.Namespace != nil {
			kind.DefaultConfig = &config.ConfigReferent
		}
		out.SupportedConfigs = append(out.SupportedConfigs, kind)
	}
	return nil
}

// Convert_v1alpha1_ClusterManagementAddOnSpec_To_v1beta1_ClusterManagementAddOnSpec converts a missing
// default to a reserved name.
func Convert_v1alpha1_ClusterManagementAddOnSpec_To_v1beta1_ClusterManagementAddOnSpec(in *v1alpha1.ClusterManagementAddOnSpec, out *ClusterManagementAddOnSpec, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_ClusterManagementAddOnSpec_To_v1beta1_ClusterManagementAddOnSpec(in, out, s); err != nil {
		return err
	}
	if in.SupportedConfigs != nil {
		out.DefaultConfigs = make([]AddOnConfig, 0, len(in.SupportedConfigs))
	}
	for _, kind := range in.SupportedConfigs {
		config := AddOnConfig{ConfigGroupResource: kind.ConfigGroupResource, ConfigReferent: v1alpha1.ConfigReferent{Name: NoDefaultConfigName}}
		if kind.DefaultConfig != nil {
			config.ConfigReferent = *kind.DefaultConfig
		}
		out.DefaultConfigs = append(out.DefaultConfigs, config)
	}
	return nil
}
