package managedcluster

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

// Registrar does what the subresources are for.
type Registrar interface {
	// Acceptance returns what is decided about a cluster.
	Acceptance(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterAcceptance, error)
	// Decide writes a decision, and returns it with what has come of it.
	Decide(ctx context.Context, decision registration.Decision) (*registerv1alpha1.ManagedClusterAcceptance, error)

	// Claim claims an ARN, Claimed returns the claim, and Withdraw ends it, if admit lets it.
	Claim(ctx context.Context, cluster string, given *registerv1alpha1.ManagedClusterIRSA, dryRun bool) (*registerv1alpha1.ManagedClusterIRSA, error)
	Claimed(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterIRSA, error)
	Withdraw(ctx context.Context, cluster string, admit func(*registerv1alpha1.ManagedClusterIRSA) error, dryRun bool) (*registerv1alpha1.ManagedClusterIRSA, error)
}

var errUnserved = apierrors.NewServiceUnavailable("this server registers no clusters")

// acceptREST serves managedclusters/accept: a PUT decides about a cluster. It can
// only be put, since a patch would need something to be patched.
type acceptREST struct {
	registrar Registrar
}

var _ rest.Updater = &acceptREST{}

// New implements rest.Storage.
func (r *acceptREST) New() runtime.Object { return &registerv1alpha1.ManagedClusterAcceptance{} }

// Destroy implements rest.Storage. The main storage owns what there is to destroy.
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
		return nil, false, apierrors.NewBadRequest("a ManagedClusterAcceptance is put here")
	}
	conflict := func(why string) error {
		return apierrors.NewConflict(registerv1alpha1.Resource(resource), name, errors.New(why))
	}
	switch {
	case acceptance.Name != "" && acceptance.Name != name:
		return nil, false, apierrors.NewBadRequest("the name of the acceptance must be that of the cluster")
	case acceptance.UID != "" && acceptance.UID != current.UID:
		return nil, false, conflict("the ManagedCluster was deleted and made again")
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
