// Package validation checks the types of the group authentication.open-cluster-management.io.
package validation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

// Validator checks ManagedServiceAccounts.
type Validator struct {
	// MaximumValidity bounds how long tokens may be valid; 0 for no bound.
	MaximumValidity time.Duration
	// ReservedNames are names that no new account may have. One that ends with "*"
	// reserves every name that begins with the rest.
	ReservedNames []string
}

// DefaultReservedNames returns the names of ServiceAccounts that public addons install in the
// namespace that agents use for accounts by default, and of "default", which every
// namespace has.
func DefaultReservedNames() []string {
	return []string{
		"default", "klusterlet-*", "managed-serviceaccount", "cluster-proxy", "application-manager", "search-collector",
		"config-policy-controller-sa", "governance-policy-framework-sa", "cert-policy-controller-sa", "iam-policy-controller-sa",
		"hypershift-addon-*", "volsync-addon-*",
	}
}

func (v Validator) reserved(name string) bool {
	return slices.ContainsFunc(v.ReservedNames, func(reserved string) bool {
		prefix, open := strings.CutSuffix(reserved, "*")
		return name == reserved || open && strings.HasPrefix(name, prefix)
	})
}

// Validate checks a ManagedServiceAccount that is about to be created.
func (v Validator) Validate(account *authentication.ManagedServiceAccount) field.ErrorList {
	// The ServiceAccount and the Secret have the same name.
	errs := apivalidation.ValidateObjectMeta(&account.ObjectMeta, true, apivalidation.ValidateServiceAccountName, field.NewPath("metadata"))
	if v.reserved(account.Name) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), fmt.Sprintf(
			"%q is reserved for an addon (--managed-serviceaccount-reserved-names): a user with the token of the account would also get what the addon grants this ServiceAccount; use another name", account.Name)))
	}
	return append(errs, v.validateSpec(&account.Spec)...)
}

// ValidateUpdate checks an update of a ManagedServiceAccount. Bad parts of the
// spec which the update does not touch are no reason to refuse it. The metadata
// of updates is left to the generic registry, which checks it for every kind.
func (v Validator) ValidateUpdate(account, old *authentication.ManagedServiceAccount) field.ErrorList {
	if apiequality.Semantic.DeepEqual(account.Spec, old.Spec) {
		return nil
	}
	errs := v.validateSpec(&account.Spec)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, v.validateSpec(&old.Spec), account, old)
}

// ValidateStatusUpdate checks an update of the status of a ManagedServiceAccount.
func (v Validator) ValidateStatusUpdate(account, old *authentication.ManagedServiceAccount) field.ErrorList {
	errs := validateStatus(account)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, validateStatus(old), account, old)
}

func withoutOldErrors(errs, oldErrs field.ErrorList, account, old *authentication.ManagedServiceAccount) field.ErrorList {
	var versioned, versionedOld authenticationv1beta1.ManagedServiceAccount
	if authenticationv1beta1.Convert_authentication_ManagedServiceAccount_To_v1beta1_ManagedServiceAccount(account, &versioned, nil) != nil ||
		authenticationv1beta1.Convert_authentication_ManagedServiceAccount_To_v1beta1_ManagedServiceAccount(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, oldErrs, &versioned, &versionedOld)
}

func (v Validator) validateSpec(spec *authentication.ManagedServiceAccountSpec) field.ErrorList {
	fldPath := field.NewPath("spec")
	var errs field.ErrorList

	validityPath := fldPath.Child("rotation", "validity")
	validity, err := authenticationv1beta1.ParseValidity(spec.Rotation.Validity)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(validityPath, spec.Rotation.Validity, err.Error()))
	case v.MaximumValidity > 0 && validity > v.MaximumValidity:
		errs = append(errs, field.Invalid(validityPath, spec.Rotation.Validity,
			fmt.Sprintf("must be at most %s, the bound that the hub sets", v.MaximumValidity)))
	}

	taken := map[string]bool{}
	for i, audience := range spec.Audiences {
		path := fldPath.Child("audiences").Index(i)
		switch {
		case audience == "":
			errs = append(errs, field.Required(path, "an audience may not be empty"))
		case taken[audience]:
			errs = append(errs, field.Duplicate(path, audience))
		}
		taken[audience] = true
	}

	if ttl := spec.TTLSecondsAfterCreation; ttl != nil && *ttl < 1 {
		errs = append(errs, field.Invalid(fldPath.Child("ttlSecondsAfterCreation"), *ttl, "must be at least 1"))
	}
	return errs
}

func validateStatus(account *authentication.ManagedServiceAccount) field.ErrorList {
	status, fldPath := &account.Status, field.NewPath("status")
	errs := metav1validation.ValidateConditions(status.Conditions, fldPath.Child("conditions"))
	// Consumers send what is in this Secret to the managed cluster, whose agent
	// writes the status. It must not be able to ask for any other Secret.
	if ref := status.TokenSecretRef; ref != nil && ref.Name != account.Name {
		errs = append(errs, field.Invalid(fldPath.Child("tokenSecretRef", "name"), ref.Name, "must be the name of the ManagedServiceAccount"))
	}
	if ref := status.ServiceAccountRef; ref != nil {
		path := fldPath.Child("serviceAccountRef")
		for _, problem := range apivalidation.ValidateNamespaceName(ref.Namespace, false) {
			errs = append(errs, field.Invalid(path.Child("namespace"), ref.Namespace, problem))
		}
		if ref.Name != account.Name {
			errs = append(errs, field.Invalid(path.Child("name"), ref.Name, "must be the name of the ManagedServiceAccount"))
		}
	}
	if clusters := status.Clusters; clusters != nil {
		path := fldPath.Child("clusters")
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(clusters.Total), path.Child("total"))...)
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(clusters.Ready), path.Child("ready"))...)
		taken := map[string]bool{}
		for i, failure := range clusters.Failing {
			path := path.Child("failing").Index(i).Child("name")
			switch {
			case failure.Name == "":
				errs = append(errs, field.Required(path, ""))
			case taken[failure.Name]:
				errs = append(errs, field.Duplicate(path, failure.Name))
			}
			taken[failure.Name] = true
		}
	}
	return errs
}
