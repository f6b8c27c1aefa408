package registration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// TestReadClaim checks the claims in annotations on hubs of several partitions. The tests
// of the server check which claims are refused.
func TestReadClaim(t *testing.T) {
	hub := func(arn string) *irsa.ARN {
		parsed, err := irsa.ParseARN(arn)
		if err != nil {
			t.Fatal(err)
		}
		return &parsed
	}
	const ordinary, china, gov = "arn:aws:eks:us-west-2:123456789012:cluster/hub", "arn:aws-cn:eks:cn-north-1:123456789012:cluster/hub", "arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/hub"
	for name, test := range map[string]struct {
		hub         *irsa.ARN
		annotations map[string]string
		claimed     string
		refused     string
	}{
		"no claim":               {hub(ordinary), map[string]string{"other": "x"}, "", ""},
		"no claim, without IRSA": {nil, nil, "", ""},
		"both annotations":       {hub(ordinary), map[string]string{ARNAnnotation: ordinary, EKSARNAnnotation: ordinary}, ordinary, ""},
		"China":                  {hub(china), map[string]string{EKSARNAnnotation: china}, china, ""},
		"China on another hub":   {hub(gov), map[string]string{EKSARNAnnotation: china}, "", "metadata.annotations[" + EKSARNAnnotation + "]"},
		"GovCloud":               {hub(gov), map[string]string{ARNAnnotation: gov}, gov, ""},
		"ARN, without IRSA":      {nil, map[string]string{ARNAnnotation: ordinary}, "", "metadata.annotations[" + ARNAnnotation + "]"},
		"suffix, without IRSA":   {nil, map[string]string{RoleSuffixAnnotation: "x"}, "", "metadata.annotations[" + RoleSuffixAnnotation + "]"},
		"suffix without an ARN":  {hub(ordinary), map[string]string{RoleSuffixAnnotation: "x"}, "", "metadata.annotations[" + ARNAnnotation + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			claim, errs := readClaim(test.hub, test.annotations)
			switch {
			case test.refused != "":
				if claim != nil || len(errs) != 1 || errs[0].Field != test.refused {
					t.Errorf("readClaim() = %+v, %v, want one error of %s", claim, errs, test.refused)
				}
			case len(errs) > 0, (claim == nil) != (test.claimed == ""), claim != nil && claim.Managed.String() != test.claimed:
				t.Errorf("readClaim() = %+v, %v, want %q without errors", claim, errs, test.claimed)
			}
		})
	}
}

// TestUntouched checks that a registration can be deleted without a cleanup only if no resources of it may
// exist.
func TestUntouched(t *testing.T) {
	for name, test := range map[string]struct {
		status registerv1alpha1.ManagedClusterRegistrationStatus
		want   bool
	}{
		"new":         {registerv1alpha1.ManagedClusterRegistrationStatus{}, true},
		"claimed":     {registerv1alpha1.ManagedClusterRegistrationStatus{IRSA: &registerv1alpha1.IRSAStatus{Hash: "x"}}, true},
		"provisioned": {registerv1alpha1.ManagedClusterRegistrationStatus{IRSA: &registerv1alpha1.IRSAStatus{Provisioned: true}}, false},
		"begun":       {registerv1alpha1.ManagedClusterRegistrationStatus{Conditions: []metav1.Condition{{Type: registerv1alpha1.RegistrationAccessGranted, Status: metav1.ConditionFalse, Reason: registerv1alpha1.ReasonPending}}}, false},
	} {
		if got := Untouched(&registerv1alpha1.ManagedClusterRegistration{Status: test.status}); got != test.want {
			t.Errorf("Untouched(%s) = %t, want %t", name, got, test.want)
		}
	}
	if EverAccepted(&clusterv1.ManagedCluster{}) || !EverAccepted(&clusterv1.ManagedCluster{Status: clusterv1.ManagedClusterStatus{Acceptance: &clusterv1.Acceptance{EverAccepted: true}}}) {
		t.Error("EverAccepted() of a new cluster = true or of an accepted cluster = false, want false and true")
	}
}
