// Package validation validates the objects of the group addon.open-cluster-management.io.
package validation

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

func validateConfigs(configs []addonv1alpha1.AddOnConfig, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, config := range configs {
		errs = append(errs, validate.Required(config.Resource, path.Index(i).Child("resource"))...)
		errs = append(errs, validate.Required(config.Name, path.Index(i).Child("name"))...)
	}
	return errs
}

func validateSpecHash(config *addonv1alpha1.ConfigSpecHash, path *field.Path) field.ErrorList {
	if config == nil {
		return nil
	}
	return validate.Required(config.Name, path.Child("name"))
}

// groupResource identifies a kind of configuration. A missing group is the core group.
func groupResource(kind addonv1alpha1.ConfigGroupResource) schema.GroupResource {
	return schema.GroupResource{Group: ptr.Deref(kind.Group, ""), Resource: kind.Resource}
}

// validateUnique returns an error for each element that has the same key as an earlier element.
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
