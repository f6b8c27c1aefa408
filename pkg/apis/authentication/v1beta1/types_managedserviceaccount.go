package v1beta1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ManagedServiceAccountLabel is on what belongs to a ManagedServiceAccount. Its
	// value is "true" on the Secrets of the hub, and names hub and cluster on the
	// ServiceAccounts of managed clusters.
	ManagedServiceAccountLabel = "authentication.open-cluster-management.io/is-managed-serviceaccount"

	// ParentNamespaceLabel is on the accounts that the server keeps on the clusters
	// of a set. Its value is the namespace of the account that they replicate,
	// which has the same name. Only the server can set it.
	ParentNamespaceLabel = "authentication.open-cluster-management.io/parent-namespace"
	// ParentUIDAnnotation is the UID of that account. Only the server can set it.
	ParentUIDAnnotation = "authentication.open-cluster-management.io/parent-uid"
)

// Keys of the Secret that holds a token on the hub.
const (
	// SecretTokenKey is the bearer token.
	SecretTokenKey = "token"
	// SecretCAKey is the PEM bundle that verifies the API server of the managed cluster.
	SecretCAKey = "ca.crt"
)

// Condition types of a ManagedServiceAccount.
const (
	// ConditionSecretCreated is True while the Secret with the token is on the hub.
	ConditionSecretCreated = "SecretCreated"
	// ConditionTokenReported is True while the Secret holds a token that the managed cluster accepts.
	ConditionTokenReported = "TokenReported"
	// ConditionAllServiceAccountPresent is True while the ServiceAccount is present
	// on the managed cluster, or on every cluster of the bound sets (seed 002).
	ConditionAllServiceAccountPresent = "AllServiceAccountPresent"
	// ConditionNamespaceManaged is False while the namespace is neither that of a
	// managed cluster nor bound to a set of clusters. It is not there otherwise.
	ConditionNamespaceManaged = "NamespaceManaged"
)

// Reasons of conditions of a ManagedServiceAccount.
const (
	// ReasonSecretCreated and ReasonTokenReported are those of upstream.
	ReasonSecretCreated = "SecretCreated"
	ReasonTokenReported = "TokenReported"
	// ReasonTokenReportFailed is upstream's for anything that went wrong; the
	// message says what.
	ReasonTokenReportFailed = "TokenReportFailed"
	// ReasonServiceAccountPresent is for a ServiceAccount that is there.
	ReasonServiceAccountPresent = "ServiceAccountPresent"
	// ReasonServiceAccountFailed is for a ServiceAccount that could not be made.
	ReasonServiceAccountFailed = "ServiceAccountFailed"
	// ReasonPending is for what the agent has not looked at yet.
	ReasonPending = "Pending"
	// ReasonServiceAccountConflict is for a ServiceAccount of that name that belongs to somebody else.
	ReasonServiceAccountConflict = "ServiceAccountConflict"
	// ReasonSecretConflict is for a Secret of that name that belongs to somebody else.
	ReasonSecretConflict = "SecretConflict"
	// ReasonSecretMissing is for a Secret that was deleted.
	ReasonSecretMissing = "SecretMissing"
	// ReasonSecretChanged is for a Secret that somebody changed and the agent has yet to look at.
	ReasonSecretChanged = "SecretChanged"
	// ReasonInvalidSpec is for a spec from before it was validated.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonTokenExpired is for a token that was not replaced before it expired.
	ReasonTokenExpired = "TokenExpired"
	// ReasonNotManaged is for a namespace without managed clusters.
	ReasonNotManaged = "NotManaged"
	// ReasonAllClustersReady and ReasonClustersNotReady summarize the clusters of sets.
	ReasonAllClustersReady = "AllClustersReady"
	ReasonClustersNotReady = "ClustersNotReady"
	// ReasonNoClusters is for sets without clusters.
	ReasonNoClusters = "NoClusters"
)

const (
	// DefaultValidity is how long tokens are valid when the spec does not say.
	DefaultValidity = 8640 * time.Hour
	// MinimumValidity is the least that API servers grant.
	MinimumValidity = 10 * time.Minute
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is a ServiceAccount on a managed cluster whose token is
// kept valid and reported to the hub, in a Secret of the same name and
// namespace. In the namespace of a managed cluster it is one ServiceAccount on
// that cluster. In a namespace that is bound to sets of clusters it is one on
// every cluster of these sets, each with a Secret in the cluster's namespace.
type ManagedServiceAccount struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired state of the account.
	// +optional
	Spec ManagedServiceAccountSpec `json:"spec,omitempty"`

	// The observed state of the account.
	// +optional
	Status ManagedServiceAccountStatus `json:"status,omitempty"`
}

