package irsa

import (
	"strings"
	"testing"
)

func TestParseRoleARN(t *testing.T) {
	longPath := "/" + strings.Repeat("p", maxRolePathLength-2) + "/"
	longName := strings.Repeat("n", maxRoleNameLength)
	for arn, want := range map[string]Role{
		"arn:aws:iam::123456789012:role/hub":                                {PartitionAWS, "123456789012", "/", "hub"},
		"arn:aws:iam::123456789012:role/platform/eks/hub-creator":           {PartitionAWS, "123456789012", "/platform/eks/", "hub-creator"},
		"arn:aws-cn:iam::123456789012:role/platform/hub":                    {PartitionChina, "123456789012", "/platform/", "hub"},
		"arn:aws-us-gov:iam::000000000001:role/hub":                         {PartitionUSGov, "000000000001", "/", "hub"},
		"arn:aws:iam::123456789012:role/a:b,c/=/_+=,.@-":                    {PartitionAWS, "123456789012", "/a:b,c/=/", "_+=,.@-"},
		"arn:aws:iam::123456789012:role/" + longName:                        {PartitionAWS, "123456789012", "/", longName},
		"arn:aws-us-gov:iam::123456789012:role" + longPath + longName:       {PartitionUSGov, "123456789012", longPath, longName},
		"arn:aws:iam::123456789012:role/aws-service-role/x.amazonaws.com/r": {PartitionAWS, "123456789012", "/aws-service-role/x.amazonaws.com/", "r"},
	} {
		role, err := ParseRoleARN(arn)
		if err != nil || role != want {
			t.Errorf("ParseRoleARN(%s) = %+v, %v, want %+v", arn, role, err, want)
		}
		if role.String() != arn {
			t.Errorf("ParseRoleARN(%s).String() = %s, want the same ARN", arn, role)
		}
	}

	for arn, part := range map[string]string{
		"":                                       "empty",
		"hub":                                    "parts",
		"arn:aws:iam::123456789012":              "parts",
		"ARN:aws:iam::123456789012:role/hub":     "prefix",
		" arn:aws:iam::123456789012:role/hub":    "prefix",
		"arn:aws-iso:iam::123456789012:role/hub": "partition",
		"arn::iam::123456789012:role/hub":        "partition",
		"arn:aws:sts::123456789012:assumed-role/hub/session":                           "service",
		"arn:aws:eks:us-west-2:123456789012:cluster/hub":                               "service",
		"arn:aws:iam:us-west-2:123456789012:role/hub":                                  "region",
		"arn:aws:iam:::role/hub":                                                       "account",
		"arn:aws:iam::12345678901:role/hub":                                            "account",
		"arn:aws:iam::aws:role/hub":                                                    "account",
		"arn:aws:iam::123456789012:instance-profile/hub":                               "resource",
		"arn:aws:iam::123456789012:user/hub":                                           "resource",
		"arn:aws:iam::123456789012:assumed-role/hub":                                   "resource",
		"arn:aws:iam::123456789012:role":                                               "resource",
		"arn:aws:iam::123456789012:role/":                                              "name",
		"arn:aws:iam::123456789012:role/platform/":                                     "name",
		"arn:aws:iam::123456789012:role/hub ":                                          "name",
		"arn:aws:iam::123456789012:role/hub\n":                                         "name",
		"arn:aws:iam::123456789012:role/hub*":                                          "name",
		"arn:aws:iam::123456789012:role/hub:x":                                         "name",
		"arn:aws:iam::123456789012:role/" + longName + "n":                             "name",
		"arn:aws:iam::123456789012:role//hub":                                          "path",
		"arn:aws:iam::123456789012:role/a b/hub":                                       "path",
		"arn:aws:iam::123456789012:role" + strings.TrimSuffix(longPath, "/") + "p/hub": "path",
		"arn:aws:iam::123456789012:role/" + strings.Repeat("n", 10000):                 "characters",
	} {
		role, err := ParseRoleARN(arn)
		if err == nil || !strings.Contains(err.Error(), part) || role != (Role{}) {
			t.Errorf("ParseRoleARN(%q) = %+v, %v, want no role and an error that contains %q", arn, role, err, part)
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
