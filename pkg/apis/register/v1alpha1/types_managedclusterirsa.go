package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterIRSA is the IAM identity of a managed cluster on EKS. Posted to
// managedclusters/<name>/irsa, it claims the ARN of that cluster, and the answer has
// all that both AWS accounts need; deleted there, the claim is withdrawn and what was
// made for it removed.
type ManagedClusterIRSA struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name is that of the ManagedCluster.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is claimed.
	// +optional
	Spec ManagedClusterIRSASpec `json:"spec,omitempty"`

	// What it takes.
	// +optional
	Status ManagedClusterIRSAState `json:"status,omitempty"`
}

// ManagedClusterIRSASpec is what is claimed.
type ManagedClusterIRSASpec struct {
	// ARN of the EKS cluster: arn:<partition>:eks:<region>:<account>:cluster/<name>.
	// When it is not given, the annotations of the ManagedCluster say it.
	// +optional
	ManagedClusterARN string `json:"managedClusterARN,omitempty"`

	// OIDC provider of the EKS cluster, without https://. It is only for the documents of the
	// answer, which have <oidc-provider> in its place when it is not given.
	// +optional
	OIDCProvider string `json:"oidcProvider,omitempty"`

	// ServiceAccounts of the EKS cluster, each as namespace:name, that may act as it.
	// They are only for the documents of the answer. By default it is the one of the agent.
	// +optional
	// +listType=atomic
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
}

// ManagedClusterIRSAState is what a claim takes in both AWS accounts.
type ManagedClusterIRSAState struct {
	// ARN of the hub's own EKS cluster.
	// +optional
	HubClusterARN string `json:"hubClusterARN,omitempty"`

	// MD5 of the accounts and names of both clusters, in hexadecimal.
	// +optional
	Hash string `json:"hash,omitempty"`

	// The role in the account of the hub. The server makes it, unless it was told not to.
	// +optional
	HubRole *IAMRole `json:"hubRole,omitempty"`

	// The role in the account of the cluster, which its administrator makes.
	// +optional
	ManagedClusterRole *IAMRole `json:"managedClusterRole,omitempty"`

	// Group of the hub that the identity is mapped to.
	// +optional
	Group string `json:"group,omitempty"`

	// Commands of the aws command line that make the role in the account of the cluster.
	// +optional
	// +listType=atomic
	Commands []string `json:"commands,omitempty"`

	// Whether the hub accepts the cluster.
	// +optional
	Accepted bool `json:"accepted,omitempty"`

	// The state of the identity, as in the ManagedClusterRegistration.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IAMRole is a role of AWS IAM.
type IAMRole struct {
	// Name of the role.
	Name string `json:"name"`

	// ARN of the role.
	ARN string `json:"arn"`

	// Trust policy of the role, in JSON.
	// +optional
	TrustPolicy string `json:"trustPolicy,omitempty"`

	// Access policy of the role, in JSON.
	// +optional
	AccessPolicy string `json:"accessPolicy,omitempty"`

	// Tags of the role.
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
}
