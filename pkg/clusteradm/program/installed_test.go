package program

import (
	"slices"
	"testing"
)

// A change of one setting keeps all arguments that it does not concern, as they are written.
func TestMergeArguments(t *testing.T) {
	base := []string{"--secure-port=10250", "--search-engine=embedded", "--registration-auth=csr"}
	optional := []string{"--registration-auth=csr"}
	for name, test := range map[string]struct {
		installed, before, after, want []string
	}{
		"nothing changes": {
			[]string{"--v=4", "--search-engine", "embedded", "--secure-port=10250", "--nil-executor=Deny"}, base, base,
			[]string{"--v=4", "--search-engine", "embedded", "--secure-port=10250", "--nil-executor=Deny"},
		},
		"one setting changes": {
			[]string{"--secure-port=443", "--search-engine", "embedded", "--v=4"}, base, []string{"--secure-port=10250", "--search-engine=none", "--registration-auth=csr"},
			[]string{"--secure-port=443", "--v=4", "--search-engine=none"},
		},
		"a setting is removed": {
			[]string{"--secure-port=10250", "--x=1", "--x=2", "-v=4"}, append(slices.Clone(base), "--x=1", "--x=2"), base,
			[]string{"--secure-port=10250", "-v=4", "--search-engine=embedded"},
		},
		"a new release has another argument": {
			[]string{"--secure-port=10250", "--search-engine=embedded", "--extra"}, append(slices.Clone(base), "--new=true"), append(slices.Clone(base), "--new=true"),
			[]string{"--secure-port=10250", "--search-engine=embedded", "--extra", "--new=true"},
		},
		"feature gates add up": {
			[]string{"--secure-port=10250", "--search-engine=embedded", "--feature-gates=A=true"}, base, append(slices.Clone(base), "--feature-gates=B=true"),
			[]string{"--secure-port=10250", "--search-engine=embedded", "--feature-gates=A=true", "--feature-gates=B=true"},
		},
		"API versions add up": {
			[]string{"--secure-port=10250", "--search-engine=embedded", "--runtime-config=a/v1=false"}, append(slices.Clone(base), "--runtime-config=p/v1=true"), base,
			[]string{"--secure-port=10250", "--search-engine=embedded", "--runtime-config=a/v1=false"},
		},
		"one feature gate is removed": {
			[]string{"--secure-port=10250", "--search-engine=embedded", "--feature-gates=A=true", "--feature-gates=B=true"}, append(slices.Clone(base), "--feature-gates=B=true"), base,
			[]string{"--secure-port=10250", "--search-engine=embedded", "--feature-gates=A=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mergeArguments(parseArguments(test.installed), test.before, test.after, optional); !slices.Equal(got, test.want) {
				t.Errorf("mergeArguments(%q) = %q, want %q", test.installed, got, test.want)
			}
		})
	}
}