// ManagedServiceAccountSpec is the desired state of a ManagedServiceAccount.
type ManagedServiceAccountSpec struct {
	// How long tokens are valid. A token is replaced when 80 % of its lifetime has passed.
	// +optional
	Rotation ManagedServiceAccountRotation `json:"rotation,omitempty"`

	// Who the token is meant for: a recipient must find itself in this list, and
	// reject the token otherwise. The API server of the managed cluster when not given.
	// +optional
	// +listType=set
	Audiences []string `json:"audiences,omitzero"`

	// Seconds after its creation at which the account is deleted, at least 1. It
	// is kept when not given.
	// +optional
	TTLSecondsAfterCreation *int32 `json:"ttlSecondsAfterCreation,omitempty"`
}

// ManagedServiceAccountRotation says how long tokens are valid.
type ManagedServiceAccountRotation struct {
	// Deprecated and without effect: tokens are always replaced before they expire.
	// +optional
	// +default=true
	Enabled *bool `json:"enabled,omitempty"`

	// How long a token is valid, such as 24h or 8640h0m0s; at least 10m. The
	// managed cluster may grant less. 0s means the default of 8640h0m0s.
	// +optional
	// +default="8640h0m0s"
	Validity string `json:"validity,omitempty"`
}

// ManagedServiceAccountStatus is the observed state of a ManagedServiceAccount.
type ManagedServiceAccountStatus struct {
	// The state of the account. Known types are SecretCreated, TokenReported,
	// AllServiceAccountPresent and NamespaceManaged.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// When the reported token expires.
	// +optional
	ExpirationTimestamp *metav1.Time `json:"expirationTimestamp,omitempty"`

	// The Secret with the token, in the namespace of this object.
	// +optional
	TokenSecretRef *TokenSecretReference `json:"tokenSecretRef,omitempty"`

	// The ServiceAccount on the managed cluster.
	// +optional
	ServiceAccountRef *ServiceAccountReference `json:"serviceAccountRef,omitempty"`

	// The clusters that the account was replicated to, in a namespace that is bound to sets of clusters.
	// +optional
	Clusters *ClusterSummary `json:"clusters,omitempty"`
}

// TokenSecretReference names the Secret that holds a token.
type TokenSecretReference struct {
	// Name of the Secret.
	Name string `json:"name"`

	// When the token in it was last replaced.
	LastRefreshTimestamp metav1.Time `json:"lastRefreshTimestamp"`

	// Resource version of the Secret that the agent has last written or verified.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ServiceAccountReference names a ServiceAccount on a managed cluster.
type ServiceAccountReference struct {
	// Namespace of the ServiceAccount on the managed cluster.
	Namespace string `json:"namespace"`

	// Name of the ServiceAccount.
	Name string `json:"name"`

	// UID of the ServiceAccount.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// ClusterSummary counts the clusters that an account was replicated to.
type ClusterSummary struct {
	// Number of clusters in the bound sets.
	Total int32 `json:"total"`

	// Number of those whose token is reported.
	Ready int32 `json:"ready"`

	// Why the others are not ready, by name of the cluster; at most 100 of them.
	// +optional
	// +listType=map
	// +listMapKey=name
	Failing []ClusterFailure `json:"failing,omitempty"`
}

// ClusterFailure says why an account is not ready on one cluster.
type ClusterFailure struct {
	// Name of the cluster.
	Name string `json:"name"`

	// Reason in one word.
	Reason string `json:"reason"`

	// What a person should know.
	// +optional
	Message string `json:"message,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountList is a list of ManagedServiceAccounts.
type ManagedServiceAccountList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManagedServiceAccounts.
	Items []ManagedServiceAccount `json:"items"`
}

// ParseValidity returns the lifetime that spec.rotation.validity asks for.
// Typed Go clients that leave it out send "0s", so zero means the default. It
// fails for what is no duration or less than MinimumValidity, which releases
// before validation may have stored.
func ParseValidity(validity string) (time.Duration, error) {
	if validity == "" {
		return DefaultValidity, nil
	}
	lifetime, err := time.ParseDuration(validity)
	switch {
	case err != nil:
		return 0, fmt.Errorf("must be a duration such as 24h or 8640h0m0s")
	case lifetime == 0:
		return DefaultValidity, nil
	case lifetime < MinimumValidity:
		return 0, fmt.Errorf("must be at least %s, the least that API servers grant", MinimumValidity)
	}
	return lifetime, nil
}
