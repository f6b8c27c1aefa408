// Package validation checks the types of the group cluster.open-cluster-management.io.
package validation

import (
	"maps"
	"net/url"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

const maxTaintValueLength = 1024

// ValidateManagedCluster checks a ManagedCluster that is about to be created.
func ValidateManagedCluster(mc *cluster.ManagedCluster) field.ErrorList {
	// The hub namespace of the cluster has the same name, so it must be a name for a namespace.
	errs := apivalidation.ValidateObjectMeta(&mc.ObjectMeta, false, apivalidation.ValidateNamespaceName, field.NewPath("metadata"))
	return append(errs, validateSpec(&mc.Spec)...)
}

// ValidateManagedClusterUpdate checks an update of a ManagedCluster. Bad parts
// of the spec which the update does not touch are no reason to refuse it. The
// metadata of updates is left to the generic registry, which checks it for
// every kind.
func ValidateManagedClusterUpdate(mc, old *cluster.ManagedCluster) field.ErrorList {
	if apiequality.Semantic.DeepEqual(mc.Spec, old.Spec) {
		return nil
	}
	errs := validateSpec(&mc.Spec)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, validateSpec(&old.Spec), mc, old)
}

// ValidateManagedClusterStatusUpdate checks an update of the status of a ManagedCluster.
func ValidateManagedClusterStatusUpdate(mc, old *cluster.ManagedCluster) field.ErrorList {
	errs := validateStatus(&mc.Status)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, validateStatus(&old.Status), mc, old)
}

func withoutOldErrors(errs, oldErrs field.ErrorList, mc, old *cluster.ManagedCluster) field.ErrorList {
	var versioned, versionedOld clusterv1.ManagedCluster
	if clusterv1.Convert_cluster_ManagedCluster_To_v1_ManagedCluster(mc, &versioned, nil) != nil ||
		clusterv1.Convert_cluster_ManagedCluster_To_v1_ManagedCluster(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, oldErrs, &versioned, &versionedOld)
}

func validateSpec(spec *cluster.ManagedClusterSpec) field.ErrorList {
	fldPath := field.NewPath("spec")
	var errs field.ErrorList
	for i := range spec.ManagedClusterClientConfigs {
		errs = append(errs, validateClientConfig(&spec.ManagedClusterClientConfigs[i], fldPath.Child("managedClusterClientConfigs").Index(i))...)
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(ptr.Deref(spec.LeaseDurationSeconds, 0)), fldPath.Child("leaseDurationSeconds"))...)

	type taintKey struct {
		key    string
		effect cluster.TaintEffect
	}
	taken := map[taintKey]bool{}
	for i := range spec.Taints {
		taint, path := &spec.Taints[i], fldPath.Child("taints").Index(i)
		taintErrs := validateTaint(taint, path)
		errs = append(errs, taintErrs...)
		if len(taintErrs) > 0 {
			continue
		}
		key := taintKey{taint.Key, taint.Effect}
		if taken[key] {
			errs = append(errs, field.Duplicate(path, taint.Key+":"+string(taint.Effect)))
		}
		taken[key] = true
	}
	return errs
}

func validateClientConfig(config *cluster.ClientConfig, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	urlPath := fldPath.Child("url")
	if config.URL == "" {
		errs = append(errs, field.Required(urlPath, ""))
	} else if u, err := url.Parse(config.URL); err != nil {
		errs = append(errs, field.Invalid(urlPath, config.URL, "is no URL"))
	} else if u.Scheme != "https" || u.Hostname() == "" {
		errs = append(errs, field.Invalid(urlPath, config.URL, "must be https://<host>[:<port>][/<path>]"))
	}
	if len(config.CABundle) > 0 {
		if _, err := certutil.ParseCertsPEM(config.CABundle); err != nil {
			errs = append(errs, field.Invalid(fldPath.Child("caBundle"), "", "must be certificates in PEM: "+err.Error()))
		}
	}
	return errs
}

func validateTaint(taint *cluster.Taint, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if taint.Key == "" {
		errs = append(errs, field.Required(fldPath.Child("key"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(taint.Key, fldPath.Child("key"))...)
	}
	if len(taint.Value) > maxTaintValueLength {
		errs = append(errs, field.TooLong(fldPath.Child("value"), "", maxTaintValueLength))
	}
	effects := []cluster.TaintEffect{cluster.TaintEffectNoSelect, cluster.TaintEffectNoSelectIfNew, cluster.TaintEffectPreferNoSelect}
	switch {
	case taint.Effect == "":
		errs = append(errs, field.Required(fldPath.Child("effect"), ""))
	case !slices.Contains(effects, taint.Effect):
		errs = append(errs, field.NotSupported(fldPath.Child("effect"), taint.Effect, effects))
	}
	return errs
}

func validateStatus(status *cluster.ManagedClusterStatus) field.ErrorList {
	fldPath := field.NewPath("status")
	errs := metav1validation.ValidateConditions(status.Conditions, fldPath.Child("conditions"))
	errs = append(errs, validateResources(status.Capacity, fldPath.Child("capacity"))...)
	errs = append(errs, validateResources(status.Allocatable, fldPath.Child("allocatable"))...)
	taken := map[string]bool{}
	for i, claim := range status.ClusterClaims {
		path := fldPath.Child("clusterClaims").Index(i).Child("name")
		switch {
		case claim.Name == "":
			errs = append(errs, field.Required(path, ""))
		case taken[claim.Name]:
			errs = append(errs, field.Duplicate(path, claim.Name))
		}
		taken[claim.Name] = true
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

func validateResources(resources cluster.ResourceList, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	// In order, so that the same object always gets the same message.
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		path := fldPath.Key(string(name))
		if name == "" {
			errs = append(errs, field.Required(path, "a resource needs a name"))
		}
		if quantity := resources[name]; quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(path, quantity.String(), "may not be negative"))
		}
	}
	return errs
}
