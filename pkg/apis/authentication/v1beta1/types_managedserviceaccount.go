package v1beta1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ManagedServiceAccountLabel is set on the objects of ManagedServiceAccounts. Its value is "true" on
	// Secrets of the hub. On ServiceAccounts of managed clusters it identifies the hub and the cluster.
	ManagedServiceAccountLabel = "authentication.open-cluster-management.io/is-managed-serviceaccount"

	// ParentNamespaceLabel is set on the accounts that the server creates in the namespaces of the clusters of a set.
	// Its value is the namespace of the replicated account, which has the same name. Only the server can set it.
	ParentNamespaceLabel = "authentication.open-cluster-management.io/parent-namespace"
	// ParentUIDAnnotation is the UID of the replicated account. Only the server can set it.
	ParentUIDAnnotation = "authentication.open-cluster-management.io/parent-uid"
)

// Keys of the Secret that holds a token on the hub.
const (
	// SecretTokenKey is the key of the bearer token.
	SecretTokenKey = "token"
	// SecretCAKey is the key of the PEM bundle that verifies the API server of the managed cluster.
	SecretCAKey = "ca.crt"
)

// Condition types of a ManagedServiceAccount.
const (
	// ConditionSecretCreated is True while the Secret with the token exists on the hub.
	ConditionSecretCreated = "SecretCreated"
	// ConditionTokenReported is True while the Secret contains a token that the managed cluster accepts.
	ConditionTokenReported = "TokenReported"
	// ConditionAllServiceAccountPresent is True while the ServiceAccount exists on the managed cluster, or on
	// all clusters of the bound sets.
	ConditionAllServiceAccountPresent = "AllServiceAccountPresent"
	// ConditionNamespaceManaged is False while the namespace is neither the namespace of a managed cluster nor
	// bound to a ManagedClusterSet. Otherwise it is not set.
	ConditionNamespaceManaged = "NamespaceManaged"
)

// Reasons of conditions of a ManagedServiceAccount.
const (
	// ReasonSecretCreated and ReasonTokenReported are also the reasons of upstream OCM.
	ReasonSecretCreated = "SecretCreated"
	ReasonTokenReported = "TokenReported"
	// ReasonTokenReportFailed is the reason of upstream OCM for all errors. The message contains the cause.
	ReasonTokenReportFailed     = "TokenReportFailed"
	ReasonServiceAccountPresent = "ServiceAccountPresent"
	ReasonServiceAccountFailed  = "ServiceAccountFailed"
	// ReasonPending is set until the agent has processed the account.
	ReasonPending = "Pending"
	// ReasonServiceAccountConflict is set if a ServiceAccount of that name exists and does not belong to the account.
	ReasonServiceAccountConflict = "ServiceAccountConflict"
	// ReasonSecretConflict is set if a Secret of that name exists and does not belong to the account.
	ReasonSecretConflict = "SecretConflict"
	ReasonSecretMissing  = "SecretMissing"
	// ReasonSecretChanged is set if the Secret was changed and the agent has not verified it yet.
	ReasonSecretChanged = "SecretChanged"
	// ReasonInvalidSpec is set if an invalid spec was stored before validation was introduced.
	ReasonInvalidSpec  = "InvalidSpec"
	ReasonTokenExpired = "TokenExpired"
	// ReasonNotManaged is set if the namespace has no managed clusters.
	ReasonNotManaged = "NotManaged"
	// ReasonAllClustersReady and ReasonClustersNotReady summarize the clusters of sets.
	ReasonAllClustersReady = "AllClustersReady"
	ReasonClustersNotReady = "ClustersNotReady"
	ReasonNoClusters       = "NoClusters"
)

const (
	// DefaultValidity is the default lifetime of tokens.
	DefaultValidity = 8640 * time.Hour
	// MinimumValidity is the shortest lifetime that API servers grant.
	MinimumValidity = 10 * time.Minute
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is a ServiceAccount on a managed cluster with a token that is rotated and reported to
// the hub in a Secret of the same name and namespace. In the namespace of a managed cluster it represents one
// ServiceAccount on that cluster. In a namespace that is bound to ManagedClusterSets it represents one on each
// cluster of these sets, with a Secret in the namespace of each cluster.
type ManagedServiceAccount struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the account.
	// +optional
	Spec ManagedServiceAccountSpec `json:"spec,omitempty"`

	// status is the observed state of the account. It is read-only.
	// +optional
	Status ManagedServiceAccountStatus `json:"status,omitempty"`
}

