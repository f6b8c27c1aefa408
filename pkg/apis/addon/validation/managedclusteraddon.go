package validation

import (
	"regexp"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

// maxSignerName bounds the name of a signer, in bytes.
const maxSignerName = 571

var signerPattern = regexp.MustCompile(`^([a-z0-9][a-z0-9-]*[a-z0-9]\.)+[a-z]+/[a-z0-9.-]+$`)

// ManagedClusterAddOn validates ManagedClusterAddOns.
var ManagedClusterAddOn = validate.Rules[*addon.ManagedClusterAddOn]{
	Name: apivalidation.NameIsDNSSubdomain, Spec: validateAddOnSpec, Status: validateAddOnStatus,
}

func validateAddOnSpec(a *addon.ManagedClusterAddOn) field.ErrorList {
	path := field.NewPath("spec")
	return append(validate.OptionalName(a.Spec.InstallNamespace, path.Child("installNamespace"), apivalidation.ValidateNamespaceName),
		validateConfigs(a.Spec.Configs, path.Child("configs"))...)
}

func validateAddOnStatus(a *addon.ManagedClusterAddOn) field.ErrorList {
	status, path := &a.Status, field.NewPath("status")
	var errs field.ErrorList
	for i, kind := range status.SupportedConfigs {
		errs = append(errs, validate.Required(kind.Resource, path.Child("supportedConfigs").Index(i).Child("resource"))...)
	}
	errs = append(errs, validateUnique(status.SupportedConfigs, groupResource, path.Child("supportedConfigs"))...)
	for i, reference := range status.ConfigReferences {
		at := path.Child("configReferences").Index(i)
		errs = append(errs, validate.Required(reference.Resource, at.Child("resource"))...)
		errs = append(errs, validateSpecHash(reference.DesiredConfig, at.Child("desiredConfig"))...)
		errs = append(errs, validateSpecHash(reference.LastAppliedConfig, at.Child("lastAppliedConfig"))...)
	}
	for i, object := range status.RelatedObjects {
		at := path.Child("relatedObjects").Index(i)
		errs = append(errs, validate.Required(object.Resource, at.Child("resource"))...)
		errs = append(errs, validate.Required(object.Name, at.Child("name"))...)
	}
	mismatches := a.Mismatches
	for i, registration := range status.Registrations {
		at := path.Child("registrations").Index(i)
		if len(mismatches) > 0 && mismatches[0].Index == i {
			errs = append(errs, validateMismatch(&mismatches[0], registration.SignerName, status.KubeClientDriver, at)...)
			mismatches = mismatches[1:]
			continue
		}
		errs = append(errs, validateSigner(registration.SignerName, at.Child("signerName"))...)
	}
	errs = append(errs, validate.OptionalName(status.Namespace, path.Child("namespace"), apivalidation.ValidateNamespaceName)...)
	errs = append(errs, validate.Optional(status.HealthCheck.Mode, path.Child("healthCheck", "mode"),
		v1alpha1.HealthCheckLease, v1alpha1.HealthCheckCustomized)...)
	return append(errs, validate.Optional(status.KubeClientDriver, path.Child("kubeClientDriver"), "csr", "token")...)
}

// validateMismatch returns the errors of a registration that was written in v1beta1. Its fields exist only there.
func validateMismatch(m *addon.RegistrationMismatch, signer, driver string, path *field.Path) field.ErrorList {
	kubeClient, customSigner := string(v1beta1.KubeClient), string(v1beta1.CustomSigner)
	if errs := validate.Supported(m.Type, path.Child("type"), customSigner, kubeClient); len(errs) > 0 {
		return errs
	}
	var err *field.Error
	switch {
	case m.Driver != "":
		err = field.Invalid(path.Child(kubeClient, "driver"), m.Driver, "must be the driver of the other registrations of this type, "+driver)
	case m.Type == kubeClient:
		err = field.Forbidden(path.Child(customSigner), "may be set only if type is "+customSigner)
	case m.KubeClient:
		err = field.Forbidden(path.Child(kubeClient), "may be set only if type is "+kubeClient)
	case !m.CustomSigner:
		err = field.Required(path.Child(customSigner), "must be set if type is "+customSigner)
	default:
		err = field.Invalid(path.Child(customSigner, "signerName"), signer, "use type "+kubeClient)
	}
	return field.ErrorList{err}
}

func validateSigner(name string, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "")}
	case len(name) > maxSignerName:
		return field.ErrorList{field.TooLong(path, name, maxSignerName)}
	case !signerPattern.MatchString(name):
		return field.ErrorList{field.Invalid(path, name, "must have the form <domain>/<path>, for example example.com/addon")}
	}
	return nil
}
