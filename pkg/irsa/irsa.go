// Package irsa computes the AWS resources with which a managed cluster on EKS authenticates to a hub on EKS: names
// of roles, policy documents and tags. It is pure.
//
// Names and documents follow the OCM enhancement proposal "AWS IAM based registration".
package irsa

// Mapping is how the hub's EKS cluster maps an IAM role to groups.
type Mapping string

const (
	// AccessEntry is an access entry of EKS.
	AccessEntry Mapping = "AccessEntry"
	// ConfigMap is an entry of the ConfigMap kube-system/aws-auth.
	ConfigMap Mapping = "ConfigMap"
)

// ARN is the ARN of an EKS cluster:
// arn:<partition>:eks:<region>:<account>:cluster/<name>. For a hub that does not run on
// EKS, the name is the cluster ID of its aws-iam-authenticator.
type ARN struct {
	Partition, Region, AccountID, ClusterName string
}

// Role is an IAM role. Its ARN is arn:<partition>:iam::<account>:role<path><name>.
type Role struct {
	Partition, AccountID string
	// Path begins and ends with a slash.
	Path string
	Name string
}

// Identity is a managed cluster on EKS together with its hub on EKS.
type Identity struct {
	Hub, Managed ARN
}

// Desired describes the desired AWS resources and the mapping of an accepted cluster.
type Desired struct {
	Identity
	// ManageRoles means that the server creates the role in the hub's account. If it is false, an administrator creates the
	// role, and the server only maps it.
	ManageRoles bool
	// Mapping is the kind of the mapping.
	Mapping Mapping
	// ClusterName is the name of the ManagedCluster.
	ClusterName string
	// ResourceTags are additional tags of all created resources.
	ResourceTags map[string]string
}
