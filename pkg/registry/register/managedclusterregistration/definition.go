// Package managedclusterregistration serves ManagedClusterRegistrations. Only the server writes
// them. Users accept and deny clusters through the subresource accept, and claim ARNs through the
// subresource irsa.
package managedclusterregistration

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/register/validation"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const (
	resource = "managedclusters"
	// identities is the resource in storage of reserved identities. It is not served.
	identities = "identities"
)

// Options configure ManagedClusterRegistrations.
type Options struct {
	// Records receive the stores.
	Records *Records
	// Registrar handles requests for the subresources. Options without it describe the row only.
	Registrar *registration.Registrar
}

// Definition returns the row of ManagedClusterRegistrations.
func Definition(o Options) definition.Resource {
	if o.Records == nil {
		o.Records = &Records{}
	}
	return definition.Resource{
		Name: resource, Singular: "managedclusterregistration", Kind: "ManagedClusterRegistration",
		// The category ocm would list every cluster twice.
		ShortNames:    []string{"mclr"},
		ClusterScoped: true,
		ServerOwned:   true,
		Versions:      []schema.GroupVersion{registerv1alpha1.SchemeGroupVersion},
		Strategy: &definition.Strategy[*registerv1alpha1.ManagedClusterRegistration]{
			Rules: validation.ManagedClusterRegistration,
			// A request to join may have created it.
			Replaceable: registration.Replaceable,
		},
		Columns: definition.Columns[*registerv1alpha1.ManagedClusterRegistration]{
			{Name: "Driver", Description: "How the cluster authenticates to the hub.", Value: func(r *registerv1alpha1.ManagedClusterRegistration) any {
				return string(r.Spec.Driver)
			}},
			{Name: "Access", Description: "Whether the cluster has access to the hub.", Condition: registerv1alpha1.RegistrationAccessGranted},
			{Name: "Identity", Description: "Whether the identity that the driver needs exists.", Condition: registerv1alpha1.RegistrationIdentityReady},
			{Name: "ARN", Description: "ARN of the EKS cluster.", Wide: true, Value: func(r *registerv1alpha1.ManagedClusterRegistration) any {
				if r.Spec.IRSA == nil {
					return "<none>"
				}
				return r.Spec.IRSA.ManagedClusterARN
			}},
		},
		Stores: map[string]func(*definition.REST){
			resource:   o.Records.registrations.Set,
			identities: o.Records.identities.Set,
		},
		Subresources: map[string]func(*definition.REST) rest.Storage{
			"accept": func(*definition.REST) rest.Storage {
				return &acceptREST{definition.Base{Object: &registerv1alpha1.ManagedClusterAcceptance{}}, o.Registrar}
			},
			"irsa": func(*definition.REST) rest.Storage {
				return &irsaREST{definition.Base{Object: &registerv1alpha1.ManagedClusterIRSA{}}, o.Registrar}
			},
		},
	}
}
