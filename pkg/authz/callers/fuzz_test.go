package callers

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// FuzzCheckURL finds selectors over the limits that checkURL does not refuse.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{
		"a=b", "a in (b,c),d", "a in (b", strings.Repeat("!a,", 300) + "a", strings.Repeat("a in (b),", 300) + "a",
		"a in ()" + strings.Repeat(",a", 300), "a notin (" + strings.Repeat(",", 400) + ")", "(,),a", `a=\(` + strings.Repeat(",b=c", 300), ")(,,,", "a=(,b",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, selector string, ofFields bool) {
		name := "labelSelector"
		if ofFields {
			name = "fieldSelector"
		}
		// Repetition lets short inputs reach the limits.
		for _, text := range []string{selector, strings.Repeat(selector+",", 300) + selector} {
			if checkURL(&url.URL{Path: "/apis", RawQuery: url.Values{name: {text}}.Encode()}) != nil {
				continue
			}
			if len(text) > maxSelectorBytes {
				t.Fatalf("checkURL() of a selector of %d bytes = nil, want an error", len(text))
			}
			n := 0
			if ofFields {
				if parsed, err := fields.ParseSelector(text); err == nil {
					n = len(parsed.Requirements())
				}
			} else if parsed, err := labels.Parse(text); err == nil {
				requirements, _ := parsed.Requirements()
				n = len(requirements)
			}
			if n > maxRequirements {
				t.Errorf("checkURL() of %s %.100q with %d requirements = nil, want an error", name, text, n)
			}
		}
	})
}
