package registration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

func TestAutoApproval(t *testing.T) {
	const arn = "arn:aws:eks:us-east-1:444455556666:cluster/one"
	claiming := func(arn string) *registerv1alpha1.ManagedClusterRegistration {
		return &registerv1alpha1.ManagedClusterRegistration{Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			Driver: registerv1alpha1.DriverAWSIRSA, RequestedBy: registerv1alpha1.Requester{Username: "bootstrap"},
			IRSA: &registerv1alpha1.IRSAClaim{ManagedClusterARN: arn},
		}}
	}
	created := func(by string) *registerv1alpha1.ManagedClusterRegistration {
		return &registerv1alpha1.ManagedClusterRegistration{Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			Driver: registerv1alpha1.DriverCSR, RequestedBy: registerv1alpha1.Requester{Username: by},
		}}
	}
	before := claiming(arn)
	before.Status.AutoApprovedAt = &metav1.Time{}
	withdrawn := claiming(arn)
	withdrawn.Spec.IRSA.Withdrawn = true
	claimless := created("bootstrap")
	claimless.Spec.Driver = registerv1alpha1.DriverAWSIRSA

	for name, test := range map[string]struct {
		patterns, identities []string
		record               *registerv1alpha1.ManagedClusterRegistration
		approved             bool
	}{
		"no rules":                              {record: claiming(arn)},
		"the ARN":                               {patterns: []string{arn}, record: claiming(arn), approved: true},
		"one of the patterns":                   {patterns: []string{"x", `arn:aws:eks:[^:]+:444455556666:cluster/.*`}, record: claiming(arn), approved: true},
		"the beginning only":                    {patterns: []string{"arn:aws:eks"}, record: claiming(arn)},
		"the end only":                          {patterns: []string{"cluster/one"}, record: claiming(arn)},
		"a choice is anchored as a whole":       {patterns: []string{"arn|cluster/one"}, record: claiming(arn)},
		"a line of it":                          {patterns: []string{"(?m)^" + arn + "$"}, record: claiming("x\n" + arn)},
		"once only":                             {patterns: []string{arn}, record: before},
		"a withdrawn claim":                     {patterns: []string{arn}, record: withdrawn},
		"who created it":                        {identities: []string{"a", "bootstrap"}, record: created("bootstrap"), approved: true},
		"who created it is not a pattern":       {identities: []string{".*"}, record: created("bootstrap")},
		"nobody known":                          {identities: []string{""}, record: created("")},
		"a claim is not judged by who made it":  {identities: []string{"bootstrap"}, record: claiming(arn)},
		"no claim is not judged by patterns":    {patterns: []string{".*"}, record: created("bootstrap")},
		"a driver that needs a claim lacks one": {patterns: []string{".*"}, identities: []string{"bootstrap"}, record: claimless},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := NewAutoApproval(test.patterns, test.identities)
			if err != nil {
				t.Fatal(err)
			}
			if rule, approved := rules.approves(test.record); approved != test.approved || approved != (rule != "") {
				t.Errorf("approved: %t (%s)", approved, rule)
			}
		})
	}
	for _, pattern := range []string{"[", "a)|(b", "(?"} {
		if _, err := NewAutoApproval([]string{pattern}, nil); err == nil {
			t.Errorf("pattern %q is taken", pattern)
		}
	}
}

func TestReservedNames(t *testing.T) {
	for _, name := range []string{"work", "registration", "inventory", "default", "kube-system", "open-cluster-management-hub"} {
		if ReservedName(name) == "" {
			t.Errorf("a cluster can be named %s", name)
		}
	}
	for _, name := range []string{"cluster1", "work-1", "kubernetes", "defaults"} {
		if why := ReservedName(name); why != "" {
			t.Errorf("no cluster can be named %s: %s", name, why)
		}
	}
}
