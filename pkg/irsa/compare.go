package irsa

import (
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// samePolicy tells whether two documents say the same, in whatever form AWS returns
// them. A document that cannot be read says nothing.
func samePolicy(a, b string) bool {
	first, ok := policyValue(a)
	if !ok {
		return false
	}
	second, ok := policyValue(b)
	return ok && reflect.DeepEqual(first, second)
}

func policyValue(document string) (any, bool) {
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
	return canonical(value), true
}

// canonical undoes what has no meaning in a policy: the order of a list, and whether
// one value is in a list.
func canonical(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = canonical(value[key])
		}
		return value
	case []any:
		for i := range value {
			value[i] = canonical(value[i])
		}
		if len(value) == 1 {
			return value[0]
		}
		slices.SortFunc(value, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		return value
	}
	return value
}

func text(value any) string {
	// Whatever was read from JSON can be written.
	out, _ := json.Marshal(value)
	return string(out)
}
