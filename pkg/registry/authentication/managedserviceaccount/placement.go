package managedserviceaccount

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Placement knows what namespaces mean to accounts.
type Placement interface {
	// CheckNamespace tells why a new account in a namespace would be on no managed
	// cluster; nil if it would.
	CheckNamespace(ctx context.Context, namespace string) (*field.Error, error)
}

// placed refuses accounts outside of the namespaces of managed clusters and of
// cluster sets (seed 002). What a namespace becomes later is said in a condition.
func placed(placement Placement) definition.Guard[*authentication.ManagedServiceAccount] {
	return definition.Guard[*authentication.ManagedServiceAccount]{
		Create: func(ctx context.Context, account *authentication.ManagedServiceAccount) error {
			refused, err := placement.CheckNamespace(ctx, account.Namespace)
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("looking up what namespace %q is bound to: %w", account.Namespace, err))
			}
			if refused != nil {
				return apierrors.NewInvalid(authentication.SchemeGroupVersion.WithKind("ManagedServiceAccount").GroupKind(), account.Name, field.ErrorList{refused})
			}
			return nil
		},
	}
}
