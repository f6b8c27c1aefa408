package authentication

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is a ServiceAccount on managed clusters whose token is reported to the hub.
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

// ManagedServiceAccountRotation says how long tokens are valid.
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

// TokenSecretReference names the Secret that holds a token.
type TokenSecretReference struct {
	Name                 string
	LastRefreshTimestamp metav1.Time
	ResourceVersion      string
}

// ServiceAccountReference names a ServiceAccount on a managed cluster.
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

// ClusterFailure says why an account is not ready on one cluster.
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
