package irsa

import (
	"strings"
	"testing"
)

func TestHash(t *testing.T) {
	for _, test := range []struct{ hubAccount, hub, managedAccount, managed, want string }{
		{"hubaccount1", "hubcluster1", "managedaccount1", "managedcluster1", "79e99112993014816615711cbd35a9bc"},
		{"123456789012", "hub-cluster1", "123456789012", "managed-cluster1", "7f8141296c75f2871e3d030f85c35692"},
		{"123456789012", "hub", "567890123456", "spoke", "138c525cf3b7f74ba3b945e7847792cc"},
	} {
		identity := Identity{
			Hub:     ARN{Partition: "aws", Region: "us-west-2", AccountID: test.hubAccount, ClusterName: test.hub},
			Managed: ARN{Partition: "aws", Region: "us-east-1", AccountID: test.managedAccount, ClusterName: test.managed},
		}
		if got := identity.Hash(); got != test.want {
			t.Errorf("Hash() = %s, want %s", got, test.want)
		}
		if got, want := identity.HubRoleARN(), "arn:aws:iam::"+test.hubAccount+":role/ocm-hub-"+test.want; got != want {
			t.Errorf("HubRoleARN() = %s, want %s", got, want)
		}
		if got, want := identity.ManagedClusterRoleARN(), "arn:aws:iam::"+test.managedAccount+":role/ocm-managed-cluster-"+test.want; got != want {
			t.Errorf("ManagedClusterRoleARN() = %s, want %s", got, want)
		}

		elsewhere := identity
		elsewhere.Managed.Region = "eu-west-1"
		if elsewhere.Hash() != identity.Hash() {
			t.Errorf("Hash() in another region = %s, want %s", elsewhere.Hash(), identity.Hash())
		}
	}
}

func TestTags(t *testing.T) {
	tags := example().Tags()
	for key, want := range map[string]string{
		"hub_cluster_account_id":     "111111111111",
		"hub_cluster_name":           "hub-1",
		"managed_cluster_account_id": "222222222222",
		"managed_cluster_name":       "managed-1",
	} {
		if tags[key] != want {
			t.Errorf("tag %s = %q, want %q", key, tags[key], want)
		}
	}
	if len(tags) != 4 {
		t.Errorf("Tags() = %v, want 4 tags", tags)
	}
}

func TestCreatorRoleName(t *testing.T) {
	name, err := CreatorRoleName(ARN{ClusterName: "hub-1"})
	if err != nil || name != "hub-1_managed-cluster-identity-creator" {
		t.Errorf("CreatorRoleName(hub-1) = %q, %v, want hub-1_managed-cluster-identity-creator", name, err)
	}
	name, err = CreatorRoleName(ARN{ClusterName: strings.Repeat("h", 31)})
	if err != nil || len(name) != 64 {
		t.Errorf("CreatorRoleName() of 31 characters = %q, %v, want 64 characters", name, err)
	}
	if name, err = CreatorRoleName(ARN{ClusterName: strings.Repeat("h", 32)}); err == nil {
		t.Errorf("CreatorRoleName() of 32 characters = %q, want an error", name)
	}
}

func TestValidateIdentity(t *testing.T) {
	identity := example()
	if err := identity.Validate(); err != nil {
		t.Error(err)
	}
	identity.Managed.Partition, identity.Managed.Region = "aws-cn", "cn-north-1"
	if err := identity.Validate(); err == nil || !strings.Contains(err.Error(), "partition") {
		t.Errorf("Validate() with another partition = %v, want an error that contains partition", err)
	}
}

func example() Identity {
	return Identity{
		Hub:     ARN{Partition: "aws", Region: "us-west-2", AccountID: "111111111111", ClusterName: "hub-1"},
		Managed: ARN{Partition: "aws", Region: "us-east-1", AccountID: "222222222222", ClusterName: "managed-1"},
	}
}
