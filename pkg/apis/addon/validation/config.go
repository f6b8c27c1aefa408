// Package validation checks the objects of the group addon.open-cluster-management.io.
package validation

import (
	"regexp"
	"slices"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
)

var (
	signerPattern = regexp.MustCompile(`^([a-z0-9][a-z0-9-]*[a-z0-9]\.)+[a-z]+/[a-z0-9.-]+$`)
	drivers       = []string{"", "csr", "token"}
)

// maxSignerName is the most characters of the name of a signer.
const maxSignerName = 571

func validateKind(kind addon.ConfigGroupResource, path *field.Path) field.ErrorList {
	if kind.Resource == "" {
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	}
	return nil
}

func validateReferent(config addon.ConfigReferent, path *field.Path) field.ErrorList {
	if config.Name == "" {
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return nil
}

func validateConfigs(configs []addon.AddOnConfig, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, config := range configs {
		errs = append(errs, validateKind(config.ConfigGroupResource, path.Index(i))...)
		errs = append(errs, validateReferent(config.ConfigReferent, path.Index(i))...)
	}
	return errs
}

func validateSpecHash(config *addon.ConfigSpecHash, path *field.Path) field.ErrorList {
	if config == nil {
		return nil
	}
	return validateReferent(config.ConfigReferent, path)
}

// validateUnique refuses elements that are there already by their keys.
func validateUnique[T any, K comparable](elements []T, key func(T) K, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[K]bool{}
	for i, element := range elements {
		k := key(element)
		if seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

// validateInstallNamespace allows none, since not every version and strategy has one.
func validateInstallNamespace(namespace string, path *field.Path) field.ErrorList {
	if namespace == "" {
		return nil
	}
	var errs field.ErrorList
	for _, why := range utilvalidation.IsDNS1123Label(namespace) {
		errs = append(errs, field.Invalid(path, namespace, why))
	}
	return errs
}

func validateEnum[T ~string](value T, allowed []T, path *field.Path) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(allowed), func(one T) bool { return one == "" })
	return field.ErrorList{field.NotSupported(path, value, named)}
}
