package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RegistrationDriver is a way by which managed clusters show the hub who they are.
// +enum
type RegistrationDriver string

const (
	// DriverCSR is by client certificates, which the hub signs.
	DriverCSR RegistrationDriver = "csr"
	// DriverAWSIRSA is by AWS IAM roles, as enhancement proposal "AWS IAM based
	// registration" of Open Cluster Management has it.
	DriverAWSIRSA RegistrationDriver = "aws-irsa"
)

// Condition types of a ManagedClusterRegistration.
const (
	// RegistrationAccessGranted is True while the cluster has its access to the hub,
	// and False from when that is taken away.
	RegistrationAccessGranted = "AccessGranted"
	// RegistrationIdentityReady is True while what the driver needs outside of the
	// hub's RBAC is there, such as IAM roles.
	RegistrationIdentityReady = "IdentityReady"
	// RegistrationCleanedUp is False while something of a cluster that is denied or
	// deleted is still to be removed, and says what.
	RegistrationCleanedUp = "CleanedUp"
)

// Reasons of these conditions.
const (
	ReasonGranted          = "Granted"
	ReasonPending          = "Pending"
	ReasonDenied           = "Denied"
	ReasonDeleted          = "Deleted"
	ReasonNoClaim          = "NoClaim"
	ReasonProvisioned      = "Provisioned"
	ReasonProvisionFailed  = "ProvisioningFailed"
	ReasonRevoked          = "Revoked"
	ReasonRevocationFailed = "RevocationFailed"
	ReasonCleaningUp       = "CleaningUp"
	ReasonCleanedUp        = "CleanedUp"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=get,list,watch
// +genclient:method=Accept,verb=update,subresource=accept,input=ManagedClusterAcceptance,result=ManagedClusterAcceptance
// +genclient:method=ClaimIRSA,verb=create,subresource=irsa,input=ManagedClusterIRSA,result=ManagedClusterIRSA
// +genclient:method=GetIRSA,verb=get,subresource=irsa,result=ManagedClusterIRSA
// +resourceName=managedclusters
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterRegistration is the server's record of who a managed cluster is. It
// has the name of its ManagedCluster and exists from when that is created until
// everything of the cluster is removed from the hub. Nobody but the server writes it.
type ManagedClusterRegistration struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Who the cluster is.
	// +optional
	Spec ManagedClusterRegistrationSpec `json:"spec,omitempty"`

	// What the cluster has been given for that.
	// +optional
	Status ManagedClusterRegistrationStatus `json:"status,omitempty"`
}

// ManagedClusterRegistrationSpec is who a cluster is.
type ManagedClusterRegistrationSpec struct {
	// UID of the ManagedCluster that this is the record of.
	// +optional
	ManagedClusterUID types.UID `json:"managedClusterUID,omitempty"`

	// Who created the ManagedCluster.
	// +optional
	RequestedBy Requester `json:"requestedBy,omitempty"`

	// How the cluster shows the hub who it is: csr, or aws-irsa once it has claimed an ARN.
	// +optional
	Driver RegistrationDriver `json:"driver,omitempty"`

	// The EKS cluster that it is; only with the driver aws-irsa.
	// +optional
	IRSA *IRSAClaim `json:"irsa,omitempty"`
}

// Requester is a user of the hub.
type Requester struct {
	// Name of the user.
	// +optional
	Username string `json:"username,omitempty"`

	// Groups of the user.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// IRSAClaim is the claim to be an EKS cluster. No two clusters of a hub have the
// same one, or one with the same identity.
type IRSAClaim struct {
	// ARN of the EKS cluster: arn:<partition>:eks:<region>:<account>:cluster/<name>.
	ManagedClusterARN string `json:"managedClusterARN"`

	// Who made the claim.
	// +optional
	ClaimedBy string `json:"claimedBy,omitempty"`

	// When the claim was made.
	// +optional
	// +nullable
	ClaimedAt metav1.Time `json:"claimedAt,omitempty"`

	// Whether the claim is withdrawn: it ends once everything that was made for it is removed.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// ManagedClusterRegistrationStatus is what a cluster has been given.
type ManagedClusterRegistrationStatus struct {
	// The state of the registration. Known types are AccessGranted, IdentityReady and CleanedUp.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// The IAM identity of the cluster; only with the driver aws-irsa.
	// +optional
	IRSA *IRSAStatus `json:"irsa,omitempty"`

	// Client certificates that were approved for agents of the cluster; only with the driver csr.
	// +optional
	CSR *CSRStatus `json:"csr,omitempty"`

	// When the cluster was accepted by a rule of automatic approval; such a rule
	// accepts a cluster once.
	// +optional
	AutoApprovedAt *metav1.Time `json:"autoApprovedAt,omitempty"`
}

// IRSAStatus is an IAM identity.
type IRSAStatus struct {
	// MD5 of the accounts and names of both clusters, in hexadecimal, which the names
	// of the roles contain.
	// +optional
	Hash string `json:"hash,omitempty"`

	// ARN of the role in the account of the hub that the cluster acts as.
	// +optional
	HubRoleARN string `json:"hubRoleARN,omitempty"`

	// ARN of the role in the account of the cluster that may assume it.
	// +optional
	ManagedClusterRoleARN string `json:"managedClusterRoleARN,omitempty"`

	// Whether AWS may have something of this identity. It is set before the first
	// request to AWS that makes something, and unset after the last one that removes it.
	// +optional
	Provisioned bool `json:"provisioned,omitempty"`

	// Hash of what AWS was last told to have.
	// +optional
	AppliedHash string `json:"appliedHash,omitempty"`
}

// CSRStatus is what the driver csr has approved for a cluster.
type CSRStatus struct {
	// Names of agents that have got a certificate by their first request, newest last, ten at most.
	// +optional
	// +listType=atomic
	Agents []string `json:"agents,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterRegistrationList is a list of ManagedClusterRegistrations.
type ManagedClusterRegistrationList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManagedClusterRegistrations.
	Items []ManagedClusterRegistration `json:"items"`
}
