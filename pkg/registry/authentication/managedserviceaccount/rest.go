package managedserviceaccount

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Placement knows what namespaces mean to accounts.
type Placement interface {
	// CheckNamespace tells why a new account in a namespace would be on no managed
	// cluster; nil if it would.
	CheckNamespace(ctx context.Context, namespace string) (*field.Error, error)
}

// REST serves ManagedServiceAccounts. A new one must be in the namespace of a
// managed cluster or of a cluster set (seed 002), which is checked after
// admission, where the object is complete.
type REST struct {
	*definition.REST
	placement Placement
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return r.REST.Create(ctx, obj, r.admitCreate(admit), options)
}

// Update implements rest.Updater; server-side apply creates this way.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.REST.Update(ctx, name, objInfo, r.admitCreate(admitCreate), admitUpdate, forceAllowCreate, options)
}

func (r *REST) admitCreate(admit rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if admit != nil {
			if err := admit(ctx, obj); err != nil {
				return err
			}
		}
		account := obj.(*authentication.ManagedServiceAccount)
		refused, err := r.placement.CheckNamespace(ctx, account.Namespace)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("looking up what namespace %q is bound to: %w", account.Namespace, err))
		}
		if refused != nil {
			return apierrors.NewInvalid(authentication.SchemeGroupVersion.WithKind("ManagedServiceAccount").GroupKind(), account.Name, field.ErrorList{refused})
		}
		return nil
	}
}
