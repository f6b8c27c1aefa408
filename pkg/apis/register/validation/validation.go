// Package validation validates the objects of the group register.open-cluster-management.io.
package validation

import (
	"regexp"
	"strings"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

const (
	// maxReasonLength is in characters.
	maxReasonLength = 1024
	maxRequesters   = 64
	// maxRequesterLength is in bytes. Kubernetes itself does not bound user names.
	maxRequesterLength    = 1024
	maxServiceAccounts    = 16
	maxOIDCProviderLength = 255
)

// oidcProvider excludes characters that have a meaning in an ARN or a shell.
var oidcProvider = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*$`)

// ManagedClusterRegistration validates ManagedClusterRegistrations.
var ManagedClusterRegistration = validate.Rules[*v1alpha1.ManagedClusterRegistration]{ClusterScoped: true, Name: apivalidation.NameIsDNSSubdomain}

// ValidateManagedClusterAcceptance validates the acceptance or denial of a cluster.
func ValidateManagedClusterAcceptance(a *v1alpha1.ManagedClusterAcceptance) field.ErrorList {
	fldPath := field.NewPath("spec")
	var errs field.ErrorList
	if utf8.RuneCountInString(a.Spec.Reason) > maxReasonLength {
		errs = append(errs, field.TooLongMaxLength(fldPath.Child("reason"), "", maxReasonLength))
	}
	requesters := fldPath.Child("requesters")
	if len(a.Spec.Requesters) > maxRequesters {
		errs = append(errs, field.TooMany(requesters, len(a.Spec.Requesters), maxRequesters))
	}
	if !a.Spec.Accepted && len(a.Spec.Requesters) > 0 {
		errs = append(errs, field.Forbidden(requesters, "may be set only if accepted is true"))
	}
	seen := map[string]bool{}
	for i, requester := range a.Spec.Requesters {
		if len(requester) > maxRequesterLength {
			errs = append(errs, field.TooLong(requesters.Index(i), "", maxRequesterLength))
		} else {
			errs = append(errs, validate.Unique(requester, seen, requesters.Index(i))...)
		}
	}
	return errs
}

// ValidateManagedClusterIRSA validates a claim except for its ARN. These fields are used in the
// policy documents of the response.
func ValidateManagedClusterIRSA(c *v1alpha1.ManagedClusterIRSA) field.ErrorList {
	fldPath := field.NewPath("spec")
	var errs field.ErrorList
	if provider := c.Spec.OIDCProvider; provider != "" {
		path := fldPath.Child("oidcProvider")
		if len(provider) > maxOIDCProviderLength {
			errs = append(errs, field.TooLong(path, "", maxOIDCProviderLength))
		} else if !oidcProvider.MatchString(provider) {
			errs = append(errs, field.Invalid(path, provider, "must have the form <host>[:<port>][/<path>], without https://"))
		}
	}
	accounts := fldPath.Child("serviceAccounts")
	if len(c.Spec.ServiceAccounts) > maxServiceAccounts {
		errs = append(errs, field.TooMany(accounts, len(c.Spec.ServiceAccounts), maxServiceAccounts))
	}
	for i, account := range c.Spec.ServiceAccounts {
		namespace, name, found := strings.Cut(account, ":")
		if !found || len(apivalidation.ValidateNamespaceName(namespace, false)) > 0 || len(apivalidation.ValidateServiceAccountName(name, false)) > 0 {
			errs = append(errs, field.Invalid(accounts.Index(i), account, "must have the form <namespace>:<name> of a ServiceAccount"))
		}
	}
	return errs
}
