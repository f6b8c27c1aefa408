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
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// acceptREST serves managedclusters/accept: a PUT accepts or denies a cluster.
type acceptREST struct {
	definition.Base
	registrar *registration.Registrar
}

var _ rest.Updater = &acceptREST{}

// Update implements rest.Updater.
func (r *acceptREST) Update(ctx context.Context, name string, given rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, admit rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	current, err := r.registrar.Acceptance(ctx, name)
	if err != nil {
		return nil, false, err
	}
	updated, err := given.UpdatedObject(ctx, current)
	if err != nil {
		return nil, false, err
	}
	acceptance := updated.(*registerv1alpha1.ManagedClusterAcceptance)
	conflict := func(why string) error {
		return apierrors.NewConflict(registerv1alpha1.Resource(resource), name, errors.New(why))
	}
	switch {
	case acceptance.UID != "" && acceptance.UID != current.UID:
		return nil, false, conflict("the ManagedCluster was deleted and created again")
	case acceptance.ResourceVersion != "" && acceptance.ResourceVersion != current.ResourceVersion:
		return nil, false, conflict("the ManagedCluster has changed since it was read")
	}
	if errs := validation.ValidateManagedClusterAcceptance(acceptance); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(registerv1alpha1.SchemeGroupVersion.WithKind("ManagedClusterAcceptance").GroupKind(), name, errs)
	}
	if err := admit(ctx, acceptance.DeepCopy(), current.DeepCopy()); err != nil {
		return nil, false, err
	}
	decided, err := object(r.registrar.Decide(ctx, registration.Decision{
		Cluster: name, UID: current.UID, ResourceVersion: acceptance.ResourceVersion,
		Acceptance: clusterv1.Acceptance{
			Accepted: acceptance.Spec.Accepted, Reason: acceptance.Spec.Reason, Requesters: acceptance.Spec.Requesters,
		},
		DryRun: dryrun.IsDryRun(options.DryRun),
	}))
	return decided, false, err
}
