package work

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// A field that a manifest gave once and gives no more must go from the object,
// while a field that only others set must stay. The object does not tell one
// from the other, so the paths (not the values) of the given fields are
// remembered in an annotation of the AppliedManifestWork.

const (
	givenAnnotation = "work.open-cluster-management.io/given-fields"
	// maxGiven bounds the annotation; all annotations of an object together
	// may take 256 KiB. The paths of a 500 KiB work compress to a tenth of this.
	maxGiven = 160 << 10
	// maxGivenText bounds what a forged annotation can unpack to.
	maxGivenText = 16 << 20
)

// fields is a set of field paths as a tree. A field that is given as a whole
// has no children. Items of a list are keyed by their name or their index.
type fields map[string]fields

// givenFields maps the text of an objectID to the fields that are enforced on
// that object.
type givenFields map[string]fields

// fieldsOf returns the fields that a manifest gives.
func fieldsOf(object *unstructured.Unstructured) fields {
	given := fields{}
	for key, value := range object.Object {
		switch key {
		case "apiVersion", "kind", "metadata":
		default:
			given[key] = fieldsIn(value)
		}
	}
	metadata := fields{}
	for _, key := range []string{"labels", "annotations"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", key); found {
			metadata[key] = fieldsIn(value)
		}
	}
	if len(metadata) > 0 {
		given["metadata"] = metadata
	}
	return given
}

func fieldsIn(value any) fields {
	var given fields
	add := func(key string, child any) {
		if given == nil {
			given = fields{}
		}
		given[key] = fieldsIn(child)
	}
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			add(key, child)
		}
	case []any:
		keys := itemKeys(value)
		for i, child := range value {
			if _, ok := child.(map[string]any); ok {
				add(keys[i], child)
			}
		}
	}
	return given
}

// itemKeys names the items of a list: by their field name if that is unique,
// else by index.
func itemKeys(list []any) []string {
	keys := make([]string, len(list))
	seen := map[string]bool{}
	for i, entry := range list {
		fields, _ := entry.(map[string]any)
		name, ok := fields["name"].(string)
		if !ok || seen[name] {
			for i := range list {
				keys[i] = "[" + strconv.Itoa(i) + "]"
			}
			return keys
		}
		seen[name] = true
		keys[i] = "[name=" + name + "]"
	}
	return keys
}

// dropFormer removes from value what former holds and want does not give. Lists
// that want gives are already free of former items.
func dropFormer(value, want any, former fields) {
	switch value := value.(type) {
	case map[string]any:
		wanted, _ := want.(map[string]any)
		for key, below := range former {
			child, ok := value[key]
			if !ok {
				continue
			}
			if w, given := wanted[key]; given {
				dropFormer(child, w, below)
				continue
			}
			childMap, isMap := child.(map[string]any)
			if !isMap || len(below) == 0 {
				delete(value, key)
				continue
			}
			dropFormer(childMap, nil, below)
			if len(childMap) == 0 {
				delete(value, key)
			}
		}
	case []any:
		wanted, _ := want.([]any)
		items := map[string]any{}
		for i, key := range itemKeys(value) {
			items[key] = value[i]
		}
		for i, key := range itemKeys(wanted) {
			if below, ok := former[key]; ok {
				dropFormer(items[key], wanted[i], below)
			}
		}
	}
}

// union adds to a the paths of b.
func union(a, b fields) fields {
	if len(b) == 0 {
		return a
	}
	result := fields{}
	for key, below := range a {
		result[key] = below
	}
	for key, below := range b {
		result[key] = union(result[key], below)
	}
	return result
}

// givenBy returns what the items give of the objects that are updated field by field.
func givenBy(items []*item) givenFields {
	given := givenFields{}
	for _, it := range items {
		if it.object != nil && it.config.Strategy.Type == workv1.UpdateStrategyTypeUpdate {
			given[it.id().String()] = fieldsOf(it.object)
		}
	}
	return given
}

// plus returns the union of both.
func (g givenFields) plus(other givenFields) givenFields {
	result := givenFields{}
	for id, given := range g {
		result[id] = given
	}
	for id, given := range other {
		result[id] = union(result[id], given)
	}
	return result
}

// encode returns the value of the annotation: empty if it would be too large,
// in which case formerly given fields stay.
func (g givenFields) encode() (string, error) {
	if len(g) == 0 {
		return "", nil
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	// Maps are encoded in the order of their keys: equal sets have equal text.
	if err := json.NewEncoder(writer).Encode(g); err != nil {
		return "", err
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	text := base64.StdEncoding.EncodeToString(packed.Bytes())
	if len(text) > maxGiven {
		return "", nil
	}
	return text, nil
}

func decodeGiven(text string) (givenFields, error) {
	given := givenFields{}
	if text == "" {
		return given, nil
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", givenAnnotation, err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", givenAnnotation, err)
	}
	if err := json.NewDecoder(io.LimitReader(reader, maxGivenText)).Decode(&given); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", givenAnnotation, err)
	}
	return given, nil
}
