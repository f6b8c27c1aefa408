package options

import (
	"strings"
	"testing"
)

func TestNilExecutor(t *testing.T) {
	for flags, want := range map[string]string{
		"":                     "",
		"--nil-executor=Allow": "",
		"--nil-executor=Check": "",
		"--nil-executor=Deny":  "--nil-executor=Deny requires --work-executor",
		"--nil-executor=Deny --work-executor=apps/permissions": "",
		"--nil-executor=deny": "--nil-executor must be one of [Allow Deny Check]",
		"--nil-executor=":     "--nil-executor must be one of",
	} {
		t.Run(flags, func(t *testing.T) {
			o := New()
			o.EmbeddedEtcd.DataDir = t.TempDir()
			for _, set := range o.Flags().FlagSets {
				for flag := range strings.FieldsSeq(flags) {
					name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
					if set.Lookup(name) == nil {
						continue
					}
					if err := set.Set(name, value); err != nil {
						t.Fatal(err)
					}
				}
			}
			completed, err := o.Complete()
			if err != nil {
				t.Fatal(err)
			}
			err = completed.Validate()
			refused := err != nil && strings.Contains(err.Error(), "executor")
			if refused != (want != "") || refused && !strings.Contains(err.Error(), want) {
				t.Errorf("Validate(%s) = %v, want %q", flags, err, want)
			}
		})
	}
}