// ManagedServiceAccountSpec is the desired state of a ManagedServiceAccount.
type ManagedServiceAccountSpec struct {
	// rotation specifies the lifetime of tokens. A token is replaced after 75 % to 80 % of its lifetime.
	// +optional
	Rotation ManagedServiceAccountRotation `json:"rotation,omitempty"`

	// audiences is the list of intended recipients of the token. A recipient must reject the token unless it is
	// in the list. Defaults to the API server of the managed cluster.
	// +optional
	// +listType=set
	Audiences []string `json:"audiences,omitzero"`

	// ttlSecondsAfterCreation is the number of seconds after creation at which the account is deleted. It must
	// be at least 1. If it is not set, the account is kept.
	// +optional
	TTLSecondsAfterCreation *int32 `json:"ttlSecondsAfterCreation,omitempty"`
}

// ManagedServiceAccountRotation specifies the lifetime of tokens.
type ManagedServiceAccountRotation struct {
	// enabled has no effect: tokens are always replaced before they expire. Deprecated.
	// +optional
	// +default=true
	Enabled *bool `json:"enabled,omitempty"`

	// validity is the lifetime of a token, for example 24h. It must be at least 10m. The managed cluster may
	// grant less. 0s means the default. Defaults to 8640h0m0s.
	// +optional
	// +default="8640h0m0s"
	Validity string `json:"validity,omitempty"`
}

// ManagedServiceAccountStatus is the observed state of a ManagedServiceAccount.
type ManagedServiceAccountStatus struct {
	// conditions report the state of the account. Known types are SecretCreated, TokenReported,
	// AllServiceAccountPresent and NamespaceManaged.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// expirationTimestamp is the time at which the reported token expires.
	// +optional
	ExpirationTimestamp *metav1.Time `json:"expirationTimestamp,omitempty"`

	// tokenSecretRef refers to the Secret with the token, in the namespace of this object.
	// +optional
	TokenSecretRef *TokenSecretReference `json:"tokenSecretRef,omitempty"`

	// serviceAccountRef refers to the ServiceAccount on the managed cluster.
	// +optional
	ServiceAccountRef *ServiceAccountReference `json:"serviceAccountRef,omitempty"`

	// clusters summarizes the clusters that the account was replicated to. It is set in namespaces that are
	// bound to ManagedClusterSets.
	// +optional
	Clusters *ClusterSummary `json:"clusters,omitempty"`
}

// TokenSecretReference refers to the Secret that contains a token.
type TokenSecretReference struct {
	// name is the name of the Secret.
	Name string `json:"name"`

	// lastRefreshTimestamp is the time at which the token was last replaced.
	LastRefreshTimestamp metav1.Time `json:"lastRefreshTimestamp"`

	// resourceVersion is the resource version of the Secret that the agent last wrote or verified.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ServiceAccountReference refers to a ServiceAccount on a managed cluster.
type ServiceAccountReference struct {
	// namespace is the namespace of the ServiceAccount on the managed cluster.
	Namespace string `json:"namespace"`

	// name is the name of the ServiceAccount.
	Name string `json:"name"`

	// uid is the UID of the ServiceAccount.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// ClusterSummary counts the clusters that an account was replicated to.
type ClusterSummary struct {
	// total is the number of clusters in the bound sets.
	Total int32 `json:"total"`

	// ready is the number of clusters that have reported a token.
	Ready int32 `json:"ready"`

	// failing lists at most 100 of the other clusters with the cause.
	// +optional
	// +listType=map
	// +listMapKey=name
	Failing []ClusterFailure `json:"failing,omitempty"`
}

// ClusterFailure is the cause for which an account is not ready on one cluster.
type ClusterFailure struct {
	// name is the name of the cluster.
	Name string `json:"name"`

	// reason is the cause as one word in CamelCase.
	Reason string `json:"reason"`

	// message is the cause in a human-readable form.
	// +optional
	Message string `json:"message,omitempty"`
}

// ParseValidity returns the lifetime in spec.rotation.validity, or an error if it is
// not a duration or less than MinimumValidity. Typed Go clients that omit the field
// send "0s", so zero means the default.
func ParseValidity(validity string) (time.Duration, error) {
	if validity == "" {
		return DefaultValidity, nil
	}
	lifetime, err := time.ParseDuration(validity)
	switch {
	case err != nil:
		return 0, fmt.Errorf("must be a duration, for example 24h or 8640h0m0s")
	case lifetime == 0:
		return DefaultValidity, nil
	case lifetime < MinimumValidity:
		return 0, fmt.Errorf("must be greater than or equal to %s, the shortest lifetime that API servers grant", MinimumValidity)
	}
	return lifetime, nil
}
