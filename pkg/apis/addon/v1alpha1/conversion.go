package v1alpha1

import (
	"k8s.io/apimachinery/pkg/conversion"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
)

// Convert_addon_RegistrationConfig_To_v1alpha1_RegistrationConfig omits the mismatch of fields of v1beta1, which
// validation rejects.
func Convert_addon_RegistrationConfig_To_v1alpha1_RegistrationConfig(in *addon.RegistrationConfig, out *RegistrationConfig, s conversion.Scope) error {
	return autoConvert_addon_RegistrationConfig_To_v1alpha1_RegistrationConfig(in, out, s)
}
