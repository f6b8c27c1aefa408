package apiserver

import (
	"bytes"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// withoutStatus empties the status of an object in JSON. It keeps all other bytes, so that duplicate and
// unknown fields are still detected.
func withoutStatus(body []byte) []byte {
	if !bytes.Contains(body, []byte(`"status"`)) {
		return body
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return body
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return body
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return body
		}
		if end := int(decoder.InputOffset()); key == "status" && value[0] == '{' {
			return slices.Concat(body[:end-len(value)], []byte("{}"), body[end:])
		}
	}
	return body
}

// ignoreStatus returns a function that empties the status in the body of writes of objects with a status
// subresource. Such a write does not change the status, so its JSON types do not matter. Published
// samples contain a boolean instead of the string of a condition ("status: True").
func ignoreStatus() func(*request.RequestInfo, []byte) []byte {
	resources := storedResources((*definition.Resource).HasStatus)
	return func(info *request.RequestInfo, body []byte) []byte {
		if info.Subresource != "" || !resources.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) {
			return body
		}
		return withoutStatus(body)
	}
}
