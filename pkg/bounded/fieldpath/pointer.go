package fieldpath

import (
	"fmt"
	"strconv"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// CheckPointer returns an error if a string is not a JSON pointer (RFC 6901) or too long.
func CheckPointer(pointer string) error {
	if err := bounded.CheckLength(pointer); err != nil {
		return err
	}
	if !strings.HasPrefix(pointer, "/") {
		return fmt.Errorf("JSON pointer %q must start with /", pointer)
	}
	return nil
}

// ResolvePointer returns the path of the value that a JSON pointer (RFC 6901) refers to, or nil if
// the value does not exist.
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
