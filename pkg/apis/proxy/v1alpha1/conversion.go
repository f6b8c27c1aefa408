package v1alpha1

import (
	"k8s.io/apimachinery/pkg/conversion"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// Convert_v1alpha1_ManagedServiceAccountStatus_To_authentication_ManagedServiceAccountStatus converts to the internal form.
func Convert_v1alpha1_ManagedServiceAccountStatus_To_authentication_ManagedServiceAccountStatus(in *ManagedServiceAccountStatus, out *authentication.ManagedServiceAccountStatus, s conversion.Scope) error {
	return v1beta1.Convert_v1beta1_ManagedServiceAccountStatus_To_authentication_ManagedServiceAccountStatus(&in.ManagedServiceAccountStatus, out, s)
}

// Convert_authentication_ManagedServiceAccountStatus_To_v1alpha1_ManagedServiceAccountStatus converts from the internal form.
func Convert_authentication_ManagedServiceAccountStatus_To_v1alpha1_ManagedServiceAccountStatus(in *authentication.ManagedServiceAccountStatus, out *ManagedServiceAccountStatus, s conversion.Scope) error {
	return v1beta1.Convert_authentication_ManagedServiceAccountStatus_To_v1beta1_ManagedServiceAccountStatus(in, &out.ManagedServiceAccountStatus, s)
}
