package quota

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestCheckBody(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	for name, test := range map[string]struct {
		body string
		want bool
	}{
		"empty":                              {"", true},
		"small":                              {`{"metadata": {"labels": {"a": "b"}}}`, true},
		"maximum number of values":           {`{"a": ` + list(BodyValues-5) + `}`, true},
		"too many values":                    {`{"a": ` + list(BodyValues+1) + `}`, false},
		"too many keys":                      {`{` + strings.Repeat(`"a":1,`, BodyValues+1) + `}`, false},
		"too many empty lists":               {list(2) + strings.Repeat("[]", BodyValues+1), false},
		"commas in a string":                 {`{"a": "` + strings.Repeat(`,[{\"`, BodyValues) + `"}`, true},
		"manifests":                          {`{"spec": {"workload": {"manifests": [` + list(BodyValues+5) + `, {"a": []}]}}}`, true},
		"too many in manifests":              {`{"manifests": ` + list(PayloadValues+2) + `}`, false},
		"too many after the manifests":       {`{"manifests": [[1]], "a": ` + list(BodyValues+1) + `}`, false},
		"too many in an object of that name": {`{"manifests": {"a": ` + list(BodyValues+1) + `}}`, false},
		"nested":                             {strings.Repeat("[", maxNesting), true},
		"nested too deep":                    {strings.Repeat("[", maxNesting+1), false},
		"many shallow lists":                 {strings.Repeat("[]", 1000), true},
		"unterminated string":                {`{"a": "` + strings.Repeat(",", BodyValues+1), true},
		"escape at the end":                  {`{"a": "\`, true},
		"lines of YAML":                      {"a:\n" + strings.Repeat("- 1\n", BodyValues-10), true},
		"too many lines of YAML":             {"a:\n" + strings.Repeat("- 1\n", BodyValues+1), false},
		"too many in a line of YAML":         {"a: " + list(BodyValues+1), false},
	} {
		err := checkBody([]byte(test.body))
		if test.want && err != nil || !test.want && !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s: checkBody() = %v, want success %v", name, err, test.want)
		}
	}
}

func TestCheckBodyRejectsNumbers(t *testing.T) {
	for body, want := range map[string]bool{
		`{"a": 1e308, "b": -1.5E-300, "c": 9223372036854775807, "d": 1e-999}`: true,
		`{"a": "1e999"}`: true,
		"a: 1e999\n":     true,
		`{"a": 1e999}`:   false,
		`[-1E400]`:       false,
		`{"a": ` + strings.Repeat("9", 300_000) + `}`: false,
	} {
		if err := checkBody([]byte(body)); want && err != nil || !want && !apierrors.IsBadRequest(err) {
			t.Errorf("checkBody(%.40s) = %v, want success %v", body, err, want)
		}
	}
}
