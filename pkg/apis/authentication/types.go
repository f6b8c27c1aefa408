package authentication

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is the internal form of a v1beta1.ManagedServiceAccount.
type ManagedServiceAccount v1beta1.ManagedServiceAccount

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountList is a list of ManagedServiceAccounts.
type ManagedServiceAccountList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManagedServiceAccount
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBinding is the internal form of a v1alpha1.ManagedServiceAccountBinding.
type ManagedServiceAccountBinding v1alpha1.ManagedServiceAccountBinding

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBindingList is a list of ManagedServiceAccountBindings.
type ManagedServiceAccountBindingList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManagedServiceAccountBinding
}
