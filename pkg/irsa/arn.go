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

// maxARNLength exceeds the length of every ARN of an EKS cluster. Errors do not repeat
// longer input.
const maxARNLength = 256

var (
	partitions = []string{PartitionAWS, PartitionChina, PartitionUSGov}

	regionPattern      = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}$`)
	accountPattern     = regexp.MustCompile(`^[0-9]{12}$`)
	clusterNamePattern = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)
)

// ParseARN parses the ARN of an EKS cluster. It accepts only the canonical form. The
// error names the invalid part.
func ParseARN(s string) (ARN, error) {
	if s == "" {
		return ARN{}, fmt.Errorf("the ARN is empty; it must be arn:<partition>:eks:<region>:<account>:cluster/<name>")
	}
	if len(s) > maxARNLength {
		return ARN{}, fmt.Errorf("the ARN has %d characters, more than that of any EKS cluster", len(s))
	}
	parts := strings.Split(s, ":")
	if len(parts) != 6 {
		return ARN{}, fmt.Errorf("the ARN %q has %d parts between colons instead of 6; it must be arn:<partition>:eks:<region>:<account>:cluster/<name>", s, len(parts))
	}
	if parts[0] != "arn" {
		return ARN{}, fmt.Errorf("prefix %q of the ARN must be arn", parts[0])
	}
	if parts[2] != "eks" {
		return ARN{}, fmt.Errorf("service %q of the ARN must be eks", parts[2])
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
		return fmt.Errorf("partition %q of the ARN must be one of %s", a.Partition, strings.Join(partitions, ", "))
	case !regionPattern.MatchString(a.Region):
		return fmt.Errorf("region %q of the ARN is not the name of an AWS region", a.Region)
	case partitionOf(a.Region) != a.Partition:
		return fmt.Errorf("region %q of the ARN is not in partition %s", a.Region, a.Partition)
	case !accountPattern.MatchString(a.AccountID):
		return fmt.Errorf("account %q of the ARN must have 12 digits", a.AccountID)
	case !clusterNamePattern.MatchString(a.ClusterName):
		return fmt.Errorf("cluster name %q of the ARN must have 1 to 100 letters, digits, - and _, and begin with a letter or digit", a.ClusterName)
	}
	return nil
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
	return fmt.Sprintf("arn:%s:eks:%s:%s:cluster/%s", a.Partition, a.Region, a.AccountID, a.ClusterName)
}

// RoleARN returns the ARN of an IAM role in the account of the cluster.
func (a ARN) RoleARN(name string) string {
	return a.iam("role/" + name)
}

func (a ARN) iam(resource string) string {
	return fmt.Sprintf("arn:%s:iam::%s:%s", a.Partition, a.AccountID, resource)
}
