package fakeaws

import "testing"

func TestDecisions(t *testing.T) {
	const role = "arn:aws:iam::111122223333:role/ocm-hub-1"
	statement := func(s string) string { return `{"Version":"2012-10-17","Statement":` + s + `}` }
	tags := conditionContext{"aws:principaltag/cluster": "cluster1", "aws:principalarn": role}
	for name, test := range map[string]struct {
		document, action, resource string
		want                       decision
	}{
		"admin":                                   {AdminPolicy, "iam:GetRole", role, allowed},
		"one statement":                           {statement(`{"Effect":"Allow","Action":"iam:GetRole","Resource":"` + role + `"}`), "iam:GetRole", role, allowed},
		"action is case insensitive":              {statement(`{"Effect":"Allow","Action":"iam:GETROLE","Resource":"*"}`), "iam:GetRole", role, allowed},
		"resource is case sensitive":              {statement(`{"Effect":"Allow","Action":"*","Resource":"arn:aws:iam::111122223333:role/OCM-hub-1"}`), "iam:GetRole", role, notAllowed},
		"question mark":                           {statement(`{"Effect":"Allow","Action":"iam:Get????","Resource":"arn:aws:iam::*:role/ocm-hub-?"}`), "iam:GetRole", role, allowed},
		"question marks match one character each": {statement(`{"Effect":"Allow","Action":"iam:Get?????","Resource":"*"}`), "iam:GetRole", role, notAllowed},
		"not action":                              {statement(`{"Effect":"Allow","NotAction":"iam:Delete*","Resource":"*"}`), "iam:GetRole", role, allowed},
		"action excluded":                         {statement(`{"Effect":"Allow","NotAction":"iam:Delete*","Resource":"*"}`), "iam:DeleteRole", role, notAllowed},
		"resource excluded":                       {statement(`{"Effect":"Allow","Action":"*","NotResource":"` + role + `"}`), "iam:GetRole", role, notAllowed},
		"denied":                                  {statement(`[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"iam:Get*","Resource":"*"}]`), "iam:GetRole", role, denied},
		"condition holds":                         {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:PrincipalTag/Cluster":["other","cluster1"]}}}`), "iam:GetRole", role, allowed},
		"condition fails":                         {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:PrincipalTag/cluster":"cluster2"}}}`), "iam:GetRole", role, notAllowed},
		"one of two fails":                        {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:PrincipalTag/cluster":"cluster1","aws:PrincipalTag/hub":"x"}}}`), "iam:GetRole", role, notAllowed},
		"if exists":                               {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEqualsIfExists":{"aws:PrincipalTag/hub":"x"}}}`), "iam:GetRole", role, allowed},
		"not equal":                               {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringNotEquals":{"aws:PrincipalTag/cluster":"cluster1"}}}`), "iam:GetRole", role, notAllowed},
		"like":                                    {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::*:role/ocm-*"}}}`), "iam:GetRole", role, allowed},
		"null":                                    {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"Null":{"aws:PrincipalTag/hub":"true","aws:PrincipalTag/cluster":false}}}`), "iam:GetRole", role, allowed},
		"unsupported condition":                   {statement(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"IpAddress":{"aws:SourceIp":"127.0.0.1/32"}}}`), "iam:GetRole", role, notAllowed},
		"denial with unsupported condition":       {statement(`[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"*","Resource":"*","Condition":{"IpAddress":{"aws:SourceIp":"127.0.0.1/32"}}}]`), "iam:GetRole", role, denied},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePolicy(test.document, identityPolicy)
			if err != nil {
				t.Fatal(err)
			}
			if got := decide([]*policy{p}, test.action, test.resource, tags); got != test.want {
				t.Errorf("decide(%s, %s) = %d, want %d", test.action, test.resource, got, test.want)
			}
		})
	}
}

func TestWildcards(t *testing.T) {
	for _, test := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false},
		{"a*b*c", "aXbYbZc", true}, {"?", "", false}, {"a?", "ab", true}, {"ab", "a", false}, {"**a**", "xax", true},
	} {
		if got := wildcardMatch(test.pattern, test.s); got != test.want {
			t.Errorf("wildcardMatch(%q, %q) = %t, want %t", test.pattern, test.s, got, test.want)
		}
	}
}
