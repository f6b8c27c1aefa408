package cli

import (
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestUnavailable checks that a condition from before the hub forwards requests does not make an APIService available:
// clients would still watch the CustomResourceDefinition.
func TestUnavailable(t *testing.T) {
	service := &apiregistrationv1.ServiceReference{Namespace: "open-cluster-management-hub", Name: "hub-apiserver"}
	for name, test := range map[string]struct {
		service *apiregistrationv1.ServiceReference
		status  apiregistrationv1.ConditionStatus
		reason  string
		want    string
	}{
		"forwarded":                         {service, "True", "Passed", ""},
		"local":                             {nil, "True", "Local", ""},
		"forwarded, condition of the CRD":   {service, "True", "Local", "the hub has not checked it yet since it forwards requests to it"},
		"forwarded to a Service without IP": {service, "False", "MissingEndpoints", "MissingEndpoints: message"},
	} {
		object := &apiregistrationv1.APIService{
			Spec: apiregistrationv1.APIServiceSpec{Service: test.service},
			Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{
				{Type: apiregistrationv1.Available, Status: test.status, Reason: test.reason, Message: "message"},
			}},
		}
		if got := Unavailable(object); got != test.want {
			t.Errorf("Unavailable(%s) = %q, want %q", name, got, test.want)
		}
	}
}
