package validation

import (
	"fmt"
	"maps"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func validateManifests(manifests []workv1.Manifest, limitBytes int64, fldPath *field.Path) field.ErrorList {
	if len(manifests) == 0 {
		return field.ErrorList{field.Required(fldPath, "must contain at least one manifest")}
	}
	if len(manifests) > limits.MaxManifests {
		return field.ErrorList{field.TooMany(fldPath, len(manifests), limits.MaxManifests)}
	}
	var errs field.ErrorList
	var size int64
	raws := make([][]byte, len(manifests))
	for i := range manifests {
		// MarshalJSON returns the bytes of the request, or encodes the object of a
		// ManifestWork that was built in memory.
		raw, err := manifests[i].MarshalJSON()
		if err != nil {
			errs = append(errs, field.Invalid(fldPath.Index(i), "", "cannot be encoded as JSON: "+err.Error()))
			continue
		}
		size += int64(len(raw))
		raws[i] = raw
	}
	// Decoding costs much more memory than the bytes.
	if limitBytes > 0 && size > limitBytes {
		err := field.TooLong(fldPath, "", int(limitBytes))
		err.Detail = fmt.Sprintf("may not be more than %d bytes in total, found %d bytes", limitBytes, size)
		return append(errs, err)
	}
	seen := map[identity]bool{}
	left := limits.MaxValues
	for i, raw := range raws {
		if raw == nil {
			continue
		}
		path := fldPath.Index(i)
		if err := limits.Check(raw, &left, path); err != nil {
			errs = append(errs, err)
			if left < 0 {
				return errs
			}
			continue
		}
		id, idErrs := identify(raw, path)
		errs = append(errs, idErrs...)
		if len(idErrs) > 0 {
			continue
		}
		if seen[id] {
			errs = append(errs, field.Duplicate(path, id.String()))
		}
		seen[id] = true
	}
	return errs
}

// identity identifies the object of a manifest.
type identity struct {
	apiVersion, kind, namespace, name string
}

func (id identity) String() string {
	name := id.name
	if id.namespace != "" {
		name = id.namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %s", id.apiVersion, id.kind, name)
}

func identify(raw []byte, fldPath *field.Path) (identity, field.ErrorList) {
	// The JSON keys of Kubernetes objects are case-sensitive, but encoding/json ignores the case of keys.
	var content any
	if err := json.Unmarshal(raw, &content); err != nil {
		return identity{}, field.ErrorList{field.Invalid(fldPath, "", "must be valid JSON: "+err.Error())}
	}
	if content == nil {
		return identity{}, field.ErrorList{field.Required(fldPath, "a manifest must not be empty")}
	}
	object, ok := content.(map[string]any)
	if !ok {
		return identity{}, field.ErrorList{field.Invalid(fldPath, "", "must be an object with apiVersion, kind and metadata")}
	}

	var id identity
	var generateName string
	var errs field.ErrorList
	read := func(from map[string]any, key string, into *string, fldPath *field.Path) {
		switch value := from[key].(type) {
		case nil:
		case string:
			if *into = value; into != &generateName && len(value) > limits.MaxNameBytes {
				errs = append(errs, field.TooLong(fldPath.Child(key), "", limits.MaxNameBytes))
			}
		default:
			errs = append(errs, field.TypeInvalid(fldPath.Child(key), value, "must be a string"))
		}
	}

	read(object, "apiVersion", &id.apiVersion, fldPath)
	read(object, "kind", &id.kind, fldPath)
	metadataPath := fldPath.Child("metadata")
	metadata, ok := object["metadata"].(map[string]any)
	if !ok && object["metadata"] != nil {
		errs = append(errs, field.TypeInvalid(metadataPath, object["metadata"], "must be an object"))
	}
	read(metadata, "name", &id.name, metadataPath)
	read(metadata, "namespace", &id.namespace, metadataPath)
	read(metadata, "generateName", &generateName, metadataPath)
	errs = append(errs, validateStrings(metadata["labels"], metadataPath.Child("labels"))...)
	errs = append(errs, validateStrings(metadata["annotations"], metadataPath.Child("annotations"))...)
	if len(errs) > 0 {
		return id, errs
	}

	errs = append(errs, validateAPIVersion(id.apiVersion, fldPath.Child("apiVersion"))...)
	errs = append(errs, validate.Required(id.kind, fldPath.Child("kind"))...)
	if generateName != "" {
		errs = append(errs, field.Forbidden(metadataPath.Child("generateName"), "the agent would create another object each time that it applies the manifest; set name instead"))
	} else if id.name == "" {
		errs = append(errs, field.Required(metadataPath.Child("name"), ""))
	}
	errs = append(errs, validate.Name(id.name, metadataPath.Child("name"), validate.PathSegment)...)
	return id, append(errs, validate.OptionalName(id.namespace, metadataPath.Child("namespace"), apivalidation.ValidateNamespaceName)...)
}

// validateStrings accepts null and objects whose values are strings or null. A YAML
// parser turns unquoted values into numbers and booleans, which no API server decodes.
func validateStrings(value any, fldPath *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	entries, ok := value.(map[string]any)
	if !ok {
		return field.ErrorList{field.TypeInvalid(fldPath, value, "must be an object")}
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if _, ok := entries[key].(string); !ok && entries[key] != nil {
			errs = append(errs, field.TypeInvalid(fldPath.Key(key), entries[key], "must be a string"))
		}
	}
	return errs
}

func validateAPIVersion(apiVersion string, fldPath *field.Path) field.ErrorList {
	if apiVersion == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	if gv, err := schema.ParseGroupVersion(apiVersion); err != nil || gv.Version == "" {
		return field.ErrorList{field.Invalid(fldPath, apiVersion, "must have the form <version> or <group>/<version>")}
	}
	return nil
}
