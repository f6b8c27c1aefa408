// Package ratchet ignores validation errors of an update that the stored object already has.
//
// Validation becomes stricter in later versions, and another server may have stored
// objects without validation. Such objects stay usable: an update is not rejected for an
// invalid part that it does not change.
//
// An error is ignored if the old object has the same error and contains the
// invalid part unchanged. The part is the innermost list element on the path of
// the error, at any index, or else the value at the path.
package ratchet

import (
	"encoding/json"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Update returns the errors that validate finds in obj, except the errors that Filter ignores
// because of old. convert converts an object to the version that the paths of errors refer to.
func Update[Internal, Versioned any](obj, old *Internal, validate func(*Internal) field.ErrorList,
	convert func(*Internal, *Versioned, conversion.Scope) error) field.ErrorList {
	errs := validate(obj)
	if len(errs) == 0 {
		return nil
	}
	var versioned, versionedOld Versioned
	if convert(obj, &versioned, nil) != nil || convert(old, &versionedOld, nil) != nil {
		return errs
	}
	return Filter(errs, validate(old), &versioned, &versionedOld)
}

// Filter returns the errors of obj, except the errors that are ignored because of
// oldErrs, the errors of old. Both objects are in the version that the paths of errors
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

	// Each old error excuses only one new error. Otherwise an update could repeat an invalid
	// element.
	excuses := map[string]int{}
	for _, e := range oldErrs {
		excuses[fingerprint(e)]++
	}
	before := snapshot{content: oldContent, parts: map[string]map[string]bool{}}
	digests := map[string]string{}

	var kept field.ErrorList
	for _, e := range errs {
		id := fingerprint(e)
		if excuses[id] == 0 {
			kept = append(kept, e)
			continue
		}
		path := partPath(parse(e.Field))
		digest, known := digests[join(path)]
		if !known {
			digest = digestOf(lookup(content, path))
			digests[join(path)] = digest
		}
		if !before.has(path, digest) {
			kept = append(kept, e)
			continue
		}
		excuses[id]--
	}
	return kept
}

// segment is one step of a path: a key of an object, or an index of a list.
type segment struct {
	key     string
	index   int
	isIndex bool
}

func parse(path string) []segment {
	var segments []segment
	for len(path) > 0 {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return append(segments, segment{key: path})
			}
			inner := path[1:end]
			if i, err := strconv.Atoi(inner); err == nil {
				segments = append(segments, segment{index: i, isIndex: true})
			} else {
				segments = append(segments, segment{key: inner})
			}
			path = path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			segments = append(segments, segment{key: path[:end]})
			path = path[end:]
		}
	}
	return segments
}

// partPath returns the path of the part of the object that an error at a path concerns.
func partPath(path []segment) []segment {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i].isIndex {
			return path[:i+1]
		}
	}
	return path
}

func join(path []segment) string {
	return render(path, strconv.Itoa)
}

func pattern(path []segment) string {
	return render(path, func(int) string { return "*" })
}

func render(path []segment, index func(int) string) string {
	var b strings.Builder
	for _, s := range path {
		if s.isIndex {
			b.WriteString("[" + index(s.index) + "]")
		} else {
			b.WriteString("." + s.key)
		}
	}
	return b.String()
}

func fingerprint(e *field.Error) string {
	return pattern(parse(e.Field)) + ": " + e.ErrorBody()
}

func lookup(content any, path []segment) any {
	for _, s := range path {
		content = step(content, s)
	}
	return content
}

func step(content any, s segment) any {
	if s.isIndex {
		if list, ok := content.([]any); ok && s.index < len(list) {
			return list[s.index]
		}
		return nil
	}
	if object, ok := content.(map[string]any); ok {
		return object[s.key]
	}
	return nil
}

func digestOf(content any) string {
	// The content came from JSON, so this cannot fail. Keys are sorted.
	data, _ := json.Marshal(content)
	return string(data)
}

// snapshot reports whether an object contains a part. It caches the parts of
// each pattern, since an object may have as many errors as it has elements.
type snapshot struct {
	content any
	parts   map[string]map[string]bool
}

func (s *snapshot) has(path []segment, digest string) bool {
	key := pattern(path)
	found, known := s.parts[key]
	if !known {
		found = map[string]bool{}
		collect(s.content, path, found)
		s.parts[key] = found
	}
	return found[digest]
}

func collect(content any, path []segment, into map[string]bool) {
	if len(path) == 0 {
		into[digestOf(content)] = true
		return
	}
	if !path[0].isIndex {
		collect(step(content, path[0]), path[1:], into)
		return
	}
	list, _ := content.([]any)
	for _, element := range list {
		collect(element, path[1:], into)
	}
}
