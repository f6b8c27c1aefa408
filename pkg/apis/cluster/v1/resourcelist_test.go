package v1

import (
	"encoding/json"
	"testing"
)

func TestQuantitiesAreBounded(t *testing.T) {
	for text, want := range map[string]bool{
		`{"cpu": "4", "memory": "16Gi", "pods": 110, "x": "1.5e3", "none": null}`: true,
		`null`:                          true,
		`{}`:                            true,
		`{"cpu": "1e-2147483647"}`:      false,
		`{"cpu": 1e1000000000}`:         false,
		`{"cpu": "1\u0065-2147483647"}`: false,
		`{"cpu": []}`:                   false,
	} {
		var list ResourceList
		if err := json.Unmarshal([]byte(text), &list); (err == nil) != want {
			t.Errorf("Unmarshal(%s) = %v, want success %v", text, err, want)
		}
		if !want {
			continue
		}
		again, err := json.Marshal(list)
		if err != nil {
			t.Errorf("Marshal(%s) = %v, want no error", text, err)
		}
		var copied ResourceList
		if err := json.Unmarshal(again, &copied); err != nil || len(copied) != len(list) {
			t.Errorf("Unmarshal(Marshal(%s)) = %v, %v, want %v", text, copied, err, list)
		}
	}
}
