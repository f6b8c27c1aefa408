package irsa

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Partitions of AWS. A role of one partition cannot be assumed from another.
const (
	PartitionAWS   = "aws"
	PartitionChina = "aws-cn"
	PartitionUSGov = "aws-us-gov"
)

const (
	// maxARNLength exceeds the length of every ARN of an EKS cluster, and maxRoleARNLength that of every ARN of a role.
	// Errors do not repeat longer input.
	maxARNLength     = 256
	maxRoleARNLength = 640

	// maxRolePathLength is the limit of IAM.
	maxRolePathLength = 512
)

var (
	partitions = []string{PartitionAWS, PartitionChina, PartitionUSGov}

	regionPattern      = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}$`)
	accountPattern     = regexp.MustCompile(`^[0-9]{12}$`)
	clusterNamePattern = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)
	rolePathPattern    = regexp.MustCompile(`^/([!-~]+/)?$`)
	roleNamePattern    = regexp.MustCompile(`^[\w+=,.@-]+$`)
)

// splitARN splits an ARN of a service. The last of the 6 parts, the resource, may contain colons.
func splitARN(s, service, form string, maxLength int) ([]string, error) {
	if s == "" {
		return nil, fmt.Errorf("the ARN is empty; it must be %s", form)
	}
	if len(s) > maxLength {
		return nil, fmt.Errorf("the ARN has %d characters, and may have at most %d", len(s), maxLength)
	}
	parts := strings.SplitN(s, ":", 6)
	if len(parts) != 6 {
		return nil, fmt.Errorf("the ARN %q has %d parts between colons instead of 6; it must be %s", s, len(parts), form)
	}
	if parts[0] != "arn" {
		return nil, fmt.Errorf("prefix %q of the ARN must be arn", parts[0])
	}
	if parts[2] != service {
		return nil, fmt.Errorf("service %q of the ARN must be %s", parts[2], service)
	}
	return parts, nil
}

// ParseARN parses the ARN of an EKS cluster. It accepts only the canonical form. The
// error names the invalid part.
func ParseARN(s string) (ARN, error) {
	parts, err := splitARN(s, "eks", "arn:<partition>:eks:<region>:<account>:cluster/<name>", maxARNLength)
	if err != nil {
		return ARN{}, err
	}
	name, found := strings.CutPrefix(parts[5], "cluster/")
	if !found {
		return ARN{}, fmt.Errorf("resource %q of the ARN must be cluster/<name>", parts[5])
	}
	arn := ARN{Partition: parts[1], Region: parts[3], AccountID: parts[4], ClusterName: name}
	if err := arn.Validate(); err != nil {
		return ARN{}, err
	}
	return arn, nil
}

// Validate checks the parts of an ARN, as ParseARN does. The error names the invalid part.
func (a ARN) Validate() error {
	switch {
	case !slices.Contains(partitions, a.Partition):
		return wrongPartition(a.Partition)
	case !regionPattern.MatchString(a.Region):
		return fmt.Errorf("region %q of the ARN is not the name of an AWS region", a.Region)
	case partitionOf(a.Region) != a.Partition:
		return fmt.Errorf("region %q of the ARN is not in partition %s", a.Region, a.Partition)
	case !accountPattern.MatchString(a.AccountID):
		return wrongAccount(a.AccountID)
	case !clusterNamePattern.MatchString(a.ClusterName):
		return fmt.Errorf("cluster name %q of the ARN must have 1 to 100 letters, digits, - and _, and begin with a letter or digit", a.ClusterName)
	}
	return nil
}

func wrongPartition(partition string) error {
	return fmt.Errorf("partition %q of the ARN must be one of %s", partition, strings.Join(partitions, ", "))
}

func wrongAccount(account string) error {
	return fmt.Errorf("account %q of the ARN must have 12 digits", account)
}

// ParseRoleARN parses the ARN of an IAM role. The error names the invalid part.
func ParseRoleARN(s string) (Role, error) {
	parts, err := splitARN(s, "iam", "arn:<partition>:iam::<account>:role/<name>", maxRoleARNLength)
	if err != nil {
		return Role{}, err
	}
	resource, isRole := strings.CutPrefix(parts[5], "role/")
	// IAM identifies a role by its name, which is unique in the account. The path is only part of the ARN.
	slash := strings.LastIndexByte(resource, '/') + 1
	role := Role{Partition: parts[1], AccountID: parts[4], Path: "/" + resource[:slash], Name: resource[slash:]}
	switch {
	case !slices.Contains(partitions, role.Partition):
		err = wrongPartition(role.Partition)
	case parts[3] != "":
		err = fmt.Errorf("region %q of the ARN of a role must be empty", parts[3])
	case !accountPattern.MatchString(role.AccountID):
		err = wrongAccount(role.AccountID)
	case !isRole:
		err = fmt.Errorf("resource %q of the ARN must be role/<name>", parts[5])
	case len(role.Path) > maxRolePathLength || !rolePathPattern.MatchString(role.Path):
		err = fmt.Errorf("path %q of the role must have at most %d ASCII characters without spaces", role.Path, maxRolePathLength)
	case len(role.Name) > maxRoleNameLength || !roleNamePattern.MatchString(role.Name):
		err = fmt.Errorf("name %q of the role must have 1 to %d letters, digits and _+=,.@-", role.Name, maxRoleNameLength)
	default:
		return role, nil
	}
	return Role{}, err
}

// String returns the ARN as AWS spells it.
func (r Role) String() string {
	return fmt.Sprintf("arn:%s:iam::%s:role%s%s", r.Partition, r.AccountID, r.Path, r.Name)
}

// partitionOf returns the partition of a region according to its prefix. The default is aws.
func partitionOf(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return PartitionChina
	case strings.HasPrefix(region, "us-gov-"):
		return PartitionUSGov
	case strings.HasPrefix(region, "us-iso"), strings.HasPrefix(region, "eu-iso"), strings.HasPrefix(region, "eusc-"):
		return ""
	}
	return PartitionAWS
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
