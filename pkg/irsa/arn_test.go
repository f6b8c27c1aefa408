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
			t.Errorf("ParseARN(%s) = %v, want no error", arn, err)
		}
		if parsed.String() != arn {
			t.Errorf("ParseARN(%s).String() = %s, want the same ARN", arn, parsed)
		}
	}

	for _, arn := range []string{
		"arn:aws:eks:cn-north-1:123456789012:cluster/a",
		"arn:aws-cn:eks:us-west-2:123456789012:cluster/a",
		"arn:aws:eks:us-gov-west-1:123456789012:cluster/a",
		"arn:aws:eks:us-isob-east-1:123456789012:cluster/a",
	} {
		if parsed, err := ParseARN(arn); err == nil || !strings.Contains(err.Error(), "region") || parsed != (ARN{}) {
			t.Errorf("ParseARN(%s) = %v, %v, want an error that names the region", arn, parsed, err)
		}
	}

	for _, arn := range []string{
		"",
		"cluster",
		"arn:aws:eks:us-west-2:123456789012:cluster",
		"arn:aws:eks:us-west-2:123456789012",
		"arn:aws:eks:us-west-2:123456789012:cluster/a:b",
		"ARN:aws:eks:us-west-2:123456789012:cluster/a",
		" arn:aws:eks:us-west-2:123456789012:cluster/a",
		"arn:aws-iso:eks:us-iso-east-1:123456789012:cluster/a",
		"arn::eks:us-west-2:123456789012:cluster/a",
		"arn:AWS:eks:us-west-2:123456789012:cluster/a",
		"arn:aws:iam:us-west-2:123456789012:cluster/a",
		"arn:aws:EKS:us-west-2:123456789012:cluster/a",
		"arn:aws:eks::123456789012:cluster/a",
		"arn:aws:eks:us_west_2:123456789012:cluster/a",
		"arn:aws:eks:US-WEST-2:123456789012:cluster/a",
		"arn:aws:eks:us-west-2\n:123456789012:cluster/a",
		"arn:aws:eks:us-west-2::cluster/a",
		"arn:aws:eks:us-west-2:12345678901:cluster/a",
		"arn:aws:eks:us-west-2:1234567890123:cluster/a",
		"arn:aws:eks:us-west-2:12345678901x:cluster/a",
		"arn:aws:eks:us-west-2:１２３４５６７８９０１２:cluster/a",
		"arn:aws:eks:us-west-2:123456789012:cluster/",
		"arn:aws:eks:us-west-2:123456789012:cluster/-a",
		"arn:aws:eks:us-west-2:123456789012:cluster/a#b",
		"arn:aws:eks:us-west-2:123456789012:cluster/a/b",
		"arn:aws:eks:us-west-2:123456789012:cluster/a.b",
		"arn:aws:eks:us-west-2:123456789012:cluster/a ",
		"arn:aws:eks:us-west-2:123456789012:cluster/a\n",
		"arn:aws:eks:us-west-2:123456789012:nodegroup/a",
		"arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("n", 101),
		"arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("n", 10000),
	} {
		parsed, err := ParseARN(arn)
		if err == nil {
			t.Errorf("ParseARN(%q) = %v, want an error", arn, parsed)
			continue
		}
		if !strings.Contains(err.Error(), "arn:<partition>:eks:<region>:<account of 12 digits>:cluster/<name>") {
			t.Errorf("ParseARN(%q) = %v, want an error that contains the form of an ARN", arn, err)
		}
		if len(err.Error()) > 512 {
			t.Errorf("length of the error for an ARN of %d bytes = %d, want at most 512", len(arn), len(err.Error()))
		}
		if parsed != (ARN{}) {
			t.Errorf("ParseARN(%q) = %v with an error, want the zero ARN", arn, parsed)
		}
	}
}

func TestRoleARN(t *testing.T) {
	for partition, want := range map[string]string{
		"aws":        "arn:aws:iam::123456789012:role/r",
		"aws-cn":     "arn:aws-cn:iam::123456789012:role/r",
		"aws-us-gov": "arn:aws-us-gov:iam::123456789012:role/r",
	} {
		if got := (ARN{Partition: partition, AccountID: "123456789012"}).RoleARN("r"); got != want {
			t.Errorf("RoleARN(r) in partition %s = %s, want %s", partition, got, want)
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
			t.Errorf("ParseARN(%q).String() = %q, want the same text", s, arn)
		}
		identity := Identity{Hub: arn, Managed: arn}
		if len(identity.ManagedClusterRoleName()) > maxRoleNameLength || len(identity.HubRoleName()) > maxRoleNameLength {
			t.Errorf("role names of %q = %q, %q, want at most %d bytes", s, identity.ManagedClusterRoleName(), identity.HubRoleName(), maxRoleNameLength)
		}
		for _, value := range identity.Tags() {
			if !tagPattern.MatchString(value) || len(value) > maxTagValueLength {
				t.Errorf("tag of %q = %q, want a value that IAM accepts", s, value)
			}
		}
	})
}
