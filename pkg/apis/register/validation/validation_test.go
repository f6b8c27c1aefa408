package validation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

func want(t *testing.T, errs field.ErrorList, path string) {
	t.Helper()
	if path == "" {
		if len(errs) > 0 {
			t.Errorf("errors = %v, want none", errs)
		}
		return
	}
	if len(errs) != 1 || errs[0].Field != path {
		t.Errorf("errors = %v, want one error at %s", errs, path)
	}
}

func TestAcceptance(t *testing.T) {
	for name, test := range map[string]struct {
		spec v1alpha1.ManagedClusterAcceptanceSpec
		path string
	}{
		"accepted":            {v1alpha1.ManagedClusterAcceptanceSpec{Accepted: true, Requesters: []string{"system:serviceaccount:a:b"}}, ""},
		"denied":              {v1alpha1.ManagedClusterAcceptanceSpec{Reason: "retired"}, ""},
		"as long as allowed":  {v1alpha1.ManagedClusterAcceptanceSpec{Reason: strings.Repeat("ä", 1024)}, ""},
		"too long":            {v1alpha1.ManagedClusterAcceptanceSpec{Reason: strings.Repeat("a", 1025)}, "spec.reason"},
		"empty requester":     {v1alpha1.ManagedClusterAcceptanceSpec{Accepted: true, Requesters: []string{""}}, "spec.requesters[0]"},
		"twice":               {v1alpha1.ManagedClusterAcceptanceSpec{Accepted: true, Requesters: []string{"a", "a"}}, "spec.requesters[1]"},
		"denied and approved": {v1alpha1.ManagedClusterAcceptanceSpec{Requesters: []string{"a"}}, "spec.requesters"},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, ValidateManagedClusterAcceptance(&v1alpha1.ManagedClusterAcceptance{Spec: test.spec}), test.path)
		})
	}
}

func TestIRSA(t *testing.T) {
	for name, test := range map[string]struct {
		spec v1alpha1.ManagedClusterIRSASpec
		path string
	}{
		"empty spec":      {v1alpha1.ManagedClusterIRSASpec{}, ""},
		"all":             {v1alpha1.ManagedClusterIRSASpec{OIDCProvider: "oidc.eks.us-west-2.amazonaws.com/id/ABC", ServiceAccounts: []string{"ns:name"}}, ""},
		"with a scheme":   {v1alpha1.ManagedClusterIRSASpec{OIDCProvider: "https://oidc.eks.us-west-2.amazonaws.com/id/ABC"}, "spec.oidcProvider"},
		"with a query":    {v1alpha1.ManagedClusterIRSASpec{OIDCProvider: "a.example/id?x"}, "spec.oidcProvider"},
		"a quote":         {v1alpha1.ManagedClusterIRSASpec{OIDCProvider: "a.example/'; rm"}, "spec.oidcProvider"},
		"no namespace":    {v1alpha1.ManagedClusterIRSASpec{ServiceAccounts: []string{"name"}}, "spec.serviceAccounts[0]"},
		"a wildcard":      {v1alpha1.ManagedClusterIRSASpec{ServiceAccounts: []string{"ns:*"}}, "spec.serviceAccounts[0]"},
		"too many parts":  {v1alpha1.ManagedClusterIRSASpec{ServiceAccounts: []string{"a:b:c"}}, "spec.serviceAccounts[0]"},
		"two, one is bad": {v1alpha1.ManagedClusterIRSASpec{ServiceAccounts: []string{"a:b", "B:c"}}, "spec.serviceAccounts[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, ValidateManagedClusterIRSA(&v1alpha1.ManagedClusterIRSA{Spec: test.spec}), test.path)
		})
	}
}

func TestRegistration(t *testing.T) {
	want(t, ManagedClusterRegistration.New(&v1alpha1.ManagedClusterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}), "")
	want(t, ManagedClusterRegistration.New(&v1alpha1.ManagedClusterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "../c1"}}), "metadata.name")
}
