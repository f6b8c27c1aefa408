package irsa_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

func desired() irsa.Desired {
	return irsa.Desired{
		Identity: irsa.Identity{
			Hub:     irsa.ARN{Partition: "aws", Region: "us-west-2", AccountID: "111111111111", ClusterName: "hub-1"},
			Managed: irsa.ARN{Partition: "aws", Region: "us-east-1", AccountID: "222222222222", ClusterName: "managed-1"},
		},
		ManageRoles: true, Mapping: irsa.AccessEntry, ClusterName: "cluster1",
		ResourceTags: map[string]string{"team": "fleet"},
	}
}

func TestUserAndGroups(t *testing.T) {
	d := desired()
	if d.Username() != "open-cluster-management:cluster1" || !slices.Equal(d.Groups(), []string{"open-cluster-management:cluster1"}) {
		t.Errorf("Username(), Groups() = %s, %v, want open-cluster-management:cluster1 for both", d.Username(), d.Groups())
	}
	d.Mapping = irsa.ConfigMap
	if !slices.Equal(d.Groups(), []string{"system:open-cluster-management:cluster1"}) {
		t.Errorf("Groups() with mapping ConfigMap = %v, want system:open-cluster-management:cluster1", d.Groups())
	}
}

func TestDesiredHash(t *testing.T) {
	again := desired()
	again.ResourceTags = map[string]string{"team": "fleet"}
	if again.Hash() != desired().Hash() {
		t.Errorf("Hash() of equal resources = %s and %s, want equal hashes", again.Hash(), desired().Hash())
	}
	seen := map[string]string{desired().Hash(): "nothing"}
	for name, change := range map[string]func(*irsa.Desired){
		"hub region":     func(d *irsa.Desired) { d.Hub.Region = "us-east-2" },
		"hub name":       func(d *irsa.Desired) { d.Hub.ClusterName = "hub-2" },
		"managed name":   func(d *irsa.Desired) { d.Managed.ClusterName = "managed-2" },
		"managed region": func(d *irsa.Desired) { d.Managed.Region = "us-east-2" },
		"roles":          func(d *irsa.Desired) { d.ManageRoles = false },
		"mapping":        func(d *irsa.Desired) { d.Mapping = irsa.ConfigMap },
		"cluster":        func(d *irsa.Desired) { d.ClusterName = "cluster2" },
		"no tags":        func(d *irsa.Desired) { d.ResourceTags = nil },
		"other tags":     func(d *irsa.Desired) { d.ResourceTags = map[string]string{"team": "x"} },
	} {
		d := desired()
		change(&d)
		if other, found := seen[d.Hash()]; found {
			t.Errorf("Hash() after a change of %s = Hash() after a change of %s, want different hashes", name, other)
		}
		seen[d.Hash()] = name
	}
}

func TestValidateResourceTags(t *testing.T) {
	if err := irsa.ValidateResourceTags(desired().ResourceTags); err != nil {
		t.Error(err)
	}
	many := map[string]string{}
	for i := range 47 {
		many[fmt.Sprint(i)] = "x"
	}
	long := strings.Repeat("x", 129)
	for _, test := range []struct {
		tags map[string]string
		want string
	}{
		{map[string]string{"hub_cluster_name": "x"}, "the server sets itself"},
		{map[string]string{"Hub_cluster_name": "x"}, "the server sets itself"},
		{map[string]string{"team": "x", "Team": "y"}, "must not equal another key"},
		{map[string]string{"AWS:x": "x"}, "prefix aws:"},
		{map[string]string{"": "x"}, "a key of 1 to 128"},
		{map[string]string{long: "x"}, "a key of 1 to 128"},
		{map[string]string{"a#": "x"}, "letters, digits"},
		{map[string]string{"a": "{}"}, "letters, digits"},
		{map[string]string{"a": long + long}, "at most 256"},
		{many, "47 resource tags"},
	} {
		if err := irsa.ValidateResourceTags(test.tags); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ValidateResourceTags() = %v, want an error that contains %q", err, test.want)
		}
	}
}
