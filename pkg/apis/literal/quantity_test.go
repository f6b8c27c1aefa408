package literal

import (
	"encoding/json"
	"testing"
)

func TestQuantityKeepsItsForm(t *testing.T) {
	for _, text := range []string{`"1000m"`, `"1"`, `1`, `1.5`, `4294967296`, `"1Gi"`} {
		var q Quantity
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			t.Errorf("Unmarshal(%s) = %v, want nil", text, err)
		}
		if got, err := json.Marshal(map[string]Quantity{"cpu": q}); err != nil || string(got) != `{"cpu":`+text+`}` {
			t.Errorf("Marshal() of %s = %s, %v, want the same", text, got, err)
		}
	}
	for _, text := range []string{`"a"`, `true`, `{}`, `"1e-2147483647"`} {
		var q Quantity
		if err := json.Unmarshal([]byte(text), &q); err == nil {
			t.Errorf("Unmarshal(%s) = nil, want an error", text)
		}
	}
}
