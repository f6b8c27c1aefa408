package agent

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDocumentedDefaults checks that docs/agent-run.md contains the defaults of flags.
func TestDocumentedDefaults(t *testing.T) {
	page, err := os.ReadFile("../../docs/agent-run.md")
	if err != nil {
		t.Fatal(err)
	}
	_, reference, _ := strings.Cut(string(page), "### Flags")
	reference, _, _ = strings.Cut(reference, "\n#")
	literal := regexp.MustCompile("^(`[^`]+`|[0-9]+[a-z]?)$")
	sets := NewOptions().Flags()
	checked := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (--[^|]*|`+"`--[^|]*"+`) \| ([^|]*) \|`).FindAllStringSubmatch(reference, -1) {
		names, defaults := strings.Split(row[1], ", "), strings.Split(row[2], ", ")
		for i, name := range names {
			// Other defaults are described.
			if len(defaults) != len(names) || !literal.MatchString(defaults[i]) {
				continue
			}
			name, want := strings.Trim(name, "`-"), strings.Trim(defaults[i], "`")
			if duration, err := time.ParseDuration(want); err == nil {
				want = duration.String()
			}
			got := ""
			for _, set := range sets.FlagSets {
				if flag := set.Lookup(name); flag != nil {
					got = strings.Trim(flag.DefValue, "[]")
				}
			}
			if got != want {
				t.Errorf("--%s = %q, documented: %q", name, got, want)
			}
			checked++
		}
	}
	if checked < 14 {
		t.Errorf("documented defaults = %d, want 14 at least", checked)
	}
}
