package irsa

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
)

// CompilePattern compiles a pattern of automatic approval. The result matches whole ARNs. A pattern that contains a
// comma which it would have to match is an error: it is a list of patterns, or it matches no ARN.
func CompilePattern(pattern string) (*regexp.Regexp, error) {
	// The pattern must compile alone, so that it cannot close the group that anchors it.
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("invalid ARN pattern %q: %w", pattern, err)
	}
	if matchesComma(parsed) {
		return nil, fmt.Errorf("invalid ARN pattern %q: no ARN contains a comma; set the flag once for each pattern", pattern)
	}
	whole, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("invalid ARN pattern %q: %w", pattern, err)
	}
	return whole, nil
}

// matchesComma reports whether an expression contains a literal comma. That of a repetition such as {11,12} is none.
func matchesComma(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, ',') || slices.ContainsFunc(re.Sub, matchesComma)
}
