// Package validate contains checks of single fields that the validation of several API groups shares.
package validate

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Required returns an error if a value is empty.
func Required(value string, fldPath *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	return nil
}

// Supported returns an error if a value is empty or not in supported.
func Supported[T ~string](value T, fldPath *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(fldPath, value, supported)}
}

// Optional returns an error if a value is neither empty nor in supported.
func Optional[T ~string](value T, fldPath *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return nil
	}
	return Supported(value, fldPath, supported...)
}

// Name returns an error for each problem that check, such as a function of k8s.io/apimachinery/pkg/api/validation, finds.
func Name(name string, fldPath *field.Path, check func(name string, prefix bool) []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range check(name, false) {
		errs = append(errs, field.Invalid(fldPath, name, problem))
	}
	return errs
}

// OptionalName returns an error for each problem that check finds in a name that is not empty.
func OptionalName(name string, fldPath *field.Path, check func(name string, prefix bool) []string) field.ErrorList {
	if name == "" {
		return nil
	}
	return Name(name, fldPath, check)
}

// RequiredName returns an error if a name is empty, or else for each problem that check finds in it.
func RequiredName(name string, fldPath *field.Path, check func(name string, prefix bool) []string) field.ErrorList {
	return append(Required(name, fldPath), OptionalName(name, fldPath, check)...)
}

// Unique returns an error if a key is empty or was seen before, and adds it to seen.
func Unique(key string, seen map[string]bool, fldPath *field.Path) field.ErrorList {
	if key == "" {
		return Required(key, fldPath)
	}
	if seen[key] {
		return field.ErrorList{field.Duplicate(fldPath, key)}
	}
	seen[key] = true
	return nil
}

// PathSegment is a name function for Name and RequiredName. It returns why a name cannot be a segment of a URL path.
func PathSegment(name string, _ bool) []string { return content.IsPathSegmentName(name) }
