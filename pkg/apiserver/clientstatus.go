package apiserver

import (
	"bytes"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// withoutStatus empties the status of an object in JSON. All else stays as it is, byte by byte,
// so that duplicate and unknown fields are still found.
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

// ignoreStatus returns a function that empties the status in writes of objects that have a status
// subresource. Such a write does not change the status, so what a client says there needs not
// even be of the right type: the samples of the proposals end in "status: True", which is a
// boolean in place of a text.
func ignoreStatus() func(*request.RequestInfo, []byte) []byte {
	resources := sets.New[schema.GroupResource]()
	for _, row := range Resources(Dependencies{}) {
		if !row.HasStatus() {
			continue
		}
		for _, version := range row.Versions {
			resources.Insert(version.WithResource(row.Name).GroupResource())
		}
	}
	return func(info *request.RequestInfo, body []byte) []byte {
		if info.Subresource != "" || !resources.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) {
			return body
		}
		return withoutStatus(body)
	}
}
