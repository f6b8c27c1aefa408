package literal

import (
	"bytes"
	"cmp"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"

	"open-cluster-management.io/hub-apiserver/pkg/bounded/quantity"
)

// Quantity is a quantity as a text or a number.
type Quantity struct {
	// JSON is the quantity as it was written, such as "1000m" or 1.
	JSON string
}

// MarshalJSON implements json.Marshaler.
func (q Quantity) MarshalJSON() ([]byte, error) { return []byte(cmp.Or(q.JSON, "null")), nil }

// UnmarshalJSON implements json.Unmarshaler. It rejects exponents that would make arithmetic too expensive.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	if err := quantity.Check(string(bytes.Trim(data, `"`))); err != nil {
		return err
	}
	var parsed resource.Quantity
	if err := json.Unmarshal(data, &parsed); err != nil {
		return err
	}
	q.JSON = string(data)
	return nil
}

// OpenAPISchemaType returns the type in the OpenAPI document. The format also allows numbers.
func (Quantity) OpenAPISchemaType() []string { return []string{"string"} }

// OpenAPISchemaFormat returns the format in the OpenAPI document.
func (Quantity) OpenAPISchemaFormat() string { return "int-or-string" }
