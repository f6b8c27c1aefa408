package fieldpath

import (
	"fmt"
	"strconv"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// CheckPointer returns an error if a text is no JSON pointer (RFC 6901), or too long.
func CheckPointer(pointer string) error {
	if len(pointer) > bounded.MaxLength {
		return fmt.Errorf("must be no more than %d bytes", bounded.MaxLength)
	}
	if !strings.HasPrefix(pointer, "/") {
		return fmt.Errorf("JSON pointer %q does not begin with /", pointer)
	}
	return nil
}

// ResolvePointer returns the path that a JSON pointer (RFC 6901) names; nil if it points to
// nothing.
func ResolvePointer(object map[string]any, pointer string) ([]any, error) {
	if err := CheckPointer(pointer); err != nil {
		return nil, err
	}
	var path []any
	var at any = object
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch value := at.(type) {
		case map[string]any:
			child, ok := value[token]
			if !ok {
				return nil, nil
			}
			path, at = append(path, token), child
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || index < 0 || index >= len(value) {
				return nil, nil
			}
			path, at = append(path, index), value[index]
		default:
			return nil, nil
		}
	}
	return path, nil
}
