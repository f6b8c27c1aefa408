package irsa

import (
	"strings"
	"testing"
)

func TestCompilePattern(t *testing.T) {
	const prefix = "arn:aws:eks:us-west-2:123456789012:cluster/"
	for _, test := range []struct {
		pattern      string
		match, other string
	}{
		{`arn:aws:eks:us-west-2:[0-9]{11,12}:cluster/team-.*`, prefix + "team-a", "x" + prefix + "team-a"},
		{`arn:aws:eks:[^,]+:cluster/a|arn:aws:eks:[^:]+:123456789012:cluster/b`, prefix + "b", prefix + "bc"},
		{`arn:aws:eks:[a-z0-9,-]{1,20}:123456789012:cluster/(dev|prod)`, prefix + "dev", prefix + "dev2"},
	} {
		compiled, err := CompilePattern(test.pattern)
		if err != nil {
			t.Errorf("CompilePattern(%q) = %v, want no error", test.pattern, err)
			continue
		}
		if !compiled.MatchString(test.match) || compiled.MatchString(test.other) {
			t.Errorf("CompilePattern(%q) matches %s: %t, %s: %t, want only the first", test.pattern, test.match, compiled.MatchString(test.match), test.other, compiled.MatchString(test.other))
		}
	}

	for pattern, want := range map[string]string{
		prefix + "a," + prefix + "b":          "set the flag once for each pattern",
		`"` + prefix + `a","` + prefix + `b"`: "set the flag once for each pattern",
		prefix + "team-{a,b}":                 "set the flag once for each pattern",
		prefix + "(a,b)":                      "set the flag once for each pattern",
		`arn:aws:eks:(us`:                     "missing closing",
		`a)|(b`:                               "unexpected )",
		`a{1,2000}`:                           "repeat count",
	} {
		if compiled, err := CompilePattern(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CompilePattern(%q) = %v, %v, want an error that contains %q", pattern, compiled, err, want)
		}
	}
}
