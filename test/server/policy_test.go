package server

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	worksPolicy    = "no-new-works"
	worksForbidden = "the test forbids new ManifestWorks"
)

// forbidWorks makes the hub deny the creation of ManifestWorks for all users, including the server's
// own controllers. The server also enforces the admission policies of the hub.
func forbidWorks(t *testing.T, hub kubernetes.Interface) {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: worksPolicy},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{"work.open-cluster-management.io"}, APIVersions: []string{"v1"}, Resources: []string{"manifestworks"},
					},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: worksForbidden}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: worksPolicy},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        worksPolicy,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	admission := hub.AdmissionregistrationV1()
	if _, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := admission.ValidatingAdmissionPolicies().Delete(context.WithoutCancel(t.Context()), worksPolicy, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := admission.ValidatingAdmissionPolicyBindings().Delete(context.WithoutCancel(t.Context()), worksPolicy, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// allowWorks reverts forbidWorks.
func allowWorks(t *testing.T, hub kubernetes.Interface) {
	t.Helper()
	if err := hub.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), worksPolicy, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
