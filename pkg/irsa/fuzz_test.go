package irsa

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzARN searches for texts that ParseARN accepts although they are not the canonical
// form of an ARN. With such texts, two clusters could claim one identity.
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
			if len(err.Error()) > 2048 {
				t.Errorf("length of the error of ParseARN() = %d bytes, want at most 2048", len(err.Error()))
			}
			return
		}
		if arn.String() != text {
			t.Errorf("ParseARN(%q).String() = %q, want the same text", text, arn.String())
		}
		identity := Identity{Hub: ARN{"aws", "us-east-1", "111122223333", "hub"}, Managed: arn}
		if identity.Validate() == nil && (len(identity.HubRoleName()) > 64 || strings.ContainsAny(identity.HubRoleName(), "/:* ")) {
			t.Errorf("HubRoleName() of ParseARN(%q) = %q, want a valid role name", text, identity.HubRoleName())
		}
	})
}

// FuzzPolicy searches for documents that cannot be compared, or with a comparison that depends on
// the order.
func FuzzPolicy(f *testing.F) {
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::1:root"},"Action":["sts:AssumeRole"]}]}`
	for _, seed := range []string{
		trust, url.PathEscape(trust), strings.ReplaceAll(trust, "Allow", "Deny"), `{"Statement":[[["a"]]]}`, `{"Statement":["b","a","a"]}`, `%zz`, `%`, ``, `null`,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000), strings.Repeat("[0,", 5000) + "0" + strings.Repeat("]", 5000), strings.Repeat("[", 1<<20),
	} {
		f.Add(seed, trust)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if SamePolicy(a, b) != SamePolicy(b, a) {
			t.Errorf("SamePolicy(%q, %q) = %t, want the same result in the other order", a, b, SamePolicy(a, b))
		}
		if value, ok := policyValue(a); ok {
			again, ok := policyValue(text(value))
			if len(text(value)) <= maxPolicyBytes && (!ok || text(again) != text(value)) {
				t.Errorf("policyValue() of the canonical form of %q = %s, want %s", a, text(again), text(value))
			}
		}
	})
}
