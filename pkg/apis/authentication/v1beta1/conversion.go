package v1beta1

import (
	"k8s.io/apimachinery/pkg/conversion"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
)

// The other versions of ManagedServiceAccount embed the spec and the status of
// this version. For them, conversion-gen finds only conversions that are written by hand.

// Convert_v1beta1_ManagedServiceAccountSpec_To_authentication_ManagedServiceAccountSpec converts to the internal form.
func Convert_v1beta1_ManagedServiceAccountSpec_To_authentication_ManagedServiceAccountSpec(in *ManagedServiceAccountSpec, out *authentication.ManagedServiceAccountSpec, s conversion.Scope) error {
	return autoConvert_v1beta1_ManagedServiceAccountSpec_To_authentication_ManagedServiceAccountSpec(in, out, s)
}

// Convert_authentication_ManagedServiceAccountSpec_To_v1beta1_ManagedServiceAccountSpec converts from the internal form.
func Convert_authentication_ManagedServiceAccountSpec_To_v1beta1_ManagedServiceAccountSpec(in *authentication.ManagedServiceAccountSpec, out *ManagedServiceAccountSpec, s conversion.Scope) error {
	return autoConvert_authentication_ManagedServiceAccountSpec_To_v1beta1_ManagedServiceAccountSpec(in, out, s)
}

// Convert_v1beta1_ManagedServiceAccountStatus_To_authentication_ManagedServiceAccountStatus converts to the internal form.
func Convert_v1beta1_ManagedServiceAccountStatus_To_authentication_ManagedServiceAccountStatus(in *ManagedServiceAccountStatus, out *authentication.ManagedServiceAccountStatus, s conversion.Scope) error {
	return autoConvert_v1beta1_ManagedServiceAccountStatus_To_authentication_ManagedServiceAccountStatus(in, out, s)
}

// Convert_authentication_ManagedServiceAccountStatus_To_v1beta1_ManagedServiceAccountStatus converts from the internal form.
func Convert_authentication_ManagedServiceAccountStatus_To_v1beta1_ManagedServiceAccountStatus(in *authentication.ManagedServiceAccountStatus, out *ManagedServiceAccountStatus, s conversion.Scope) error {
	return autoConvert_authentication_ManagedServiceAccountStatus_To_v1beta1_ManagedServiceAccountStatus(in, out, s)
}
