package irsa

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	hubRolePrefix            = "ocm-hub-"
	managedClusterRolePrefix = "ocm-managed-cluster-"
	creatorRoleSuffix        = "_managed-cluster-identity-creator"

	// maxRoleNameLength is the limit of IAM.
	maxRoleNameLength = 64
)

// Hash returns the MD5 of the accounts and names of both clusters, in hexadecimal. It is
// only part of names and has no security function.
func (i Identity) Hash() string {
	sum := md5.Sum([]byte(strings.Join([]string{i.Hub.AccountID, i.Hub.ClusterName, i.Managed.AccountID, i.Managed.ClusterName}, "#")))
	return hex.EncodeToString(sum[:])
}

// HubRoleName returns the name of the role in the account of the hub as which the managed
// cluster acts. The inline policy of that role has the same name.
func (i Identity) HubRoleName() string {
	return hubRolePrefix + i.Hash()
}

// HubRoleARN returns the ARN of that role.
func (i Identity) HubRoleARN() string {
	return i.Hub.RoleARN(i.HubRoleName())
}

// ManagedClusterRoleName returns the name of the role in the account of the managed
// cluster. Only this role may assume the role of HubRoleName. Its inline policy has the
// same name.
func (i Identity) ManagedClusterRoleName() string {
	return managedClusterRolePrefix + i.Hash()
}

// ManagedClusterRoleARN returns the ARN of that role.
func (i Identity) ManagedClusterRoleARN() string {
	return i.Managed.RoleARN(i.ManagedClusterRoleName())
}

// Tags returns the tags of both roles. The trust policy of the hub's role requires them
// on the role of the managed cluster.
func (i Identity) Tags() map[string]string {
	return map[string]string{
		"hub_cluster_account_id":     i.Hub.AccountID,
		"hub_cluster_name":           i.Hub.ClusterName,
		"managed_cluster_account_id": i.Managed.AccountID,
		"managed_cluster_name":       i.Managed.ClusterName,
	}
}

// Validate returns an error if the account of one cluster cannot assume a role in the account of the other.
func (i Identity) Validate() error {
	if i.Hub.Partition != i.Managed.Partition {
		return fmt.Errorf("partition %q of the ARN must be %s, the partition of the hub: no role can be assumed across partitions", i.Managed.Partition, i.Hub.Partition)
	}
	return nil
}

// CreatorRoleName returns the name of the server's role in the account of the hub. It returns an error if the name exceeds
// the limit of IAM, which is the case for names of hubs with more than 31 characters.
func CreatorRoleName(hub ARN) (string, error) {
	name := hub.ClusterName + creatorRoleSuffix
	if len(name) > maxRoleNameLength {
		return "", fmt.Errorf("the role %s would have %d characters, and IAM allows %d: a role for a hub with a name longer than %d characters needs a name of its own",
			name, len(name), maxRoleNameLength, maxRoleNameLength-len(creatorRoleSuffix))
	}
	return name, nil
}
