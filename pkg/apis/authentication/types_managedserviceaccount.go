package authentication

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is a ServiceAccount on a managed cluster with a token that is rotated and reported to
// the hub in a Secret of the same name and namespace.
type ManagedServiceAccount struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ManagedServiceAccountSpec
	Status ManagedServiceAccountStatus
}

// ManagedServiceAccountSpec is the desired state of a ManagedServiceAccount.
type ManagedServiceAccountSpec struct {
	Rotation                ManagedServiceAccountRotation
	Audiences               []string
	TTLSecondsAfterCreation *int32
}

// ManagedServiceAccountRotation specifies the lifetime of tokens.
type ManagedServiceAccountRotation struct {
	Enabled  *bool
	Validity string
}

// ManagedServiceAccountStatus is the observed state of a ManagedServiceAccount.
type ManagedServiceAccountStatus struct {
	Conditions          []metav1.Condition
	ExpirationTimestamp *metav1.Time
	TokenSecretRef      *TokenSecretReference
	ServiceAccountRef   *ServiceAccountReference
	Clusters            *ClusterSummary
}

// TokenSecretReference refers to the Secret that contains a token.
type TokenSecretReference struct {
	Name                 string
	LastRefreshTimestamp metav1.Time
	ResourceVersion      string
}

// ServiceAccountReference refers to a ServiceAccount on a managed cluster.
type ServiceAccountReference struct {
	Namespace string
	Name      string
	UID       types.UID
}

// ClusterSummary counts the clusters that an account was replicated to.
type ClusterSummary struct {
	Total   int32
	Ready   int32
	Failing []ClusterFailure
}

// ClusterFailure describes why an account is not ready on one cluster.
type ClusterFailure struct {
	Name    string
	Reason  string
	Message string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountList is a list of ManagedServiceAccounts.
type ManagedServiceAccountList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []ManagedServiceAccount
}
