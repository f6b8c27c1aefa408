package irsa

import (
	"strings"
	"testing"
)

func TestParseRoleARN(t *testing.T) {
	longPath := "/" + strings.Repeat("p", 510) + "/"
	longName := strings.Repeat("n", maxRoleNameLength)
	for arn, want := range map[string]Role{
		"arn:aws:iam::123456789012:role/hub":                                {"aws", "123456789012", "/", "hub"},
		"arn:aws:iam::123456789012:role/platform/eks/hub-creator":           {"aws", "123456789012", "/platform/eks/", "hub-creator"},
		"arn:aws-cn:iam::123456789012:role/platform/hub":                    {"aws-cn", "123456789012", "/platform/", "hub"},
		"arn:aws-us-gov:iam::000000000001:role/hub":                         {"aws-us-gov", "000000000001", "/", "hub"},
		"arn:aws:iam::123456789012:role/a:b,c/=/_+=,.@-":                    {"aws", "123456789012", "/a:b,c/=/", "_+=,.@-"},
		"arn:aws:iam::123456789012:role/" + longName:                        {"aws", "123456789012", "/", longName},
		"arn:aws-us-gov:iam::123456789012:role" + longPath + longName:       {"aws-us-gov", "123456789012", longPath, longName},
		"arn:aws:iam::123456789012:role/aws-service-role/x.amazonaws.com/r": {"aws", "123456789012", "/aws-service-role/x.amazonaws.com/", "r"},
	} {
		role, err := ParseRoleARN(arn)
		if err != nil || role != want {
			t.Errorf("ParseRoleARN(%s) = %+v, %v, want %+v", arn, role, err, want)
		}
		if role.String() != arn {
			t.Errorf("ParseRoleARN(%s).String() = %s, want the same ARN", arn, role)
		}
	}

	for _, arn := range []string{
		"",
		"hub",
		"arn:aws:iam::123456789012",
		"ARN:aws:iam::123456789012:role/hub",
		" arn:aws:iam::123456789012:role/hub",
		"arn:aws-iso:iam::123456789012:role/hub",
		"arn::iam::123456789012:role/hub",
		"arn:aws:sts::123456789012:assumed-role/hub/session",
		"arn:aws:eks:us-west-2:123456789012:cluster/hub",
		"arn:aws:iam:us-west-2:123456789012:role/hub",
		"arn:aws:iam:::role/hub",
		"arn:aws:iam::12345678901:role/hub",
		"arn:aws:iam::aws:role/hub",
		"arn:aws:iam::123456789012:instance-profile/hub",
		"arn:aws:iam::123456789012:user/hub",
		"arn:aws:iam::123456789012:assumed-role/hub",
		"arn:aws:iam::123456789012:role",
		"arn:aws:iam::123456789012:role/",
		"arn:aws:iam::123456789012:role/platform/",
		"arn:aws:iam::123456789012:role/hub ",
		"arn:aws:iam::123456789012:role/hub\n",
		"arn:aws:iam::123456789012:role/hub*",
		"arn:aws:iam::123456789012:role/hub:x",
		"arn:aws:iam::123456789012:role/" + longName + "n",
		"arn:aws:iam::123456789012:role//hub",
		"arn:aws:iam::123456789012:role/a b/hub",
		"arn:aws:iam::123456789012:role" + strings.TrimSuffix(longPath, "/") + "p/hub",
		"arn:aws:iam::123456789012:role/" + strings.Repeat("n", 10000),
	} {
		role, err := ParseRoleARN(arn)
		if err == nil || role != (Role{}) {
			t.Errorf("ParseRoleARN(%q) = %+v, %v, want no role and an error", arn, role, err)
		}
	}
}

func FuzzParseRoleARN(f *testing.F) {
	f.Add("arn:aws:iam::123456789012:role/platform/eks/hub-creator")
	f.Add("arn:aws-cn:iam::123456789012:role/hub")
	f.Add("arn:aws:iam::123456789012:role//")
	f.Add("::::::")
	f.Fuzz(func(t *testing.T, s string) {
		role, err := ParseRoleARN(s)
		if err != nil {
			return
		}
		if role.String() != s {
			t.Errorf("ParseRoleARN(%q).String() = %q, want the same text", s, role)
		}
		if role.Name == "" || len(role.Name) > maxRoleNameLength || strings.ContainsAny(role.Name, "/: \n") {
			t.Errorf("name in ParseRoleARN(%q) = %q, want the name of a role", s, role.Name)
		}
	})
}
