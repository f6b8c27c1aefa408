package irsa

import (
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

const (
	// maxPolicyBytes exceeds the size of the longest document that IAM stores: 10,240
	// characters, each of them escaped.
	maxPolicyBytes = 64 << 10
	// maxPolicyDepth exceeds the nesting of every valid document.
	maxPolicyDepth = 16
)

// SamePolicy reports whether two documents are equivalent, since AWS may return a document in another form. An
// unparsable document equals no other.
func SamePolicy(a, b string) bool {
	first, ok := policyValue(a)
	if !ok {
		return false
	}
	second, ok := policyValue(b)
	return ok && reflect.DeepEqual(first, second)
}

func policyValue(document string) (any, bool) {
	if len(document) > maxPolicyBytes {
		return nil, false
	}
	document = strings.TrimSpace(document)
	// JSON begins with a brace, which the encoding for URLs escapes.
	if strings.HasPrefix(document, "%") {
		decoded, err := url.PathUnescape(document)
		if err != nil {
			return nil, false
		}
		document = decoded
	}
	var value any
	if err := json.Unmarshal([]byte(document), &value); err != nil {
		return nil, false
	}
	return canonical(value, maxPolicyDepth)
}

// canonical removes differences that have no effect in a policy: the order of a list, and a list of one value. It
// returns false for a value that is nested deeper than depth.
func canonical(value any, depth int) (any, bool) {
	if depth < 0 {
		return nil, false
	}
	var ok bool
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			if value[key], ok = canonical(value[key], depth-1); !ok {
				return nil, false
			}
		}
		return value, true
	case []any:
		for i := range value {
			if value[i], ok = canonical(value[i], depth-1); !ok {
				return nil, false
			}
		}
		if len(value) == 1 {
			return value[0], true
		}
		slices.SortFunc(value, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		return value, true
	}
	return value, true
}

func text(value any) string {
	// A value that was decoded from JSON can be encoded.
	out, _ := json.Marshal(value)
	return string(out)
}

// ContainedIn reports whether a document contains all statements of the policy, in any form in
// which AWS returns the document. It may contain other statements.
func (p Policy) ContainedIn(document string) bool {
	have, ok := statementsOf(document)
	if !ok {
		return false
	}
	wanted, ok := statementsOf(p.JSON())
	if !ok {
		return false
	}
	for _, statement := range wanted {
		if !slices.ContainsFunc(have, func(other any) bool { return reflect.DeepEqual(statement, other) }) {
			return false
		}
	}
	return true
}

// statementsOf returns the statements of a document in canonical form, without their names.
func statementsOf(document string) ([]any, bool) {
	value, ok := policyValue(document)
	if !ok {
		return nil, false
	}
	whole, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	statements, isList := whole["Statement"].([]any)
	if !isList {
		statements = []any{whole["Statement"]}
	}
	for _, statement := range statements {
		if statement, ok := statement.(map[string]any); ok {
			delete(statement, "Sid")
		}
	}
	return statements, true
}
