package v1

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"open-cluster-management.io/hub-apiserver/pkg/bounded/quantity"
)

// UnmarshalJSON decodes quantities. It rejects exponents that would make arithmetic too expensive,
// since managed clusters write quantities in their status.
func (l *ResourceList) UnmarshalJSON(data []byte) error {
	var encoded map[ResourceName]json.RawMessage
	if err := json.Unmarshal(data, &encoded); err != nil {
		return err
	}
	if encoded == nil {
		*l = nil
		return nil
	}
	list := make(ResourceList, len(encoded))
	for name, value := range encoded {
		text := string(bytes.Trim(value, `"`))
		if text != "null" {
			if err := quantity.Check(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		var parsed resource.Quantity
		if err := json.Unmarshal(value, &parsed); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		list[name] = parsed
	}
	*l = list
	return nil
}
