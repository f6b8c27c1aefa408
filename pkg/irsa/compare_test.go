package irsa

import (
	"net/url"
	"strings"
	"testing"
)

func TestPolicyContainedIn(t *testing.T) {
	hub := ARN{Partition: "aws", Region: "us-west-2", AccountID: "111122223333", ClusterName: "hub"}
	wanted := CreatorTrustPolicy(hub, "issuer", "ns:server")
	both := CreatorTrustPolicy(hub, "issuer", "ns:other", "ns:server").JSON()
	for name, test := range map[string]struct {
		document string
		want     bool
	}{
		"itself":                     {wanted.JSON(), true},
		"URL-encoded":                {url.PathEscape(wanted.JSON()), true},
		"with another statement":     {both, true},
		"with a statement ID":        {strings.Replace(both, `"Effect"`, `"Sid":"Server","Effect"`, 2), true},
		"a statement without a list": {strings.NewReplacer(`"Statement":[`, `"Statement":`, `}]}`, `}}`).Replace(wanted.JSON()), true},
		"another subject":            {CreatorTrustPolicy(hub, "issuer", "ns:other").JSON(), false},
		"another effect":             {strings.Replace(wanted.JSON(), "Allow", "Deny", 1), false},
		"without statements":         {`{"Version":"2012-10-17"}`, false},
		"not a policy":               {`[]`, false},
		"not JSON":                   {`{`, false},
		"empty":                      {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wanted.ContainedIn(test.document); got != test.want {
				t.Errorf("ContainedIn(%s) = %t, want %t", test.document, got, test.want)
			}
		})
	}
}

func TestSamePolicy(t *testing.T) {
	hub := ARN{Partition: "aws", Region: "us-west-2", AccountID: "111111111111", ClusterName: "hub-1"}
	access := Identity{Hub: hub}.HubAccessPolicy().JSON()
	for document, want := range map[string]bool{
		access:                 true,
		url.PathEscape(access): true,
		`{ "Statement": {"Action": ["eks:ListClusters", "eks:DescribeCluster"], "Effect": "Allow",
			"Resource": ["arn:aws:eks:us-west-2:111111111111:cluster/hub-1"]}, "Version": "2012-10-17" }`: true,
		strings.Replace(access, "eks:ListClusters", "eks:*", 1): false,
		`{"Version":"2012-10-17","Statement":[]}`:               false,
		"%7B": false,
		"%zz": false,
		"":    false,
	} {
		if got := SamePolicy(document, access); got != want {
			t.Errorf("SamePolicy(%s) = %t, want %t", document, got, want)
		}
	}
}
