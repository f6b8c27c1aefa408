package query

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzMatch compares the results of patterns and keywords with those of regular expressions.
func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{
		{"nginx-*", "nginx-7c9d8"}, {"*a*a*a*b", "aaaaaaaaaaaaaaaa"}, {"**", ""}, {"*", "x"}, {`a\*b`, "a*b"}, {`\`, `\`},
		{"*ab*ba*", "aba"}, {"a*a", "a"}, {"POD*", "pod"}, {"*=*", "a=b"}, {"*" + strings.Repeat("a", 40) + "b*", strings.Repeat("a", 200)},
		{"ÄÖ*", "äö"}, {"1", "1.0"}, {"day", "2026-01-01T00:00:00Z"}, {strings.Repeat("aB", 20), strings.Repeat("Ab", 50)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if !utf8.ValidString(pattern) || !utf8.ValidString(text) || len(pattern) > 500 {
			return
		}
		c := NewPattern(Equal, pattern)
		quoted := make([]string, len(c.Parts))
		for i, part := range c.Parts {
			quoted[i] = regexp.QuoteMeta(part)
		}
		// Numbers and ages are compared by value.
		if c.Number == nil && c.Age == 0 {
			want := regexp.MustCompile(`\A(?s:` + strings.Join(quoted, ".*") + `)\z`).MatchString(text)
			if got := c.MatchesLeaf("name", String, Leaf{Text: text}, time.Time{}); got != want {
				t.Errorf("MatchesLeaf(%q, %q) = %v, want %v", pattern, text, got, want)
			}
		}
		lowered := strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, pattern+"\n"+text)
		keyword, in, _ := strings.Cut(lowered, "\n")
		if strings.Contains(pattern, "\n") {
			return
		}
		if got, want := ContainsFold(text, pattern), strings.Contains(in, keyword); got != want {
			t.Errorf("ContainsFold(%q, %q) = %v, want %v", text, pattern, got, want)
		}
	})
}
