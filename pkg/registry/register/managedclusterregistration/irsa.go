package managedclusterregistration

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/register/validation"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// irsaREST serves managedclusters/irsa: the ARN of the EKS cluster that a cluster claims to be.
type irsaREST struct {
	definition.Base
	registrar *registration.Registrar
}

var (
	_ rest.Getter          = &irsaREST{}
	_ rest.NamedCreater    = &irsaREST{}
	_ rest.GracefulDeleter = &irsaREST{}

	_ rest.SubresourceObjectMetaPreserver = &irsaREST{}
)

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements
// rest.SubresourceObjectMetaPreserver: the UID of the request is compared.
func (r *irsaREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Get implements rest.Getter.
func (r *irsaREST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return object(r.registrar.Claimed(ctx, name))
}

// Create implements rest.NamedCreater.
func (r *irsaREST) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	given := obj.(*registerv1alpha1.ManagedClusterIRSA)
	if given.Name != "" && given.Name != name {
		return nil, apierrors.NewBadRequest("metadata.name must be the name of the cluster")
	}
	if errs := validation.ValidateManagedClusterIRSA(given); len(errs) > 0 {
		return nil, apierrors.NewInvalid(registerv1alpha1.SchemeGroupVersion.WithKind("ManagedClusterIRSA").GroupKind(), name, errs)
	}
	if err := admit(ctx, given.DeepCopy()); err != nil {
		return nil, err
	}
	return object(r.registrar.Claim(ctx, name, given, dryrun.IsDryRun(options.DryRun)))
}

// Delete implements rest.GracefulDeleter. The claim exists until all resources that were created
// for it are removed.
func (r *irsaREST) Delete(ctx context.Context, name string, admit rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	withdrawn, err := object(r.registrar.Withdraw(ctx, name, func(claim *registerv1alpha1.ManagedClusterIRSA) error {
		if p := options.Preconditions; p != nil {
			if p.UID != nil && *p.UID != claim.UID || p.ResourceVersion != nil && *p.ResourceVersion != claim.ResourceVersion {
				return apierrors.NewConflict(registerv1alpha1.Resource(resource), name, errors.New("the claim has changed since it was read"))
			}
		}
		return admit(ctx, claim.DeepCopy())
	}, dryrun.IsDryRun(options.DryRun)))
	return withdrawn, false, err
}

// object returns an object, or a nil interface with an error.
func object[T runtime.Object](obj T, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return obj, nil
}
