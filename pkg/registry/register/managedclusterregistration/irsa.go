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
)

// irsaREST serves managedclusters/irsa: the ARN of the EKS cluster that a cluster claims to be.
type irsaREST struct {
	registrar Registrar
}

var (
	_ rest.Getter          = &irsaREST{}
	_ rest.NamedCreater    = &irsaREST{}
	_ rest.GracefulDeleter = &irsaREST{}

	_ rest.SubresourceObjectMetaPreserver = &irsaREST{}
)

// New implements rest.Storage.
func (r *irsaREST) New() runtime.Object { return &registerv1alpha1.ManagedClusterIRSA{} }

// Destroy implements rest.Storage. The main storage destroys the shared store.
func (r *irsaREST) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements
// rest.SubresourceObjectMetaPreserver: the UID of the request is compared.
func (r *irsaREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Get implements rest.Getter.
func (r *irsaREST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if r.registrar == nil {
		return nil, errUnserved
	}
	return object(r.registrar.Claimed(ctx, name))
}

// Create implements rest.NamedCreater.
func (r *irsaREST) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if r.registrar == nil {
		return nil, errUnserved
	}
	given, ok := obj.(*registerv1alpha1.ManagedClusterIRSA)
	if !ok {
		return nil, apierrors.NewBadRequest("the body must be a ManagedClusterIRSA")
	}
	if given.Name != "" && given.Name != name {
		return nil, apierrors.NewBadRequest("metadata.name must be the name of the cluster")
	}
	if errs := validation.ValidateManagedClusterIRSA(given); len(errs) > 0 {
		return nil, apierrors.NewInvalid(registerv1alpha1.SchemeGroupVersion.WithKind("ManagedClusterIRSA").GroupKind(), name, errs)
	}
	if admit != nil {
		if err := admit(ctx, given.DeepCopy()); err != nil {
			return nil, err
		}
	}
	return object(r.registrar.Claim(ctx, name, given, dryrun.IsDryRun(options.DryRun)))
}

// Delete implements rest.GracefulDeleter. The claim exists until all resources that were created
// for it are removed.
func (r *irsaREST) Delete(ctx context.Context, name string, admit rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if r.registrar == nil {
		return nil, false, errUnserved
	}
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	withdrawn, err := object(r.registrar.Withdraw(ctx, name, func(claim *registerv1alpha1.ManagedClusterIRSA) error {
		if p := options.Preconditions; p != nil {
			if p.UID != nil && *p.UID != claim.UID || p.ResourceVersion != nil && *p.ResourceVersion != claim.ResourceVersion {
				return apierrors.NewConflict(registerv1alpha1.Resource(resource), name, errors.New("the claim has changed since it was read"))
			}
		}
		if admit == nil {
			return nil
		}
		return admit(ctx, claim.DeepCopy())
	}, dryrun.IsDryRun(options.DryRun)))
	return withdrawn, false, err
}

// object returns a claim as an object, or a nil interface with an error.
func object(claim *registerv1alpha1.ManagedClusterIRSA, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return claim, nil
}
