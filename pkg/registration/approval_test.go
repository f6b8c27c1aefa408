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
		"no rules":                                        {record: claiming(arn)},
		"the ARN":                                         {patterns: []string{arn}, record: claiming(arn), approved: true},
		"one of the patterns":                             {patterns: []string{"x", `arn:aws:eks:[^:]+:444455556666:cluster/.*`}, record: claiming(arn), approved: true},
		"the beginning only":                              {patterns: []string{"arn:aws:eks"}, record: claiming(arn)},
		"the end only":                                    {patterns: []string{"cluster/one"}, record: claiming(arn)},
		"alternatives are anchored together":              {patterns: []string{"arn|cluster/one"}, record: claiming(arn)},
		"one line of a claim":                             {patterns: []string{"(?m)^" + arn + "$"}, record: claiming("x\n" + arn)},
		"automatically approved before":                   {patterns: []string{arn}, record: before},
		"a withdrawn claim":                               {patterns: []string{arn}, record: withdrawn},
		"the identity of the creator":                     {identities: []string{"a", "bootstrap"}, record: created("bootstrap"), approved: true},
		"an identity is not a pattern":                    {identities: []string{".*"}, record: created("bootstrap")},
		"an unknown creator":                              {identities: []string{""}, record: created("")},
		"identities do not apply to a claim":              {identities: []string{"bootstrap"}, record: claiming(arn)},
		"patterns do not apply without a claim":           {patterns: []string{".*"}, record: created("bootstrap")},
		"a driver that requires a claim, without a claim": {patterns: []string{".*"}, identities: []string{"bootstrap"}, record: claimless},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := NewAutoApproval(test.patterns, test.identities)
			if err != nil {
				t.Fatal(err)
			}
			if rule, approved := rules.approves(test.record); approved != test.approved || approved != (rule != "") {
				t.Errorf("approves() = %q, %t, want %t with a rule if approved", rule, approved, test.approved)
			}
		})
	}
	for _, pattern := range []string{"[", "a)|(b", "(?"} {
		if _, err := NewAutoApproval([]string{pattern}, nil); err == nil {
			t.Errorf("NewAutoApproval(%q) = no error, want an error", pattern)
		}
	}
}

func TestReservedNames(t *testing.T) {
	for _, name := range []string{"work", "registration", "inventory", "default", "kube-system", "open-cluster-management-hub"} {
		if ReservedName(name) == "" {
			t.Errorf("ReservedName(%s) is empty, want a reason", name)
		}
	}
	for _, name := range []string{"cluster1", "work-1", "kubernetes", "defaults"} {
		if why := ReservedName(name); why != "" {
			t.Errorf("ReservedName(%s) = %q, want an empty string", name, why)
		}
	}
}
