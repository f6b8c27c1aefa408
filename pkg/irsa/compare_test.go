package irsa

import (
	"net/url"
	"strings"
	"testing"
)

func TestPolicyContainedIn(t *testing.T) {
	hub := ARN{Partition: PartitionAWS, Region: "us-west-2", AccountID: "111122223333", ClusterName: "hub"}
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
