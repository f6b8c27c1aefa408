package v1alpha1

import (
	"encoding/json"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The sample in seed 002 has a status, with a condition whose status is a boolean.
// Users apply samples as they are. The server ignores the status of what is
// applied, but must be able to read it, in each of the ways in which it does.

// UnmarshalJSON implements json.Unmarshaler. It reads a condition's status of
// true or false as "True" or "False".
func (s *ManagedServiceAccountStatus) UnmarshalJSON(data []byte) error {
	var status map[string]json.RawMessage
	if err := json.Unmarshal(data, &status); err != nil {
		return err
	}
	if given, ok := status["conditions"]; ok {
		var conditions []map[string]json.RawMessage
		if err := json.Unmarshal(given, &conditions); err != nil {
			return err
		}
		for _, condition := range conditions {
			switch string(condition["status"]) {
			case "true":
				condition["status"] = json.RawMessage(`"True"`)
			case "false":
				condition["status"] = json.RawMessage(`"False"`)
			}
		}
		var err error
		if status["conditions"], err = json.Marshal(conditions); err != nil {
			return err
		}
		if data, err = json.Marshal(status); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, &s.ManagedServiceAccountStatus)
}

// OpenAPIDefinition implements common.OpenAPIDefinitionGetter. Server-side apply
// compares what is applied with the definition, so that is as lenient.
func (ManagedServiceAccountStatus) OpenAPIDefinition() common.OpenAPIDefinition {
	schema := spec.Schema{SchemaProps: spec.SchemaProps{
		Description: "ManagedServiceAccountStatus is the observed state of a ManagedServiceAccount, as in v1beta1 of authentication.open-cluster-management.io.",
		Type:        []string{"object"},
	}}
	schema.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	return common.OpenAPIDefinition{Schema: schema}
}
