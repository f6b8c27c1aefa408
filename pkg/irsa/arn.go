package irsa

import (
	"fmt"
	"regexp"
	"strings"
)

// A role of one partition (aws, aws-cn or aws-us-gov) cannot be assumed from another.
var (
	clusterARN = regexp.MustCompile(`^arn:(aws|aws-cn|aws-us-gov):eks:([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2}):([0-9]{12}):cluster/([0-9A-Za-z][A-Za-z0-9_-]{0,99})$`)
	// IAM allows 512 characters for a path, and 64 for a name.
	roleARN = regexp.MustCompile(`^arn:(aws|aws-cn|aws-us-gov):iam::([0-9]{12}):role(/(?:[!-~]{1,510}/)?)([\w+=,.@-]{1,64})$`)
)

// ParseARN parses the ARN of an EKS cluster. It accepts only the canonical form, and only regions of the partition.
func ParseARN(s string) (ARN, error) {
	parts := clusterARN.FindStringSubmatch(s)
	if parts == nil {
		return ARN{}, fmt.Errorf("%.100q is not the ARN of an EKS cluster in a partition aws, aws-cn or aws-us-gov: it must be "+
			"arn:<partition>:eks:<region>:<account of 12 digits>:cluster/<name>", s)
	}
	arn := ARN{Partition: parts[1], Region: parts[2], AccountID: parts[3], ClusterName: parts[4]}
	if partitionOf(arn.Region) != arn.Partition {
		return ARN{}, fmt.Errorf("region %q of the ARN is not in partition %s", arn.Region, arn.Partition)
	}
	return arn, nil
}

// partitionOf returns the partition of a region according to its prefix, or an empty string for an unsupported one.
func partitionOf(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	case strings.HasPrefix(region, "us-iso"), strings.HasPrefix(region, "eu-iso"), strings.HasPrefix(region, "eusc-"):
		return ""
	}
	return "aws"
}

// ParseRoleARN parses the ARN of an IAM role. IAM identifies a role by its name, which is unique in the account. The path
// is only part of the ARN.
func ParseRoleARN(s string) (Role, error) {
	parts := roleARN.FindStringSubmatch(s)
	if parts == nil {
		return Role{}, fmt.Errorf("%.100q is not the ARN of an IAM role in a partition aws, aws-cn or aws-us-gov: it must be "+
			"arn:<partition>:iam::<account of 12 digits>:role/<name>, optionally with a path before the name", s)
	}
	return Role{Partition: parts[1], AccountID: parts[2], Path: parts[3], Name: parts[4]}, nil
}

// String returns the ARN as AWS spells it.
func (r Role) String() string {
	return fmt.Sprintf("arn:%s:iam::%s:role%s%s", r.Partition, r.AccountID, r.Path, r.Name)
}

// String returns the ARN as AWS spells it.
func (a ARN) String() string {
	return a.eks("cluster/" + a.ClusterName)
}

// Role returns an IAM role without a path in the account of the cluster.
func (a ARN) Role(name string) Role {
	return Role{Partition: a.Partition, AccountID: a.AccountID, Path: "/", Name: name}
}

// RoleARN returns the ARN of that role.
func (a ARN) RoleARN(name string) string {
	return a.Role(name).String()
}

// accessEntry returns the ARN of access entries of the cluster for a role.
func (a ARN) accessEntry(role string) string {
	return a.eks("access-entry/" + a.ClusterName + "/role/" + a.AccountID + "/" + role)
}

func (a ARN) eks(resource string) string {
	return fmt.Sprintf("arn:%s:eks:%s:%s:%s", a.Partition, a.Region, a.AccountID, resource)
}

func (a ARN) iam(resource string) string {
	return fmt.Sprintf("arn:%s:iam::%s:%s", a.Partition, a.AccountID, resource)
}
