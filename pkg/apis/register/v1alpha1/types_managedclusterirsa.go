package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterIRSA is the IAM identity of a managed cluster on EKS. Creating managedclusters/<name>/irsa
// claims the ARN of the cluster. The response contains the roles and policies that both AWS accounts require.
// Deleting it withdraws the claim and removes the resources that were created for it.
type ManagedClusterIRSA struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name is the name of the ManagedCluster.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the claim.
	// +optional
	Spec ManagedClusterIRSASpec `json:"spec,omitempty"`

	// status lists the roles that the claim requires. It is read-only.
	// +optional
	Status ManagedClusterIRSAState `json:"status,omitempty"`
}

// ManagedClusterIRSASpec is the claim of an IAM identity.
type ManagedClusterIRSASpec struct {
	// managedClusterARN is the ARN of the EKS cluster, arn:<partition>:eks:<region>:<account>:cluster/<name>.
	// Defaults to the ARN in the annotations of the ManagedCluster.
	// +optional
	ManagedClusterARN string `json:"managedClusterARN,omitempty"`

	// oidcProvider is the OIDC provider of the EKS cluster without https://. It is used in the policy documents
	// of the response only. If it is not set, the documents contain <oidc-provider>.
	// +optional
	OIDCProvider string `json:"oidcProvider,omitempty"`

	// serviceAccounts lists the ServiceAccounts of the EKS cluster, as <namespace>:<name>, that may assume the
	// role. They are used in the policy documents of the response only. Defaults to the ServiceAccount of the
	// agent.
	// +optional
	// +listType=atomic
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
}

// ManagedClusterIRSAState lists the resources that a claim requires in both AWS accounts.
type ManagedClusterIRSAState struct {
	// hubClusterARN is the ARN of the EKS cluster of the hub.
	// +optional
	HubClusterARN string `json:"hubClusterARN,omitempty"`

	// hash is the MD5 hash of the accounts and names of both clusters in hexadecimal.
	// +optional
	Hash string `json:"hash,omitempty"`

	// hubRole is the role in the account of the hub. The server creates it unless it is configured not to.
	// +optional
	HubRole *IAMRole `json:"hubRole,omitempty"`

	// managedClusterRole is the role in the account of the cluster. The administrator of the cluster creates
	// it.
	// +optional
	ManagedClusterRole *IAMRole `json:"managedClusterRole,omitempty"`

	// group is the group of the hub that the identity is mapped to.
	// +optional
	Group string `json:"group,omitempty"`

	// commands lists the commands of the aws command line that create the role in the account of the cluster.
	// +optional
	// +listType=atomic
	Commands []string `json:"commands,omitempty"`

	// accepted specifies whether the hub accepts the cluster.
	// +optional
	Accepted bool `json:"accepted,omitempty"`

	// conditions report the state of the identity, as in the ManagedClusterRegistration.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IAMRole is a role of AWS IAM.
type IAMRole struct {
	// name is the name of the role.
	Name string `json:"name"`

	// arn is the ARN of the role.
	ARN string `json:"arn"`

	// trustPolicy is the trust policy of the role as JSON.
	// +optional
	TrustPolicy string `json:"trustPolicy,omitempty"`

	// accessPolicy is the access policy of the role as JSON.
	// +optional
	AccessPolicy string `json:"accessPolicy,omitempty"`

	// tags are the tags of the role.
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
}
