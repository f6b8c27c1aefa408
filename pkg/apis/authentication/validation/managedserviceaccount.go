// Package validation validates the objects of the group authentication.open-cluster-management.io.
package validation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

// Validator validates ManagedServiceAccounts.
type Validator struct {
	// MaximumValidity bounds the lifetime of tokens; 0 means no bound.
	MaximumValidity time.Duration
	// ReservedNames are names that new accounts must not have. A name that ends with "*"
	// reserves every name with that prefix.
	ReservedNames []string
}

// DefaultReservedNames returns "default" and the names of the ServiceAccounts that upstream add-ons
// install in the namespace that agents use for accounts by default.
func DefaultReservedNames() []string {
	return []string{
		"default", "klusterlet-*", "managed-serviceaccount", "cluster-proxy", "application-manager", "search-collector",
		"config-policy-controller-sa", "governance-policy-framework-sa", "cert-policy-controller-sa", "iam-policy-controller-sa",
		"hypershift-addon-*", "volsync-addon-*",
	}
}

func (v Validator) reserved(name string) bool {
	return slices.ContainsFunc(v.ReservedNames, func(reserved string) bool {
		prefix, isPrefix := strings.CutSuffix(reserved, "*")
		return name == reserved || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// Rules returns the rules of ManagedServiceAccounts.
func (v Validator) Rules() validate.Rules[*authentication.ManagedServiceAccount] {
	return validate.Rules[*authentication.ManagedServiceAccount]{
		// The ServiceAccount and the Secret have the same name.
		Name: apivalidation.ValidateServiceAccountName, Create: v.validateName, Spec: v.validateSpec, Status: validateStatus,
	}
}

func (v Validator) validateName(account *authentication.ManagedServiceAccount) field.ErrorList {
	if !v.reserved(account.Name) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "name"), fmt.Sprintf(
		"%q is reserved by --managed-serviceaccount-reserved-names: the token of the account would also have the permissions of the add-on that owns this ServiceAccount; choose another name", account.Name))}
}

func (v Validator) validateSpec(account *authentication.ManagedServiceAccount) field.ErrorList {
	spec, fldPath := &account.Spec, field.NewPath("spec")
	var errs field.ErrorList

	validityPath := fldPath.Child("rotation", "validity")
	validity, err := authenticationv1beta1.ParseValidity(spec.Rotation.Validity)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(validityPath, spec.Rotation.Validity, err.Error()))
	case v.MaximumValidity > 0 && validity > v.MaximumValidity:
		errs = append(errs, field.Invalid(validityPath, spec.Rotation.Validity,
			fmt.Sprintf("must be less than or equal to %s, the maximum of this hub", v.MaximumValidity)))
	}

	seen := map[string]bool{}
	for i, audience := range spec.Audiences {
		errs = append(errs, validate.Unique(audience, seen, fldPath.Child("audiences").Index(i))...)
	}

	if ttl := spec.TTLSecondsAfterCreation; ttl != nil && *ttl < 1 {
		errs = append(errs, field.Invalid(fldPath.Child("ttlSecondsAfterCreation"), *ttl, "must be greater than or equal to 1"))
	}
	return errs
}

func validateStatus(account *authentication.ManagedServiceAccount) field.ErrorList {
	status, fldPath := &account.Status, field.NewPath("status")
	var errs field.ErrorList
	// Consumers send the content of this Secret to the managed cluster. Its agent writes the
	// status, and must not be able to name any other Secret.
	if ref := status.TokenSecretRef; ref != nil && ref.Name != account.Name {
		errs = append(errs, field.Invalid(fldPath.Child("tokenSecretRef", "name"), ref.Name, "must be equal to metadata.name"))
	}
	if ref := status.ServiceAccountRef; ref != nil {
		path := fldPath.Child("serviceAccountRef")
		errs = append(errs, validate.Name(ref.Namespace, path.Child("namespace"), apivalidation.ValidateNamespaceName)...)
		if ref.Name != account.Name {
			errs = append(errs, field.Invalid(path.Child("name"), ref.Name, "must be equal to metadata.name"))
		}
	}
	if clusters := status.Clusters; clusters != nil {
		path := fldPath.Child("clusters")
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(clusters.Total), path.Child("total"))...)
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(clusters.Ready), path.Child("ready"))...)
		seen := map[string]bool{}
		for i, failure := range clusters.Failing {
			errs = append(errs, validate.Unique(failure.Name, seen, path.Child("failing").Index(i).Child("name"))...)
		}
	}
	return errs
}
