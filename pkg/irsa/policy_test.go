package irsa

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const (
	hubProvider     = "oidc.eks.us-west-2.amazonaws.com/id/HUB"
	managedProvider = "oidc.eks.us-east-1.amazonaws.com/id/MANAGED"
)

// The files contain the documents of the enhancement proposal with values for its placeholders.
func TestPoliciesMatchTheProposal(t *testing.T) {
	identity := example()
	for file, policy := range map[string]Policy{
		"hub-trust":      identity.HubTrustPolicy(),
		"hub-access":     identity.HubAccessPolicy(),
		"managed-access": identity.ManagedClusterAccessPolicy(),
		"managed-trust": identity.ManagedClusterTrustPolicy(managedProvider,
			"open-cluster-management-agent:klusterlet-registration-sa", "open-cluster-management-agent:klusterlet-work-sa"),
		"creator-access": CreatorAccessPolicy(identity.Hub),
		"creator-trust":  CreatorTrustPolicy(identity.Hub, hubProvider, "open-cluster-management-hub:registration-controller-sa"),
	} {
		t.Run(file, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", file+".json"))
			if err != nil {
				t.Fatal(err)
			}
			if got := policy.JSON(); !reflect.DeepEqual(jsonValue(t, got), jsonValue(t, string(want))) {
				t.Errorf("document =\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestPoliciesInOtherPartitions(t *testing.T) {
	for partition, region := range map[string]string{"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"} {
		identity := example()
		identity.Hub.Partition, identity.Hub.Region = partition, region
		identity.Managed.Partition, identity.Managed.Region = partition, region
		for _, policy := range []Policy{
			identity.HubTrustPolicy(), identity.HubAccessPolicy(),
			identity.ManagedClusterTrustPolicy(managedProvider), identity.ManagedClusterAccessPolicy(),
			CreatorTrustPolicy(identity.Hub, hubProvider, "a:b"), CreatorAccessPolicy(identity.Hub), CreatorMappingPolicy(identity.Hub),
		} {
			document := policy.JSON()
			if strings.Contains(document, "arn:aws:") || !strings.Contains(document, "arn:"+partition+":") {
				t.Errorf("document for partition %s = %s, want ARNs of this partition only", partition, document)
			}
		}
		// EKS puts the same audience into tokens in every partition.
		if document := identity.ManagedClusterTrustPolicy(managedProvider).JSON(); !strings.Contains(document, `:aud":"sts.amazonaws.com"`) {
			t.Errorf("trust policy in partition %s = %s, want audience sts.amazonaws.com", partition, document)
		}
	}
}

func TestManagedClusterTrustPolicyWithoutProvider(t *testing.T) {
	document := example().ManagedClusterTrustPolicy("").JSON()
	for _, want := range []string{
		`"arn:aws:iam::222222222222:oidc-provider/<oidc-provider>"`,
		`"<oidc-provider>:sub":"system:serviceaccount:open-cluster-management-agent:agent"`,
	} {
		if !strings.Contains(document, want) {
			t.Errorf("trust policy = %s, want it to contain %s", document, want)
		}
	}
	withScheme := example().ManagedClusterTrustPolicy("https://" + managedProvider + "/").JSON()
	if withScheme != example().ManagedClusterTrustPolicy(managedProvider).JSON() {
		t.Errorf("trust policy for an issuer with scheme = %s, want the same policy as without scheme", withScheme)
	}
}

// Parameters of documents must not change the structure of the documents.
func TestPoliciesQuoteParameters(t *testing.T) {
	evil := `x"},"Principal":"*"}],"y":"`
	value := jsonValue(t, example().ManagedClusterTrustPolicy(evil, evil).JSON())
	statements := value.(map[string]any)["Statement"].([]any)
	if len(statements) != 1 {
		t.Fatalf("number of statements = %d, want 1", len(statements))
	}
	principal := statements[0].(map[string]any)["Principal"].(map[string]any)
	if got, want := principal["Federated"], "arn:aws:iam::222222222222:oidc-provider/"+evil; got != want {
		t.Errorf("Federated principal = %v, want %v", got, want)
	}
}

func jsonValue(t *testing.T, document string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(document), &value); err != nil {
		t.Fatalf("decoding %s: %v", document, err)
	}
	return value
}
