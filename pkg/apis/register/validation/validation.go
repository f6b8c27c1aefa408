// Package validation checks the types of the group register.open-cluster-management.io.
package validation

import (
	"regexp"
	"strings"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

const (
	// maxReasonLength is in characters.
	maxReasonLength = 1024
	maxRequesters   = 64
	// maxRequesterLength is in bytes, as Kubernetes bounds no name of a user.
	maxRequesterLength    = 1024
	maxServiceAccounts    = 16
	maxOIDCProviderLength = 255
)

// oidcProvider takes no character that means something in an ARN or to a shell.
var oidcProvider = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*$`)

// ValidateManagedClusterRegistration checks a ManagedClusterRegistration that is about to be created.
func ValidateManagedClusterRegistration(r *v1alpha1.ManagedClusterRegistration) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&r.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// ValidateManagedClusterAcceptance checks a decision about a cluster.
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
		errs = append(errs, field.Forbidden(requesters, "no request of a cluster is approved that is denied"))
	}
	taken := map[string]bool{}
	for i, requester := range a.Spec.Requesters {
		switch {
		case requester == "":
			errs = append(errs, field.Required(requesters.Index(i), "a user has a name"))
		case len(requester) > maxRequesterLength:
			errs = append(errs, field.TooLong(requesters.Index(i), "", maxRequesterLength))
		case taken[requester]:
			errs = append(errs, field.Duplicate(requesters.Index(i), requester))
		}
		taken[requester] = true
	}
	return errs
}

// ValidateManagedClusterIRSA checks what a claim has beside the ARN, which is for the
// documents of the answer.
func ValidateManagedClusterIRSA(c *v1alpha1.ManagedClusterIRSA) field.ErrorList {
	fldPath := field.NewPath("spec")
	var errs field.ErrorList
	if provider := c.Spec.OIDCProvider; provider != "" {
		path := fldPath.Child("oidcProvider")
		if len(provider) > maxOIDCProviderLength {
			errs = append(errs, field.TooLong(path, "", maxOIDCProviderLength))
		} else if !oidcProvider.MatchString(provider) {
			errs = append(errs, field.Invalid(path, provider, "must be <host>[:<port>][/<path>], without https://"))
		}
	}
	accounts := fldPath.Child("serviceAccounts")
	if len(c.Spec.ServiceAccounts) > maxServiceAccounts {
		errs = append(errs, field.TooMany(accounts, len(c.Spec.ServiceAccounts), maxServiceAccounts))
	}
	for i, account := range c.Spec.ServiceAccounts {
		namespace, name, found := strings.Cut(account, ":")
		if !found || len(apivalidation.ValidateNamespaceName(namespace, false)) > 0 || len(apivalidation.ValidateServiceAccountName(name, false)) > 0 {
			errs = append(errs, field.Invalid(accounts.Index(i), account, "must be <namespace>:<name> of a ServiceAccount"))
		}
	}
	return errs
}
