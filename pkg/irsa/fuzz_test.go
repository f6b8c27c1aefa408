package irsa

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzARN looks for texts that are taken for the ARN of an EKS cluster and are not its
// only spelling: two clusters could then claim one identity.
func FuzzARN(f *testing.F) {
	for _, seed := range []string{
		"arn:aws:eks:us-east-1:123456789012:cluster/a", "arn:aws-cn:eks:cn-north-1:123456789012:cluster/a_B-1",
		"arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/a", "arn:aws:eks:us-east-1:123456789012:cluster/a\n",
		"arn:aws:eks:us-east-1:123456789012:cluster/a/b", "ARN:aws:eks:us-east-1:123456789012:cluster/a", "arn:aws:eks:cn-north-1:123456789012:cluster/a",
		"arn:aws:eks:us-east-1:１２３４５６７８９０１２:cluster/a", ":::::", "", strings.Repeat("arn:", 1000), strings.Repeat("a", 1<<20),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		arn, err := ParseARN(text)
		if err != nil {
			if len(err.Error()) > 8*maxARNLength {
				t.Errorf("ParseARN() returns an error of %d bytes", len(err.Error()))
			}
			return
		}
		if arn.String() != text {
			t.Errorf("ParseARN(%q).String() = %q, want the text", text, arn.String())
		}
		identity := Identity{Hub: ARN{PartitionAWS, "us-east-1", "111122223333", "hub"}, Managed: arn}
		if identity.Validate() == nil && (len(identity.HubRoleName()) > 64 || strings.ContainsAny(identity.HubRoleName(), "/:* ")) {
			t.Errorf("ParseARN(%q) makes the role %q", text, identity.HubRoleName())
		}
	})
}

// FuzzPolicy looks for documents whose comparison fails, or depends on which is first.
func FuzzPolicy(f *testing.F) {
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::1:root"},"Action":["sts:AssumeRole"]}]}`
	for _, seed := range []string{
		trust, url.PathEscape(trust), strings.ReplaceAll(trust, "Allow", "Deny"), `{"Statement":[[["a"]]]}`, `{"Statement":["b","a","a"]}`, `%zz`, `%`, ``, `null`,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000), strings.Repeat("[0,", 5000) + "0" + strings.Repeat("]", 5000), strings.Repeat("[", 1<<20),
	} {
		f.Add(seed, trust)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if samePolicy(a, b) != samePolicy(b, a) {
			t.Errorf("samePolicy(%q, %q) depends on the order", a, b)
		}
		if value, ok := policyValue(a); ok {
			again, ok := policyValue(text(value))
			if len(text(value)) <= maxPolicyBytes && (!ok || text(again) != text(value)) {
				t.Errorf("policyValue(%q) = %s, which reads as %s", a, text(value), text(again))
			}
		}
	})
}
