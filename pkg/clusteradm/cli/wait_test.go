package cli

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestUnavailable checks that a condition from before the hub forwards requests does not make an APIService available:
// clients would still watch the CustomResourceDefinition.
func TestUnavailable(t *testing.T) {
	service := map[string]any{"namespace": "open-cluster-management-hub", "name": "hub-apiserver"}
	for name, test := range map[string]struct {
		service        map[string]any
		status, reason string
		want           string
	}{
		"forwarded":                         {service, "True", "Passed", ""},
		"local":                             {nil, "True", "Local", ""},
		"forwarded, condition of the CRD":   {service, "True", "Local", "the hub has not checked it yet since it forwards requests to it"},
		"forwarded to a Service without IP": {service, "False", "MissingEndpoints", "MissingEndpoints: message"},
	} {
		spec := map[string]any{}
		if test.service != nil {
			spec["service"] = test.service
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"spec": spec,
			"status": map[string]any{"conditions": []any{
				map[string]any{"type": "Available", "status": test.status, "reason": test.reason, "message": "message"},
			}},
		}}
		if got := Unavailable(object); got != test.want {
			t.Errorf("Unavailable(%s) = %q, want %q", name, got, test.want)
		}
	}
}
