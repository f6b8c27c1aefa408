package limits

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestCheck(t *testing.T) {
	nested := func(depth int) string {
		return strings.Repeat("[", depth) + strings.Repeat("]", depth)
	}
	for name, test := range map[string]struct{ raw, want string }{
		"an object":                {`{"a":{"b":[1,"c",null,{"b":true}]},"b":{}}`, ""},
		"the same key elsewhere":   {`{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}`, ""},
		"a key that is a value":    {`{"a":"b","b":"a"}`, ""},
		"keys that differ in case": {`{"a":1,"A":1}`, ""},
		"a duplicate key":          {`{"a":1,"b":[0,{"c":1,"c":2}]}`, `manifests[3].b[1].c: Duplicate value: "c"`},
		"a duplicate escaped key":  {`{"a":1,"\u0061":2}`, `manifests[3].a: Duplicate value`},
		"a long duplicate key":     {`{"` + strings.Repeat("k", 1000) + `":1,"` + strings.Repeat("k", 1000) + `":1}`, strings.Repeat("k", 64) + "...: Duplicate"},
		"lists of maximum depth":   {nested(MaxDepth), ""},
		"lists too deep":           {nested(MaxDepth + 1), "nested at most 256 levels deep"},
		"lists much too deep":      {nested(100_000), "nested at most 256 levels deep"},
		"unterminated lists":       {strings.Repeat("[", 500_000), "nested at most 256 levels deep"},
		"objects too deep":         {strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000), "nested at most 256 levels deep"},
		"maximum number of values": {"[" + strings.Repeat("0,", MaxValues-2) + "0]", ""},
		"too many values":          {"[" + strings.Repeat("0,", MaxValues-1) + "0]", "at most 100000 values"},
		"too many empty objects":   {"[" + strings.Repeat("{},", MaxValues) + "0]", "at most 100000 values"},
		"invalid UTF-8":            {"{\"a\":\"\xff\"}", "UTF-8"},
		"invalid JSON":             {`{"a":}`, "must be valid JSON"},
		"truncated JSON":           {`{"a":[`, "must be valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			left := MaxValues
			err := Check([]byte(test.raw), &left, field.NewPath("manifests").Index(3))
			if test.want == "" && err != nil {
				t.Errorf("Check() = %v, want no error", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Check() = %v, want an error that contains %q", err, test.want)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("length of the error of Check() = %d bytes, want at most 500", len(err.Error()))
			}
		})
	}
}

func TestCheckMatches(t *testing.T) {
	for _, test := range []struct {
		manifests, configs, rules int
		ok                        bool
	}{{8000, 100, 25, true}, {1000, 1000, 0, true}, {1000, 1000, 1, false}, {8000, 1, 125, false}, {1, 1, 500_000, true}, {0, 5, 5, true}} {
		if err := CheckMatches(test.manifests, test.configs, test.rules, field.NewPath("spec")); (err == nil) != test.ok {
			t.Errorf("CheckMatches(%d, %d, %d) = %v, want no error: %t", test.manifests, test.configs, test.rules, err, test.ok)
		}
	}
}

// The limit of values applies to all manifests together.
func TestCheckCountsAllManifests(t *testing.T) {
	left, half := MaxValues, []byte("["+strings.Repeat("0,", MaxValues/2)+"0]")
	path := field.NewPath("manifests")
	if err := Check(half, &left, path.Index(0)); err != nil {
		t.Fatal(err)
	}
	if err := Check(half, &left, path.Index(1)); err == nil || err.Field != "manifests[1]" || err.Type != field.ErrorTypeForbidden {
		t.Errorf("Check() of the second half = %v, want Forbidden for manifests[1]", err)
	}
}
