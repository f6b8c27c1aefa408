package fakeaws

import (
	"regexp"
	"strings"
)

var (
	accountIDPattern = regexp.MustCompile(`^\d{12}$`)
	regionPattern    = regexp.MustCompile(`^(af|ap|ca|cn|eu|il|me|mx|sa|us|us-gov)-(central|north|south|east|west|northeast|northwest|southeast|southwest)-[1-9]$`)
)

// globalRegions contains the region for which IAM calls are signed, by partition.
var globalRegions = map[string]string{
	"aws":        "us-east-1",
	"aws-cn":     "cn-north-1",
	"aws-us-gov": "us-gov-west-1",
}

// partitionOf returns the partition of a region, or "" if the region is unknown.
func partitionOf(region string) string {
	switch {
	case !regionPattern.MatchString(region):
		return ""
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// parsedARN is arn:<partition>:<service>:<region>:<account>:<resource>.
type parsedARN struct {
	Partition, Service, Region, AccountID, Resource string
}

func parseARN(s string) (parsedARN, bool) {
	parts := strings.SplitN(s, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[1] == "" || parts[2] == "" || parts[5] == "" {
		return parsedARN{}, false
	}
	return parsedARN{Partition: parts[1], Service: parts[2], Region: parts[3], AccountID: parts[4], Resource: parts[5]}, true
}

// parseClusterARN returns the parts and the name of an EKS cluster's ARN.
func parseClusterARN(s string) (a parsedARN, name string, ok bool) {
	a, ok = parseARN(s)
	if !ok || a.Service != "eks" || !accountIDPattern.MatchString(a.AccountID) || partitionOf(a.Region) != a.Partition {
		return parsedARN{}, "", false
	}
	name, ok = strings.CutPrefix(a.Resource, "cluster/")
	return a, name, ok && clusterNamePattern.MatchString(name)
}
