// Package limits bounds the cost of reading the manifests of a ManifestWork. The hub rejects manifests that exceed a
// limit. The agent does not apply such manifests, since another hub may have stored them.
package limits

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxDepth bounds the nesting of objects and lists. The hub and the agent recurse to this depth.
	MaxDepth = 256
	// MaxValues bounds the values of all manifests of a ManifestWork. A value of two
	// bytes takes hundreds of bytes in memory, and the agent keeps several copies.
	MaxValues = 100_000
	// MaxManifests bounds the manifests of a ManifestWork. The status contains up to 700
	// bytes for each manifest, and etcd stores objects of up to 1.5 MB.
	MaxManifests = 1500
	// MaxNameBytes bounds the parts of the identity of an object, which conditions contain.
	MaxNameBytes = 1024

	// MaxMatches bounds the number of manifests times the number of manifestConfigs and orphaningRules: each
	// reconciliation compares every manifest with every config and rule.
	MaxMatches = 1_000_000

	// maxShown bounds the keys that errors contain, in bytes.
	maxShown = 64
)

// Check returns an error if a manifest exceeds a limit, or if decoders may disagree about its content, for example
// because of duplicate keys. It does not check that the manifest is a Kubernetes object. It subtracts the number of
// values from left, which starts at MaxValues for each ManifestWork.
func Check(raw []byte, left *int, fldPath *field.Path) *field.Error {
	if !utf8.Valid(raw) {
		return field.Invalid(fldPath, "", "must be valid UTF-8")
	}
	r := reader{json.NewDecoder(bytes.NewReader(raw)), left, fldPath}
	r.decoder.UseNumber()
	for {
		token, err := r.decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.invalid(err)
		}
		if err := r.value(token, fldPath, 0); err != nil {
			return err
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

// reader reads a manifest.
type reader struct {
	decoder *json.Decoder
	left    *int
	fldPath *field.Path
}

func (r *reader) invalid(err error) *field.Error {
	return field.Invalid(r.fldPath, "", "must be valid JSON: "+err.Error())
}

// value reads the value that begins with a token, at a path within depth objects and lists.
func (r *reader) value(token json.Token, at *field.Path, depth int) *field.Error {
	if *r.left--; *r.left < 0 {
		return field.Forbidden(r.fldPath, fmt.Sprintf("the manifests must contain at most %d values in total; split them into several ManifestWorks", MaxValues))
	}
	start, composite := token.(json.Delim)
	if !composite {
		return nil
	}
	if depth == MaxDepth {
		return field.Forbidden(r.fldPath, fmt.Sprintf("objects and lists must be nested at most %d levels deep", MaxDepth))
	}
	keys := map[json.Token]bool{}
	for i := 0; r.decoder.More(); i++ {
		next, err := r.decoder.Token()
		if err != nil {
			return r.invalid(err)
		}
		var child *field.Path
		if key, isKey := next.(string); isKey && start == '{' {
			if child = at.Child(shown(key)); keys[key] {
				return field.Duplicate(child, shown(key))
			}
			keys[key] = true
			if next, err = r.decoder.Token(); err != nil {
				return r.invalid(err)
			}
		} else {
			child = at.Index(i)
		}
		if err := r.value(next, child, depth+1); err != nil {
			return err
		}
	}
	if _, err := r.decoder.Token(); err != nil {
		return r.invalid(err)
	}
	return nil
}

func shown(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}
