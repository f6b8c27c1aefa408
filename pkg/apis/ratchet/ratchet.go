// Package ratchet ignores validation errors of an update that the stored object already has.
//
// Validation becomes stricter in later versions, and another server may have stored objects without validation. Such
// objects stay usable: an update is not rejected for an invalid part that it does not change.
//
// An error is ignored if the old object has the same error and contains the invalid part unchanged. The part is the
// innermost list element on the path of the error, at any index, or else the value at the path.
package ratchet

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	// steps are the steps of a path: keys of objects, and keys or indexes in brackets.
	steps = regexp.MustCompile(`\[[^\]]*\]|[^.\[]+`)
	index = regexp.MustCompile(`\[\d+\]`)
)

// Filter returns the errors of obj, except the errors that are ignored because of
// oldErrs, the errors of old. Both objects have the JSON fields that the paths of errors
// refer to. The detail of an error must not contain the index of an element.
func Filter(errs, oldErrs field.ErrorList, obj, old any) field.ErrorList {
	if len(errs) == 0 || len(oldErrs) == 0 {
		return errs
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return errs
	}
	oldContent, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return errs
	}

	// Each old error excuses only one new error. Otherwise an update could repeat an invalid element.
	excuses := map[string]int{}
	for _, e := range oldErrs {
		excuses[fingerprint(e)]++
	}
	// An object may have as many errors as elements, so each part is read once.
	parts, oldParts := map[string]string{}, map[string]map[string]bool{}
	unchanged := func(path string) bool {
		if _, known := parts[path]; !known {
			collect(content, steps.FindAllString(path, -1), func(part string) { parts[path] = part })
		}
		like := pattern(path)
		if oldParts[like] == nil {
			found := map[string]bool{}
			collect(oldContent, steps.FindAllString(like, -1), func(part string) { found[part] = true })
			oldParts[like] = found
		}
		return oldParts[like][parts[path]]
	}

	var kept field.ErrorList
	for _, e := range errs {
		id := fingerprint(e)
		if excuses[id] == 0 || !unchanged(partPath(e.Field)) {
			kept = append(kept, e)
			continue
		}
		excuses[id]--
	}
	return kept
}

// partPath returns the path of the part of the object that an error at a path concerns.
func partPath(path string) string {
	indexes := index.FindAllStringIndex(path, -1)
	if len(indexes) == 0 {
		return path
	}
	return path[:indexes[len(indexes)-1][1]]
}

// pattern returns a path with * in place of each index.
func pattern(path string) string { return index.ReplaceAllString(path, "[*]") }

func fingerprint(e *field.Error) string { return pattern(e.Field) + ": " + e.ErrorBody() }

// collect calls found with the JSON text of each value at a path, in which the index * stands for all elements of a list.
func collect(content any, path []string, found func(string)) {
	if len(path) == 0 {
		// The content came from JSON, so this cannot fail. Keys are sorted.
		text, _ := json.Marshal(content)
		found(string(text))
		return
	}
	key := strings.Trim(path[0], "[]")
	if list, isList := content.([]any); isList {
		at, err := strconv.Atoi(key)
		for i, element := range list {
			if i == at && err == nil || key == "*" {
				collect(element, path[1:], found)
			}
		}
		return
	}
	object, _ := content.(map[string]any)
	collect(object[key], path[1:], found)
}
