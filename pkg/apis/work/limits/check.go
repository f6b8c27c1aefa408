// Package limits bounds what reading a manifest of a ManifestWork can cost. The hub
// refuses a manifest beyond these bounds, and the agent does not apply one that another
// hub has let pass.
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
	// MaxDepth bounds how deep objects and lists are nested. Every step of the hub and the
	// agent that walks a manifest recurses this deep.
	MaxDepth = 256
	// MaxValues bounds the values of all manifests of a ManifestWork. One value of two
	// bytes takes hundreds of bytes in memory, and the agent has several copies.
	MaxValues = 100_000
	// MaxManifests bounds the manifests of a ManifestWork. The status has up to 700 bytes for
	// each, and an object cannot be stored that exceeds 1.5 MB.
	MaxManifests = 1500
	// MaxNameBytes bounds the parts of the identity of an object, which conditions repeat.
	MaxNameBytes = 1024

	// MaxMatches bounds the manifests of a ManifestWork times what is said about manifests by
	// patterns and names: each is compared with each whenever the work is looked at.
	MaxMatches = 1_000_000

	// maxShown bounds the keys that errors repeat.
	maxShown = 64
)

// Check returns why a manifest is beyond the bounds, or is read differently by
// different readers; nil if it is neither. It does not judge what the object is. It
// takes the number of values from left, which begins at MaxValues for each ManifestWork.
func Check(raw []byte, left *int, fldPath *field.Path) *field.Error {
	if !utf8.Valid(raw) {
		return field.Invalid(fldPath, "", "is no valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var at place
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(at) == 0 {
			return nil
		}
		if err != nil {
			return field.Invalid(fldPath, "", "is no JSON: "+err.Error())
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
			return field.Forbidden(fldPath, fmt.Sprintf("the manifests have more than %d values in total; deliver them in several ManifestWorks", MaxValues))
		}
		if delim, ok := token.(json.Delim); ok {
			if len(at) == MaxDepth {
				return field.Forbidden(fldPath, fmt.Sprintf("objects and lists are nested more than %d deep", MaxDepth))
			}
			at = append(at, level{object: delim == '{', index: -1})
		}
	}
}

// CheckMatches returns why a ManifestWork says too much about too many manifests; nil if
// it does not. Configs are its manifestConfigs, rules its orphaningRules.
func CheckMatches(manifests, configs, rules int, fldPath *field.Path) *field.Error {
	if manifests*(configs+rules) <= MaxMatches {
		return nil
	}
	return field.Forbidden(fldPath, fmt.Sprintf("%d manifests with %d manifestConfigs and orphaningRules take more than %d comparisons; use wildcards, or several ManifestWorks",
		manifests, configs+rules, MaxMatches))
}

// place is where a decoder is in a manifest.
type place []level

// level is an object or a list that is being read.
type level struct {
	object bool
	// index counts the items of a list.
	index int
	// name is the present key of an object, and keys are those so far.
	name  string
	keys  map[string]struct{}
	value bool
}

// key returns the token as a key, if one is due.
func (p place) key(token json.Token) (string, bool) {
	if len(p) == 0 || !p[len(p)-1].object || p[len(p)-1].value {
		return "", false
	}
	key, ok := token.(string)
	return key, ok
}

// enter goes to the value of a key. It reports whether the key is new.
func (p place) enter(key string) bool {
	top := &p[len(p)-1]
	_, taken := top.keys[key]
	if top.keys == nil {
		top.keys = map[string]struct{}{}
	}
	top.keys[key] = struct{}{}
	top.name, top.value = key, true
	return !taken
}

// next notes that a value begins.
func (p place) next() {
	if len(p) > 0 {
		top := &p[len(p)-1]
		top.value = false
		top.index++
	}
}

func (p place) path(fldPath *field.Path) *field.Path {
	for _, level := range p {
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
