package handover

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestDifferences(t *testing.T) {
	for what, test := range map[string]struct {
		a, b string
		want []string
	}{
		"equal":                {`{"spec":{"a":1,"b":["x"]}}`, `{"spec":{"a":1,"b":["x"]}}`, nil},
		"more on one side":     {`{"spec":{"a":1}}`, `{"spec":{"a":1,"b":2}}`, nil},
		"another value":        {`{"spec":{"a":1}}`, `{"spec":{"a":2}}`, []string{".spec.a"}},
		"a lost value":         {`{"spec":{"a":{"b":"x"}}}`, `{"spec":{}}`, []string{".spec.a"}},
		"a lost false":         {`{"spec":{"a":false,"b":0,"c":"","d":[],"e":{"f":null}}}`, `{"spec":{}}`, nil},
		"another true":         {`{"spec":{"a":true}}`, `{"spec":{"a":false}}`, []string{".spec.a"}},
		"a shorter list":       {`{"spec":{"a":["x","y"]}}`, `{"spec":{"a":["x"]}}`, []string{".spec.a"}},
		"an item":              {`{"spec":{"a":[{"b":1}]}}`, `{"spec":{"a":[{"b":2}]}}`, []string{".spec.a[0].b"}},
		"spelling of a time":   {`{"a":"2026-11-25T02:00:00Z"}`, `{"a":"2026-11-25T03:00:00+01:00"}`, nil},
		"of a duration":        {`{"a":"24h"}`, `{"a":"24h0m0s"}`, nil},
		"of a quantity":        {`{"a":"1000m"}`, `{"a":"1"}`, nil},
		"another kind of data": {`{"a":"1"}`, `{"a":1}`, []string{".a"}},
	} {
		var a, b map[string]any
		if err := json.Unmarshal([]byte(test.a), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(test.b), &b); err != nil {
			t.Fatal(err)
		}
		if got := Differences(a, b); !slices.Equal(got, test.want) {
			t.Errorf("%s: Differences(%s, %s) = %q, want %q", what, test.a, test.b, got, test.want)
		}
	}
}
