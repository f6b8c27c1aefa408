package options

import (
	"slices"
	"strings"
	"testing"
)

// Each flag of automatic approval is one rule. A list, as builds before v0.1.0 read it, is refused, since a server that silently reads
// it as one rule accepts no cluster.
func TestAutoApprovalFlags(t *testing.T) {
	const arns, users = "auto-approved-arn-patterns", "auto-approved-csr-identities"
	for _, test := range []struct {
		flag   string
		values []string
		want   string
	}{
		{arns, []string{"arn:aws:eks:us-east-1:[0-9]{11,12}:cluster/team-.*", "arn:aws:eks:(us|eu)-west-1:.*"}, ""},
		{arns, []string{`"arn:aws:eks:[a-z0-9-]{1,20}:123456789012:cluster/a"`}, ""},
		{arns, []string{"arn:aws:eks:us-east-1:.*,arn:aws:eks:us-west-1:.*"}, "set the flag once for each pattern"},
		{arns, []string{"arn:aws:eks:(us"}, "missing closing"},
		{arns, []string{""}, ""},
		{users, []string{"CN=ops,OU=teams,DC=example,DC=com", "system:serviceaccount:ops:agent"}, ""},
		{users, []string{"system:serviceaccount:ops:agent,system:serviceaccount:ops:other"}, "set the flag once for each user"},
		{users, []string{`"CN=ops,OU=teams"`}, "without quotes"},
		{users, []string{""}, ""},
	} {
		o := New()
		o.EmbeddedEtcd.DataDir = t.TempDir()
		sets := o.Flags()
		flags := sets.FlagSet("registration")
		for _, value := range test.values {
			if err := flags.Set(test.flag, value); err != nil {
				t.Fatal(err)
			}
		}
		completed, err := o.Complete()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := completed.Validate(); err != nil {
			got = err.Error()
		}
		if refused := strings.Contains(got, "--"+test.flag+" \"") || strings.Contains(got, "--"+test.flag+": "); refused != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("Validate() with --%s=%q = %s, want %q", test.flag, test.values, got, test.want)
		}
		if rules := slices.Concat(completed.Registration.AutoApprovedARNs, completed.Registration.AutoApprovedUsers); test.values[0] == "" && (len(rules) > 0 || strings.Contains(got, "--feature-gates")) {
			t.Errorf("rules with --%s= = %q, Validate() = %s, want none", test.flag, rules, got)
		} else if test.values[0] != "" && !slices.Equal(rules, test.values) {
			t.Errorf("rules with --%s=%q = %q, want the same", test.flag, test.values, rules)
		}
	}
}
