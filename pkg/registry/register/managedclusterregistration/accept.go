package managedclusterregistration

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/register/validation"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// Registrar handles acceptance and the claims of EKS clusters.
type Registrar interface {
	// Acceptance returns the decision about a cluster.
	Acceptance(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterAcceptance, error)
	// Decide stores a decision, and returns it with its effects.
	Decide(ctx context.Context, decision registration.Decision) (*registerv1alpha1.ManagedClusterAcceptance, error)

	// Claim claims an ARN, Claimed returns the claim, and Withdraw ends it if admit returns no error.
	Claim(ctx context.Context, cluster string, given *registerv1alpha1.ManagedClusterIRSA, dryRun bool) (*registerv1alpha1.ManagedClusterIRSA, error)
	Claimed(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterIRSA, error)
	Withdraw(ctx context.Context, cluster string, admit func(*registerv1alpha1.ManagedClusterIRSA) error, dryRun bool) (*registerv1alpha1.ManagedClusterIRSA, error)
}

var errUnserved = apierrors.NewServiceUnavailable("this server does not register clusters")

// acceptREST serves managedclusters/accept: a PUT accepts or denies a cluster.
type acceptREST struct {
	registrar Registrar
}

var _ rest.Updater = &acceptREST{}

// New implements rest.Storage.
func (r *acceptREST) New() runtime.Object { return &registerv1alpha1.ManagedClusterAcceptance{} }

// Destroy implements rest.Storage. The main storage destroys the shared store.
func (r *acceptREST) Destroy() {}

// Update implements rest.Updater.
func (r *acceptREST) Update(ctx context.Context, name string, given rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, admit rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if r.registrar == nil {
		return nil, false, errUnserved
	}
	current, err := r.registrar.Acceptance(ctx, name)
	if err != nil {
		return nil, false, err
	}
	updated, err := given.UpdatedObject(ctx, current)
	if err != nil {
		return nil, false, err
	}
	acceptance, ok := updated.(*registerv1alpha1.ManagedClusterAcceptance)
	if !ok {
		return nil, false, apierrors.NewBadRequest("the body must be a ManagedClusterAcceptance")
	}
	conflict := func(why string) error {
		return apierrors.NewConflict(registerv1alpha1.Resource(resource), name, errors.New(why))
	}
	switch {
	case acceptance.Name != "" && acceptance.Name != name:
		return nil, false, apierrors.NewBadRequest("metadata.name must be the name of the cluster")
	case acceptance.UID != "" && acceptance.UID != current.UID:
		return nil, false, conflict("the ManagedCluster was deleted and created again")
	case acceptance.ResourceVersion != "" && acceptance.ResourceVersion != current.ResourceVersion:
		return nil, false, conflict("the ManagedCluster has changed since it was read")
	}
	if errs := validation.ValidateManagedClusterAcceptance(acceptance); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(registerv1alpha1.SchemeGroupVersion.WithKind("ManagedClusterAcceptance").GroupKind(), name, errs)
	}
	if admit != nil {
		if err := admit(ctx, acceptance.DeepCopy(), current.DeepCopy()); err != nil {
			return nil, false, err
		}
	}
	out, err := r.registrar.Decide(ctx, registration.Decision{
		Cluster: name, UID: current.UID, ResourceVersion: acceptance.ResourceVersion,
		Acceptance: clusterv1.Acceptance{
			Accepted: acceptance.Spec.Accepted, Reason: acceptance.Spec.Reason, Requesters: acceptance.Spec.Requesters,
		},
		DryRun: dryrun.IsDryRun(options.DryRun),
	})
	if err != nil {
		return nil, false, err
	}
	return out, false, nil
}
