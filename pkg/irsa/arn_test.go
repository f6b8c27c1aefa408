package irsa

import (
	"strings"
	"testing"
)

func TestParseARN(t *testing.T) {
	for _, arn := range []string{
		"arn:aws:eks:us-west-2:123456789012:cluster/hub-1",
		"arn:aws:eks:ap-southeast-2:000000000001:cluster/A",
		"arn:aws:eks:mx-central-1:123456789012:cluster/0_-z",
		"arn:aws-cn:eks:cn-northwest-1:123456789012:cluster/hub",
		"arn:aws-us-gov:eks:us-gov-east-1:123456789012:cluster/hub",
		"arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("n", 100),
	} {
		parsed, err := ParseARN(arn)
		if err != nil {
			t.Errorf("%s: %v", arn, err)
		}
		if parsed.String() != arn {
			t.Errorf("%s became %s", arn, parsed)
		}
	}

	for arn, part := range map[string]string{
		"":        "empty",
		"cluster": "parts",
		"arn:aws:eks:us-west-2:123456789012:cluster":                               "resource",
		"arn:aws:eks:us-west-2:123456789012":                                       "parts",
		"arn:aws:eks:us-west-2:123456789012:cluster/a:b":                           "parts",
		"ARN:aws:eks:us-west-2:123456789012:cluster/a":                             "prefix",
		" arn:aws:eks:us-west-2:123456789012:cluster/a":                            "prefix",
		"arn:aws-iso:eks:us-iso-east-1:123456789012:cluster/a":                     "partition",
		"arn::eks:us-west-2:123456789012:cluster/a":                                "partition",
		"arn:AWS:eks:us-west-2:123456789012:cluster/a":                             "partition",
		"arn:aws:iam:us-west-2:123456789012:cluster/a":                             "service",
		"arn:aws:EKS:us-west-2:123456789012:cluster/a":                             "service",
		"arn:aws:eks::123456789012:cluster/a":                                      "region",
		"arn:aws:eks:us_west_2:123456789012:cluster/a":                             "region",
		"arn:aws:eks:US-WEST-2:123456789012:cluster/a":                             "region",
		"arn:aws:eks:us-west-2\n:123456789012:cluster/a":                           "region",
		"arn:aws:eks:cn-north-1:123456789012:cluster/a":                            "region",
		"arn:aws-cn:eks:us-west-2:123456789012:cluster/a":                          "region",
		"arn:aws:eks:us-gov-west-1:123456789012:cluster/a":                         "region",
		"arn:aws:eks:us-isob-east-1:123456789012:cluster/a":                        "region",
		"arn:aws:eks:us-west-2::cluster/a":                                         "account",
		"arn:aws:eks:us-west-2:12345678901:cluster/a":                              "account",
		"arn:aws:eks:us-west-2:1234567890123:cluster/a":                            "account",
		"arn:aws:eks:us-west-2:12345678901x:cluster/a":                             "account",
		"arn:aws:eks:us-west-2:１２３４５６７８９０１２:cluster/a":                             "account",
		"arn:aws:eks:us-west-2:123456789012:cluster/":                              "cluster name",
		"arn:aws:eks:us-west-2:123456789012:cluster/-a":                            "cluster name",
		"arn:aws:eks:us-west-2:123456789012:cluster/a#b":                           "cluster name",
		"arn:aws:eks:us-west-2:123456789012:cluster/a/b":                           "cluster name",
		"arn:aws:eks:us-west-2:123456789012:cluster/a.b":                           "cluster name",
		"arn:aws:eks:us-west-2:123456789012:cluster/a ":                            "cluster name",
		"arn:aws:eks:us-west-2:123456789012:cluster/a\n":                           "cluster name",
		"arn:aws:eks:us-west-2:123456789012:nodegroup/a":                           "resource",
		"arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("n", 101):   "cluster name",
		"arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("n", 10000): "characters",
	} {
		parsed, err := ParseARN(arn)
		if err == nil {
			t.Errorf("%q is taken as %v", arn, parsed)
			continue
		}
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q: the error does not name %q: %v", arn, part, err)
		}
		if len(err.Error()) > 2*maxARNLength {
			t.Errorf("the error for an ARN of %d characters has %d", len(arn), len(err.Error()))
		}
		if parsed != (ARN{}) {
			t.Errorf("%q: an ARN is returned with the error: %v", arn, parsed)
		}
	}
}

func TestRoleARN(t *testing.T) {
	for partition, want := range map[string]string{
		PartitionAWS:   "arn:aws:iam::123456789012:role/r",
		PartitionChina: "arn:aws-cn:iam::123456789012:role/r",
		PartitionUSGov: "arn:aws-us-gov:iam::123456789012:role/r",
	} {
		if got := (ARN{Partition: partition, AccountID: "123456789012"}).RoleARN("r"); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
}

func FuzzParseARN(f *testing.F) {
	f.Add("arn:aws:eks:us-west-2:123456789012:cluster/hub-1")
	f.Add("arn:aws-cn:eks:cn-north-1:123456789012:cluster/a_b")
	f.Add("arn:aws:eks:us-west-2:123456789012:cluster/")
	f.Add(":::::")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		arn, err := ParseARN(s)
		if err != nil {
			return
		}
		if arn.String() != s {
			t.Errorf("%q was read as %q", s, arn)
		}
		if err := arn.Validate(); err != nil {
			t.Errorf("%q is read, and is not valid: %v", s, err)
		}
		identity := Identity{Hub: arn, Managed: arn}
		if len(identity.ManagedClusterRoleName()) > maxRoleNameLength || len(identity.HubRoleName()) > maxRoleNameLength {
			t.Errorf("%q has roles with names longer than IAM allows", s)
		}
		for _, value := range identity.Tags() {
			if !tagPattern.MatchString(value) || len(value) > maxTagValueLength {
				t.Errorf("%q has a tag that IAM does not allow: %q", s, value)
			}
		}
	})
}
