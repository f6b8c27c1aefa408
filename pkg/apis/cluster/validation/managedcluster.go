// Package validation validates the objects of the group cluster.open-cluster-management.io.
package validation

import (
	"maps"
	"net/url"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

const maxTaintValueLength = 1024

// ManagedCluster validates ManagedClusters.
var ManagedCluster = validate.Rules[*cluster.ManagedCluster]{
	// The namespace of the cluster on the hub has the same name.
	ClusterScoped: true, Name: apivalidation.ValidateNamespaceName, Spec: validateSpec, Status: validateStatus,
}

func validateSpec(mc *cluster.ManagedCluster) field.ErrorList {
	spec, fldPath := &mc.Spec, field.NewPath("spec")
	var errs field.ErrorList
	for i := range spec.ManagedClusterClientConfigs {
		errs = append(errs, validateClientConfig(&spec.ManagedClusterClientConfigs[i], fldPath.Child("managedClusterClientConfigs").Index(i))...)
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(ptr.Deref(spec.LeaseDurationSeconds, 0)), fldPath.Child("leaseDurationSeconds"))...)

	seen := map[string]bool{}
	for i := range spec.Taints {
		taint, path := &spec.Taints[i], fldPath.Child("taints").Index(i)
		taintErrs := validateTaint(taint, path)
		if len(taintErrs) == 0 {
			taintErrs = validate.Unique(taint.Key+":"+string(taint.Effect), seen, path)
		}
		errs = append(errs, taintErrs...)
	}
	return errs
}

func validateClientConfig(config *clusterv1.ClientConfig, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	urlPath := fldPath.Child("url")
	if config.URL == "" {
		errs = append(errs, field.Required(urlPath, ""))
	} else if u, err := url.Parse(config.URL); err != nil {
		errs = append(errs, field.Invalid(urlPath, config.URL, "must be a valid URL"))
	} else if u.Scheme != "https" || u.Hostname() == "" {
		errs = append(errs, field.Invalid(urlPath, config.URL, "must have the form https://<host>[:<port>][/<path>]"))
	}
	if len(config.CABundle) > 0 {
		if _, err := certutil.ParseCertsPEM(config.CABundle); err != nil {
			errs = append(errs, field.Invalid(fldPath.Child("caBundle"), "", "must contain PEM-encoded certificates: "+err.Error()))
		}
	}
	return errs
}

func validateTaint(taint *clusterv1.Taint, fldPath *field.Path) field.ErrorList {
	errs := validate.Required(taint.Key, fldPath.Child("key"))
	if taint.Key != "" {
		errs = metav1validation.ValidateLabelName(taint.Key, fldPath.Child("key"))
	}
	if len(taint.Value) > maxTaintValueLength {
		errs = append(errs, field.TooLong(fldPath.Child("value"), "", maxTaintValueLength))
	}
	return append(errs, validate.Supported(taint.Effect, fldPath.Child("effect"),
		clusterv1.TaintEffectNoSelect, clusterv1.TaintEffectNoSelectIfNew, clusterv1.TaintEffectPreferNoSelect)...)
}

func validateStatus(mc *cluster.ManagedCluster) field.ErrorList {
	status, fldPath := &mc.Status, field.NewPath("status")
	errs := validateResources(status.Capacity, fldPath.Child("capacity"))
	errs = append(errs, validateResources(status.Allocatable, fldPath.Child("allocatable"))...)
	seen := map[string]bool{}
	for i, claim := range status.ClusterClaims {
		errs = append(errs, validate.Unique(claim.Name, seen, fldPath.Child("clusterClaims").Index(i).Child("name"))...)
	}
	for i, namespace := range status.ManagedNamespaces {
		path := fldPath.Child("managedNamespaces").Index(i).Child("conditions")
		if count := len(namespace.Conditions); count > clusterv1.MaxManagedNamespaceConditions {
			errs = append(errs, field.TooMany(path, count, clusterv1.MaxManagedNamespaceConditions))
			continue
		}
		errs = append(errs, metav1validation.ValidateConditions(namespace.Conditions, path)...)
	}
	return errs
}

func validateResources(resources clusterv1.ResourceList, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	// Sort the names so that the message for an object is always the same.
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		path := fldPath.Key(string(name))
		if name == "" {
			errs = append(errs, field.Required(path, "the name of a resource must not be empty"))
		}
		if quantity := resources[name]; quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(path, quantity.String(), apivalidation.IsNegativeErrorMsg))
		}
	}
	return errs
}
