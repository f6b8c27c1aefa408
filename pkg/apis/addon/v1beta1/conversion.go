package v1beta1

import (
	"maps"

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
	annotations := maps.Clone(out.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[InstallNamespaceAnnotation] = in.Spec.InstallNamespace
	out.Annotations = annotations
	return nil
}

// Convert_addon_ManagedClusterAddOnSpec_To_v1beta1_ManagedClusterAddOnSpec omits the field that is an annotation.
func Convert_addon_ManagedClusterAddOnSpec_To_v1beta1_ManagedClusterAddOnSpec(in *addon.ManagedClusterAddOnSpec, out *ManagedClusterAddOnSpec, s conversion.Scope) error {
	return autoConvert_addon_ManagedClusterAddOnSpec_To_v1beta1_ManagedClusterAddOnSpec(in, out, s)
}

// Convert_v1beta1_ManagedClusterAddOnStatus_To_addon_ManagedClusterAddOnStatus uses the first driver of the
// registrations of type kubeClient, since the internal type has one driver.
func Convert_v1beta1_ManagedClusterAddOnStatus_To_addon_ManagedClusterAddOnStatus(in *ManagedClusterAddOnStatus, out *addon.ManagedClusterAddOnStatus, s conversion.Scope) error {
	if err := autoConvert_v1beta1_ManagedClusterAddOnStatus_To_addon_ManagedClusterAddOnStatus(in, out, s); err != nil {
		return err
	}
	for i, registration := range in.Registrations {
		if registration.Type != KubeClient || registration.KubeClient == nil || registration.KubeClient.Driver == "" {
			continue
		}
		switch driver := registration.KubeClient.Driver; {
		case out.KubeClientDriver == "":
			out.KubeClientDriver = driver
		case out.KubeClientDriver != driver && out.Registrations[i].Mismatch == nil:
			out.Registrations[i].Mismatch = &addon.RegistrationMismatch{Type: string(KubeClient), Driver: driver}
		}
	}
	return nil
}

// Convert_addon_ManagedClusterAddOnStatus_To_v1beta1_ManagedClusterAddOnStatus sets the driver of
// each registration of type kubeClient.
func Convert_addon_ManagedClusterAddOnStatus_To_v1beta1_ManagedClusterAddOnStatus(in *addon.ManagedClusterAddOnStatus, out *ManagedClusterAddOnStatus, s conversion.Scope) error {
	if err := autoConvert_addon_ManagedClusterAddOnStatus_To_v1beta1_ManagedClusterAddOnStatus(in, out, s); err != nil {
		return err
	}
	for i := range out.Registrations {
		if client := out.Registrations[i].KubeClient; client != nil {
			client.Driver = in.KubeClientDriver
		}
	}
	return nil
}

// Convert_v1beta1_RegistrationConfig_To_addon_RegistrationConfig converts a type to its signer. It records fields that
// do not belong to the type, and would be lost, for the validation.
func Convert_v1beta1_RegistrationConfig_To_addon_RegistrationConfig(in *RegistrationConfig, out *addon.RegistrationConfig, s conversion.Scope) error {
	client, signer := in.KubeClient != nil, in.CustomSigner != nil
	if !(in.Type == KubeClient && !signer) &&
		!(in.Type == CustomSigner && !client && signer && in.CustomSigner.SignerName != v1alpha1.KubeAPIServerClientSigner) {
		out.Mismatch = &addon.RegistrationMismatch{Type: string(in.Type), KubeClient: client, CustomSigner: signer}
	}
	if in.Type == KubeClient {
		out.SignerName = v1alpha1.KubeAPIServerClientSigner
		if in.KubeClient != nil {
			subject := in.KubeClient.Subject
			out.Subject = addon.Subject{User: subject.User, Groups: subject.Groups}
		}
		return nil
	}
	if in.CustomSigner == nil {
		return nil
	}
	out.SignerName = in.CustomSigner.SignerName
	return Convert_v1beta1_Subject_To_addon_Subject(&in.CustomSigner.Subject, &out.Subject, s)
}

// Convert_addon_RegistrationConfig_To_v1beta1_RegistrationConfig converts a signer to its type.
func Convert_addon_RegistrationConfig_To_v1beta1_RegistrationConfig(in *addon.RegistrationConfig, out *RegistrationConfig, s conversion.Scope) error {
	if in.SignerName == v1alpha1.KubeAPIServerClientSigner {
		out.Type = KubeClient
		out.KubeClient = &KubeClientConfig{Subject: KubeClientSubject{BaseSubject{User: in.Subject.User, Groups: in.Subject.Groups}}}
		return nil
	}
	out.Type = CustomSigner
	out.CustomSigner = &CustomSignerConfig{SignerName: in.SignerName}
	return Convert_addon_Subject_To_v1beta1_Subject(&in.Subject, &out.CustomSigner.Subject, s)
}

// Convert_v1beta1_Subject_To_addon_Subject converts to the internal form.
func Convert_v1beta1_Subject_To_addon_Subject(in *Subject, out *addon.Subject, _ conversion.Scope) error {
	*out = addon.Subject{User: in.User, Groups: in.Groups, OrganizationUnits: in.OrganizationUnits}
	return nil
}

// Convert_addon_Subject_To_v1beta1_Subject converts from the internal form.
func Convert_addon_Subject_To_v1beta1_Subject(in *addon.Subject, out *Subject, _ conversion.Scope) error {
	*out = Subject{BaseSubject: BaseSubject{User: in.User, Groups: in.Groups}, OrganizationUnits: in.OrganizationUnits}
	return nil
}

// Convert_v1beta1_ConfigReference_To_addon_ConfigReference also sets the deprecated fields of v1alpha1.
func Convert_v1beta1_ConfigReference_To_addon_ConfigReference(in *ConfigReference, out *addon.ConfigReference, s conversion.Scope) error {
	if err := autoConvert_v1beta1_ConfigReference_To_addon_ConfigReference(in, out, s); err != nil {
		return err
	}
	if out.DesiredConfig != nil {
		out.ConfigReferent = out.DesiredConfig.ConfigReferent
	}
	return nil
}

// Convert_addon_ConfigReference_To_v1beta1_ConfigReference omits the deprecated fields of v1alpha1.
func Convert_addon_ConfigReference_To_v1beta1_ConfigReference(in *addon.ConfigReference, out *ConfigReference, s conversion.Scope) error {
	return autoConvert_addon_ConfigReference_To_v1beta1_ConfigReference(in, out, s)
}

// Convert_v1beta1_ClusterManagementAddOnSpec_To_addon_ClusterManagementAddOnSpec converts a reserved
// name to a missing default.
func Convert_v1beta1_ClusterManagementAddOnSpec_To_addon_ClusterManagementAddOnSpec(in *ClusterManagementAddOnSpec, out *addon.ClusterManagementAddOnSpec, s conversion.Scope) error {
	if err := autoConvert_v1beta1_ClusterManagementAddOnSpec_To_addon_ClusterManagementAddOnSpec(in, out, s); err != nil {
		return err
	}
	if in.DefaultConfigs != nil {
		out.SupportedConfigs = make([]addon.ConfigMeta, 0, len(in.DefaultConfigs))
	}
	for _, config := range in.DefaultConfigs {
		kind := addon.ConfigMeta{ConfigGroupResource: addon.ConfigGroupResource(config.ConfigGroupResource)}
		// The validation rejects the reserved name with a namespace, which would be lost.
		if config.Name != NoDefaultConfigName || config.Namespace != nil {
			kind.DefaultConfig = &addon.ConfigReferent{Namespace: config.Namespace, Name: config.Name}
		}
		out.SupportedConfigs = append(out.SupportedConfigs, kind)
	}
	return nil
}

// Convert_addon_ClusterManagementAddOnSpec_To_v1beta1_ClusterManagementAddOnSpec converts a missing
// default to a reserved name.
func Convert_addon_ClusterManagementAddOnSpec_To_v1beta1_ClusterManagementAddOnSpec(in *addon.ClusterManagementAddOnSpec, out *ClusterManagementAddOnSpec, s conversion.Scope) error {
	if err := autoConvert_addon_ClusterManagementAddOnSpec_To_v1beta1_ClusterManagementAddOnSpec(in, out, s); err != nil {
		return err
	}
	if in.SupportedConfigs != nil {
		out.DefaultConfigs = make([]AddOnConfig, 0, len(in.SupportedConfigs))
	}
	for _, kind := range in.SupportedConfigs {
		config := AddOnConfig{ConfigGroupResource: ConfigGroupResource(kind.ConfigGroupResource), ConfigReferent: ConfigReferent{Name: NoDefaultConfigName}}
		if kind.DefaultConfig != nil {
			config.ConfigReferent = ConfigReferent{Namespace: kind.DefaultConfig.Namespace, Name: kind.DefaultConfig.Name}
		}
		out.DefaultConfigs = append(out.DefaultConfigs, config)
	}
	return nil
}
