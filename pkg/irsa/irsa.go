// Package irsa says what a managed cluster on EKS and its hub on EKS need in AWS, so
// that the cluster can act as itself on the hub: names of roles, policy documents,
// tags, and the calls that lead from what exists to what is wanted. It is pure: it
// asks and changes nothing.
//
// Names and documents are those of the enhancement proposal "AWS IAM based
// registration" of Open Cluster Management.
package irsa

// Mapping is how the hub's EKS cluster knows which group an IAM role belongs to.
type Mapping string

const (
	// AccessEntry is an access entry of EKS.
	AccessEntry Mapping = "AccessEntry"
	// ConfigMap is an entry of the ConfigMap kube-system/aws-auth.
	ConfigMap Mapping = "ConfigMap"
)

// ARN is that of an EKS cluster: arn:<partition>:eks:<region>:<account>:cluster/<name>. A
// hub that is not EKS has the cluster ID of its aws-iam-authenticator as the name.
type ARN struct {
	Partition, Region, AccountID, ClusterName string
}

// Identity is a managed cluster on EKS as its hub on EKS knows it.
type Identity struct {
	Hub, Managed ARN
}

// Desired is what AWS and the hub's mapping should have for an accepted cluster.
type Desired struct {
	Identity
	// ManageRoles is whether the role in the hub's account is ours to make. If not,
	// somebody else makes it, and only the mapping is ours.
	ManageRoles bool
	// Mapping says whether the mapping is in AWS as well.
	Mapping Mapping
	// ClusterName is the name of the ManagedCluster.
	ClusterName string
	// ResourceTags are further tags of everything that is made.
	ResourceTags map[string]string
}
