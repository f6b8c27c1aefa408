package managedserviceaccount

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Placement checks whether a namespace has managed clusters.
type Placement interface {
	// CheckNamespace reports why an account in a namespace would be on no managed cluster. It
	// returns a field error if the account may not wait for one.
	CheckNamespace(ctx context.Context, namespace string) (waits string, invalid *field.Error, err error)
}

// placementGuard refuses or warns about new accounts outside of the namespaces of managed clusters and
// cluster sets. A condition reports accounts that wait for a cluster or lose their clusters later.
func placementGuard(placement Placement) definition.Guard[*authentication.ManagedServiceAccount] {
	return func(ctx context.Context, account, old *authentication.ManagedServiceAccount) error {
		if old != nil {
			return nil
		}
		waits, refused, err := placement.CheckNamespace(ctx, account.Namespace)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("looking up the managed clusters of namespace %q: %w", account.Namespace, err))
		}
		if refused != nil {
			return apierrors.NewInvalid(authenticationv1beta1.SchemeGroupVersion.WithKind("ManagedServiceAccount").GroupKind(), account.Name, field.ErrorList{refused})
		}
		if waits != "" {
			warning.AddWarning(ctx, "", fmt.Sprintf("namespace %q %s; the ManagedServiceAccount waits until it has one", account.Namespace, waits))
		}
		return nil
	}
}
