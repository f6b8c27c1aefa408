package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RegistrationDriver specifies how a managed cluster authenticates to the hub.
// +enum
type RegistrationDriver string

const (
	// DriverCSR uses client certificates that the hub signs.
	DriverCSR RegistrationDriver = "csr"
	// DriverAWSIRSA uses AWS IAM roles, as in the Open Cluster Management enhancement "AWS IAM based
	// registration".
	DriverAWSIRSA RegistrationDriver = "aws-irsa"
)

// Condition types of a ManagedClusterRegistration.
const (
	// RegistrationAccessGranted is True while the cluster has access to the hub, and False once the access is revoked.
	RegistrationAccessGranted = "AccessGranted"
	// RegistrationIdentityReady is True while the resources of the driver outside the RBAC of the hub exist,
	// for example IAM roles.
	RegistrationIdentityReady = "IdentityReady"
	// RegistrationCleanedUp is False while objects of a denied or deleted cluster remain. The message lists them.
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

// ManagedClusterRegistration is the server's record of the identity of a managed cluster. It has the name of
// the ManagedCluster. The server creates it with the ManagedCluster and deletes it when all objects of the
// cluster are removed from the hub. Only the server can write it.
type ManagedClusterRegistration struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the identity of the cluster.
	// +optional
	Spec ManagedClusterRegistrationSpec `json:"spec,omitempty"`

	// status is the state of the registration.
	// +optional
	Status ManagedClusterRegistrationStatus `json:"status,omitempty"`
}

// ManagedClusterRegistrationSpec is the identity of a cluster.
type ManagedClusterRegistrationSpec struct {
	// managedClusterUID is the UID of the ManagedCluster.
	// +optional
	ManagedClusterUID types.UID `json:"managedClusterUID,omitempty"`

	// requestedBy is the user who created the ManagedCluster.
	// +optional
	RequestedBy Requester `json:"requestedBy,omitempty"`

	// driver is the registration driver of the cluster: csr, or aws-irsa once the cluster has claimed an ARN.
	// +optional
	Driver RegistrationDriver `json:"driver,omitempty"`

	// irsa is the claim of an EKS cluster. It is set only if driver is aws-irsa.
	// +optional
	IRSA *IRSAClaim `json:"irsa,omitempty"`
}

// Requester is a user of the hub.
type Requester struct {
	// username is the name of the user.
	// +optional
	Username string `json:"username,omitempty"`

	// groups is the list of groups of the user.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// IRSAClaim is the claim of a managed cluster to be an EKS cluster. No two clusters of a hub have the same
// claim or a claim with the same IAM identity.
type IRSAClaim struct {
	// managedClusterARN is the ARN of the EKS cluster, arn:<partition>:eks:<region>:<account>:cluster/<name>.
	ManagedClusterARN string `json:"managedClusterARN"`

	// claimedBy is the name of the user who made the claim.
	// +optional
	ClaimedBy string `json:"claimedBy,omitempty"`

	// claimedAt is the time of the claim.
	// +optional
	// +nullable
	ClaimedAt metav1.Time `json:"claimedAt,omitempty"`

	// withdrawn specifies whether the claim is withdrawn. The server removes a withdrawn claim when all
	// resources of the claim are removed.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// ManagedClusterRegistrationStatus is the state of a registration.
type ManagedClusterRegistrationStatus struct {
	// conditions report the state of the registration. Known types are AccessGranted, IdentityReady and
	// CleanedUp.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// irsa is the IAM identity of the cluster. It is set only if driver is aws-irsa.
	// +optional
	IRSA *IRSAStatus `json:"irsa,omitempty"`

	// csr lists the approved client certificates of the cluster. It is set only if driver is csr.
	// +optional
	CSR *CSRStatus `json:"csr,omitempty"`

	// autoApprovedAt is the time at which a rule of automatic approval accepted the cluster. Rules accept each
	// cluster at most once.
	// +optional
	AutoApprovedAt *metav1.Time `json:"autoApprovedAt,omitempty"`
}

// IRSAStatus is the IAM identity of a cluster.
type IRSAStatus struct {
	// hash is the MD5 hash of the accounts and names of both clusters in hexadecimal. The names of the roles
	// contain it.
	// +optional
	Hash string `json:"hash,omitempty"`

	// hubRoleARN is the ARN of the role in the account of the hub that the cluster assumes.
	// +optional
	HubRoleARN string `json:"hubRoleARN,omitempty"`

	// managedClusterRoleARN is the ARN of the role in the account of the cluster that is allowed to assume it.
	// +optional
	ManagedClusterRoleARN string `json:"managedClusterRoleARN,omitempty"`

	// provisioned specifies whether AWS may contain resources of this identity. The server sets it before the
	// first request that creates a resource, and clears it after the last request that removes one.
	// +optional
	Provisioned bool `json:"provisioned,omitempty"`

	// appliedHash contains the mappings, the roles and the hash of the last state that was applied to AWS, in JSON.
	// +optional
	AppliedHash string `json:"appliedHash,omitempty"`
}

// CSRStatus lists the certificates that the driver csr has approved for a cluster.
type CSRStatus struct {
	// agents lists the names of the last ten agents whose first certificate was approved, oldest first.
	// +optional
	// +listType=atomic
	Agents []string `json:"agents,omitempty"`
}
