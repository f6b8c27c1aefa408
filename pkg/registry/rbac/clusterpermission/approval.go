package clusterpermission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const asRead = "an approval applies to one generation; send the ClusterPermission as it was read"

// approvalREST serves clusterpermissions/approval: a PUT of an unchanged ClusterPermission
// approves exactly the generation that the caller has read. It does not support PATCH, which would
// approve a spec that the approver has not seen.
type approvalREST struct {
	definition.Base
	store    *definition.REST
	grants   *grants
	delivery delivery
}

var _ rest.Updater = &approvalREST{}

// Update implements rest.Updater.
func (r *approvalREST) Update(ctx context.Context, name string, requested rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, admit rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	approved := false
	updated, err := r.store.Rewrite(ctx, name, requested, func(ctx context.Context, seen, stored runtime.Object) (runtime.Object, error) {
		approval, err := r.approve(ctx, seen.(*rbac.ClusterPermission), stored.(*rbac.ClusterPermission))
		if approved = err == nil && approval != stored; err != nil {
			return nil, err
		}
		return approval, nil
	}, admit, options)
	if err == nil && approved && !dryrun.IsDryRun(options.DryRun) {
		r.delivery.deliver(ctx, updated, nil)
	}
	return updated, false, err
}

// approve returns the stored object with an approval of the generation that the caller has seen.
func (r *approvalREST) approve(ctx context.Context, seen, stored *rbac.ClusterPermission) (runtime.Object, error) {
	var missing field.ErrorList
	if seen.UID == "" {
		missing = append(missing, field.Required(field.NewPath("metadata", "uid"), asRead))
	}
	if seen.Generation == 0 {
		missing = append(missing, field.Required(field.NewPath("metadata", "generation"), asRead))
	}
	if len(missing) > 0 {
		return nil, apierrors.NewInvalid(kind, stored.Name, missing)
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(rbacv1alpha1.Resource("clusterpermissions"), stored.Name, fmt.Errorf(format, args...))
	}
	switch {
	case seen.UID != stored.UID:
		return nil, conflict("the ClusterPermission was deleted and created again after it was read")
	case seen.Generation != stored.Generation:
		return nil, conflict("the request approves generation %d, but the current generation is %d; read the ClusterPermission again", seen.Generation, stored.Generation)
	case !equality.Semantic.DeepEqual(seen.Spec, stored.Spec):
		return nil, conflict("the spec in the request differs from the stored spec; an approval cannot change it")
	case !isPending(stored):
		return stored, nil
	}
	if err := r.grants.checkReads(ctx, stored, stored); err != nil {
		return nil, err
	}
	refusal, err := r.grants.refusal(ctx, stored, stored)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, refusal.Forbidden()
	}
	approved := stored.DeepCopy()
	approved.Status.Approval = &rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{
		Generation: stored.Generation, ApprovedBy: definition.Caller(ctx), ApprovedAt: metav1.Now(),
	}}
	return approved, nil
}
