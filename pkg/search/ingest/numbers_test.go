package ingest

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNumbersOutOfRange checks that numbers out of range are rejected. Common JSON decoders read
// the reported properties, and a single such number would make them fail.
func TestNumbersOutOfRange(t *testing.T) {
	tests := []struct {
		name, value string
		refused     bool
	}{
		{"too large", `1e999`, true},
		{"too small", `-1E+400`, true},
		{"many digits", strings.Repeat("9", 400), true},
		{"in a list", `[1,1e999]`, true},
		{"in a map", `{"a":1e999}`, true},
		{"deep in a list", `[{"a":["x",[1e999]]}]`, true},
		{"underflow", `1e-999`, false},
		{"the largest", `1.7976931348623157e308`, false},
		{"longer than an integer", `123456789012345678901234567890`, false},
		{"in a text", `"1e999"`, false},
		{"in a text deep in a list", `[["1e999"]]`, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := `{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","x":` + test.value + `}},` +
				`{"uid":"c1/b","properties":{"kind":"Pod","name":"b"}}]}`
			report, response, err := Decode(strings.NewReader(body), "c1", false, true, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if test.refused {
				want = "add c1/a: property \"x\" contains a number that is out of range\n"
			}
			if got := refusalsOf(response); got != want {
				t.Errorf("errors = %q, want %q", got, want)
			}
			for _, resource := range report.Put {
				var read map[string]any
				if err := json.Unmarshal(resource.Properties.AppendJSON(nil), &read); err != nil {
					t.Errorf("decoding %s = %v, want nil", resource.UID, err)
				}
			}
		})
	}
}
