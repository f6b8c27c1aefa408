// Package limits bounds the cost of reading the manifests of a ManifestWork. The hub
// rejects manifests that exceed a limit. The agent does not apply such manifests, since
// another hub may have stored them.
package limits

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxDepth bounds the nesting of objects and lists. The hub and the agent recurse
	// to this depth.
	MaxDepth = 256
	// MaxValues bounds the values of all manifests of a ManifestWork. A value of two
	// bytes takes hundreds of bytes in memory, and the agent keeps several copies.
	MaxValues = 100_000
	// MaxManifests bounds the manifests of a ManifestWork. The status contains up to 700
	// bytes for each manifest, and etcd stores objects of up to 1.5 MB.
	MaxManifests = 1500
	// MaxNameBytes bounds the parts of the identity of an object, which conditions contain.
	MaxNameBytes = 1024

	// MaxMatches bounds the number of manifests times the number of manifestConfigs and
	// orphaningRules: each reconciliation compares every manifest with every config and
	// rule.
	MaxMatches = 1_000_000

	// maxShown bounds the keys that errors contain, in bytes.
	maxShown = 64
)

// Check returns an error if a manifest exceeds a limit, or if decoders may disagree about its
// content, for example because of duplicate keys. It does not check that the manifest is a
// Kubernetes object. It subtracts the number of values from left, which starts at MaxValues for
// each ManifestWork.
func Check(raw []byte, left *int, fldPath *field.Path) *field.Error {
	if !utf8.Valid(raw) {
		return field.Invalid(fldPath, "", "must be valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var at location
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(at) == 0 {
			return nil
		}
		if err != nil {
			return field.Invalid(fldPath, "", "must be valid JSON: "+err.Error())
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			at = at[:len(at)-1]
			continue
		}
		if key, isKey := at.key(token); isKey {
			if !at.enter(key) {
				return field.Duplicate(at.path(fldPath), shown(key))
			}
			continue
		}
		at.next()
		if *left--; *left < 0 {
			return field.Forbidden(fldPath, fmt.Sprintf("the manifests must contain at most %d values in total; split them into several ManifestWorks", MaxValues))
		}
		if delim, ok := token.(json.Delim); ok {
			if len(at) == MaxDepth {
				return field.Forbidden(fldPath, fmt.Sprintf("objects and lists must be nested at most %d levels deep", MaxDepth))
			}
			at = append(at, level{object: delim == '{', index: -1})
		}
	}
}

// CheckMatches returns an error if a ManifestWork with these numbers of manifests,
// manifestConfigs and orphaningRules exceeds MaxMatches.
func CheckMatches(manifests, configs, rules int, fldPath *field.Path) *field.Error {
	if manifests*(configs+rules) <= MaxMatches {
		return nil
	}
	return field.Forbidden(fldPath, fmt.Sprintf("matching %d manifests with %d manifestConfigs and orphaningRules takes more than %d comparisons; use wildcards or several ManifestWorks",
		manifests, configs+rules, MaxMatches))
}

// location is the position of a decoder in a manifest.
type location []level

// level is an object or a list that is being read.
type level struct {
	object bool
	// index is the index of the current item of a list.
	index int
	// name is the current key of an object; keys contains all keys up to it.
	name string
	keys map[string]struct{}
	// value is true if the next token belongs to the value of the current key.
	value bool
}

// key returns the token and true if it is the key of an object.
func (l location) key(token json.Token) (string, bool) {
	if len(l) == 0 || !l[len(l)-1].object || l[len(l)-1].value {
		return "", false
	}
	key, ok := token.(string)
	return key, ok
}

// enter moves to the value of a key. It reports whether the key is new.
func (l location) enter(key string) bool {
	top := &l[len(l)-1]
	_, found := top.keys[key]
	if top.keys == nil {
		top.keys = map[string]struct{}{}
	}
	top.keys[key] = struct{}{}
	top.name, top.value = key, true
	return !found
}

// next moves into a value.
func (l location) next() {
	if len(l) > 0 {
		top := &l[len(l)-1]
		top.value = false
		top.index++
	}
}

func (l location) path(fldPath *field.Path) *field.Path {
	for _, level := range l {
		if level.object {
			fldPath = fldPath.Child(shown(level.name))
		} else {
			fldPath = fldPath.Index(level.index)
		}
	}
	return fldPath
}

func shown(text string) string {
	if len(text) <= maxShown {
		return text
	}
	end := maxShown
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
