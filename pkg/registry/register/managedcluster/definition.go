// Package managedcluster defines how ManagedClusterRegistrations are served: everyone
// who may can read them, and only the server writes them. What others have to say
// about the registration of a cluster goes by its subresources accept and irsa.
package managedcluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/register/validation"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const (
	resource = "managedclusters"
	// identities is the resource, in storage alone, of what is reserved for clusters.
	identities = "identities"
)

// Options are what ManagedClusterRegistrations need beside their storage.
type Options struct {
	// Records are given the stores.
	Records *Records
	// Registrar does what the subresources are for.
	Registrar Registrar
}

// Definition is the row of ManagedClusterRegistrations.
func Definition(o Options) definition.Resource {
	if o.Records == nil {
		o.Records = NewRecords(nil)
	}
	return definition.Resource{
		Name: resource, Singular: "managedclusterregistration", Kind: "ManagedClusterRegistration",
		// Not of category ocm: it would list every cluster twice.
		ShortNames:    []string{"mclr"},
		ClusterScoped: true,
		ServerOwned:   true,
		Versions:      []schema.GroupVersion{registerv1alpha1.SchemeGroupVersion},
		New:           func() runtime.Object { return &registerv1alpha1.ManagedClusterRegistration{} },
		NewList:       func() runtime.Object { return &registerv1alpha1.ManagedClusterRegistrationList{} },
		Strategy: &definition.Strategy[*registerv1alpha1.ManagedClusterRegistration]{
			Spec:     func(r *registerv1alpha1.ManagedClusterRegistration) any { return &r.Spec },
			Status:   func(r *registerv1alpha1.ManagedClusterRegistration) any { return &r.Status },
			Validate: validation.ValidateManagedClusterRegistration,
		},
		Columns: definition.Columns[*registerv1alpha1.ManagedClusterRegistration]{
			{Name: "Driver", Description: "How the cluster shows the hub who it is.", Value: func(r *registerv1alpha1.ManagedClusterRegistration) any {
				return string(r.Spec.Driver)
			}},
			definition.ConditionColumn("Access", "Whether the cluster has its access to the hub.", registerv1alpha1.RegistrationAccessGranted, conditions),
			definition.ConditionColumn("Identity", "Whether what the driver needs is there.", registerv1alpha1.RegistrationIdentityReady, conditions),
			{Name: "ARN", Description: "The EKS cluster that it is.", Wide: true, Value: func(r *registerv1alpha1.ManagedClusterRegistration) any {
				if r.Spec.IRSA == nil {
					return "<none>"
				}
				return r.Spec.IRSA.ManagedClusterARN
			}},
		},
		Stores: map[string]func(*definition.REST){
			resource:   func(store *definition.REST) { o.Records.registrations.Store(store) },
			identities: func(store *definition.REST) { o.Records.identities.Store(store) },
		},
		Subresources: map[string]func(*definition.REST) rest.Storage{
			"accept": func(*definition.REST) rest.Storage { return &acceptREST{o.Registrar} },
			"irsa":   func(*definition.REST) rest.Storage { return &irsaREST{o.Registrar} },
		},
	}
}

func conditions(r *registerv1alpha1.ManagedClusterRegistration) []metav1.Condition {
	return r.Status.Conditions
}
