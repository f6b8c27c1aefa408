package decide

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// A field that an earlier version of a manifest set must be removed from the object, but a field
// that only other writers set must stay. The object does not show the difference, so an annotation
// of the AppliedManifestWork lists the paths of the fields, without their values.

const (
	// FieldsAnnotation contains the encoded FieldSets of an AppliedManifestWork.
	FieldsAnnotation = "work.open-cluster-management.io/given-fields"
	// maxEncoded bounds the annotation, because all annotations of an object may take 256 KiB
	// together. The paths of a ManifestWork of 500 KiB compress to 10 % of this limit.
	maxEncoded = 160 << 10
	// maxDecoded bounds the decompressed size of a forged annotation.
	maxDecoded = 16 << 20
)

// FieldSet is a tree of field paths. A leaf is set as a whole. Items of a list are keyed by
// their name or their index.
type FieldSet map[string]FieldSet

// FieldSets maps the text of an ObjectID to the fields that manifests set in the object.
type FieldSets map[string]FieldSet

// FieldSetOf returns the fields that a manifest sets.
func FieldSetOf(manifest *unstructured.Unstructured) FieldSet {
	set := FieldSet{}
	for key, value := range manifest.Object {
		switch key {
		case "apiVersion", "kind", "metadata":
		default:
			set[key] = fieldsIn(value)
		}
	}
	metadata := FieldSet{}
	for _, key := range []string{"labels", "annotations"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(manifest.Object, "metadata", key); found {
			metadata[key] = fieldsIn(value)
		}
	}
	if len(metadata) > 0 {
		set["metadata"] = metadata
	}
	return set
}

func fieldsIn(value any) FieldSet {
	var set FieldSet
	add := func(key string, child any) {
		if set == nil {
			set = FieldSet{}
		}
		set[key] = fieldsIn(child)
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
	return set
}

// itemKeys returns the keys of the items of a list: their names if these are unique, otherwise
// their indexes.
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

// RemoveFields removes from value the fields of former that want does not set. Lists that want sets
// must no longer contain former items.
func RemoveFields(value, want any, former FieldSet) {
	switch value := value.(type) {
	case map[string]any:
		wanted, _ := want.(map[string]any)
		for key, below := range former {
			child, ok := value[key]
			if !ok {
				continue
			}
			if w, set := wanted[key]; set {
				RemoveFields(child, w, below)
				continue
			}
			childMap, isMap := child.(map[string]any)
			if !isMap || len(below) == 0 {
				delete(value, key)
				continue
			}
			RemoveFields(childMap, nil, below)
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
				RemoveFields(items[key], wanted[i], below)
			}
		}
	}
}

func union(a, b FieldSet) FieldSet {
	if len(b) == 0 {
		return a
	}
	result := FieldSet{}
	maps.Copy(result, a)
	for key, below := range b {
		result[key] = union(result[key], below)
	}
	return result
}

// FieldSetsOf returns the fields that items with update strategy Update set in their objects, and the
// field managers under which items with other strategies have set fields. manager is the
// FieldManager of the ManifestWork. former are the sets of earlier versions of the items.
func FieldSetsOf(items []*Item, manager string, former FieldSets) FieldSets {
	sets := FieldSets{}
	for _, it := range items {
		if it.Object == nil {
			continue
		}
		id := it.ID().String()
		switch before, written := former[id]; it.Config.Strategy.Type {
		case workv1.UpdateStrategyTypeUpdate:
			sets[id] = FieldSetOf(it.Object)
		case workv1.UpdateStrategyTypeServerSideApply:
			sets[id] = managedBy(it.Config.Applier())
		case workv1.UpdateStrategyTypeCreateOnly:
			sets[id] = managedBy(append(before.Managers(), manager)...)
		case workv1.UpdateStrategyTypeReadOnly:
			// The object keeps the fields that were set with another strategy.
			if written {
				sets[id] = managedBy(append(before.Managers(), manager)...)
			}
		}
	}
	return sets
}

// Union returns the union of the fields of each object.
func (s FieldSets) Union(other FieldSets) FieldSets {
	result := FieldSets{}
	maps.Copy(result, s)
	for id, set := range other {
		result[id] = union(result[id], set)
	}
	return result
}

// Encode returns the value of FieldsAnnotation. If the value is too large, Encode returns an empty
// string, and fields of earlier versions stay in the objects.
func (s FieldSets) Encode() (string, error) {
	if len(s) == 0 {
		return "", nil
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if err := json.NewEncoder(writer).Encode(s); err != nil {
		return "", err
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	text := base64.StdEncoding.EncodeToString(packed.Bytes())
	if len(text) > maxEncoded {
		return "", nil
	}
	return text, nil
}

// DecodeFieldSets returns the FieldSets of a value of FieldsAnnotation.
func DecodeFieldSets(text string) (FieldSets, error) {
	sets := FieldSets{}
	if text == "" {
		return sets, nil
	}
	packed := base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))
	reader, err := gzip.NewReader(packed)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(reader, maxDecoded)).Decode(&sets)
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", FieldsAnnotation, err)
	}
	return sets, nil
}
