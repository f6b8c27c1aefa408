package managedserviceaccount

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Placement checks whether a namespace has managed clusters.
type Placement interface {
	// CheckNamespace returns a field error if an account in a namespace would be on no
	// managed cluster, or nil if it would be on one.
	CheckNamespace(ctx context.Context, namespace string) (*field.Error, error)
}

// placementGuard refuses new accounts outside of the namespaces of managed clusters and cluster
// sets. If a namespace loses its clusters later, a condition reports it.
func placementGuard(placement Placement) definition.Guard[*authentication.ManagedServiceAccount] {
	return definition.Guard[*authentication.ManagedServiceAccount]{
		Create: func(ctx context.Context, account *authentication.ManagedServiceAccount) error {
			refused, err := placement.CheckNamespace(ctx, account.Namespace)
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("looking up the managed clusters of namespace %q: %w", account.Namespace, err))
			}
			if refused != nil {
				return apierrors.NewInvalid(authentication.SchemeGroupVersion.WithKind("ManagedServiceAccount").GroupKind(), account.Name, field.ErrorList{refused})
			}
			return nil
		},
	}
}
