package validation

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

// ValidateManagedClusterAddOn checks a ManagedClusterAddOn that is about to be created.
func ValidateManagedClusterAddOn(a *addon.ManagedClusterAddOn) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&a.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateAddOnSpec(a)...)
}

// ValidateManagedClusterAddOnUpdate checks an update of a ManagedClusterAddOn. Bad parts of the
// spec which the update does not touch are no reason to refuse it.
func ValidateManagedClusterAddOnUpdate(a, old *addon.ManagedClusterAddOn) field.ErrorList {
	if apiequality.Semantic.DeepEqual(a.Spec, old.Spec) {
		return nil
	}
	return addOnWithoutOldErrors(validateAddOnSpec(a), validateAddOnSpec(old), a, old)
}

// ValidateManagedClusterAddOnStatusUpdate checks an update of the status of a ManagedClusterAddOn.
func ValidateManagedClusterAddOnStatusUpdate(a, old *addon.ManagedClusterAddOn) field.ErrorList {
	return addOnWithoutOldErrors(validateAddOnStatus(a), validateAddOnStatus(old), a, old)
}

func validateAddOnSpec(a *addon.ManagedClusterAddOn) field.ErrorList {
	path := field.NewPath("spec")
	return append(validateInstallNamespace(a.Spec.InstallNamespace, path.Child("installNamespace")),
		validateConfigs(a.Spec.Configs, path.Child("configs"))...)
}

func validateAddOnStatus(a *addon.ManagedClusterAddOn) field.ErrorList {
	status, path := &a.Status, field.NewPath("status")
	errs := metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))
	for i, kind := range status.SupportedConfigs {
		errs = append(errs, validateKind(kind, path.Child("supportedConfigs").Index(i))...)
	}
	errs = append(errs, validateUnique(status.SupportedConfigs,
		func(kind addon.ConfigGroupResource) addon.ConfigGroupResource { return kind }, path.Child("supportedConfigs"))...)
	for i, reference := range status.ConfigReferences {
		at := path.Child("configReferences").Index(i)
		errs = append(errs, validateKind(reference.ConfigGroupResource, at)...)
		errs = append(errs, validateSpecHash(reference.DesiredConfig, at.Child("desiredConfig"))...)
		errs = append(errs, validateSpecHash(reference.LastAppliedConfig, at.Child("lastAppliedConfig"))...)
	}
	for i, object := range status.RelatedObjects {
		at := path.Child("relatedObjects").Index(i)
		if object.Resource == "" {
			errs = append(errs, field.Required(at.Child("resource"), ""))
		}
		if object.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
	}
	for i, registration := range status.Registrations {
		errs = append(errs, validateSigner(registration.SignerName, path.Child("registrations").Index(i).Child("signerName"))...)
	}
	errs = append(errs, validateInstallNamespace(status.Namespace, path.Child("namespace"))...)
	errs = append(errs, validateEnum(status.HealthCheck.Mode,
		[]addon.HealthCheckMode{"", addon.HealthCheckLease, addon.HealthCheckCustomized}, path.Child("healthCheck", "mode"))...)
	return append(errs, validateEnum(status.KubeClientDriver, drivers, path.Child("kubeClientDriver"))...)
}

func validateSigner(name string, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "")}
	case len(name) > maxSignerName:
		return field.ErrorList{field.TooLong(path, name, maxSignerName)}
	case !signerPattern.MatchString(name):
		return field.ErrorList{field.Invalid(path, name, "must be a domain and a path, such as example.com/addon")}
	}
	return nil
}

func addOnWithoutOldErrors(errs, oldErrs field.ErrorList, a, old *addon.ManagedClusterAddOn) field.ErrorList {
	var versioned, versionedOld v1alpha1.ManagedClusterAddOn
	if v1alpha1.Convert_addon_ManagedClusterAddOn_To_v1alpha1_ManagedClusterAddOn(a, &versioned, nil) != nil ||
		v1alpha1.Convert_addon_ManagedClusterAddOn_To_v1alpha1_ManagedClusterAddOn(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, oldErrs, &versioned, &versionedOld)
}
