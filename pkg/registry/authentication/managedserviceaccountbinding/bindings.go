package managedserviceaccountbinding

import (
	"context"
	"fmt"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Bindings reads ManagedServiceAccountBindings from the store of their row. The zero value is
// ready for use, and returns errors until the row is served.
type Bindings struct {
	store definition.Handle[*definition.REST]
}

// Bindings returns the bindings of a namespace. The list is consistent: it does not contain a binding that any replica
// deleted before the call. Callers must not change it.
func (b *Bindings) Bindings(ctx context.Context, namespace string) ([]authentication.ManagedServiceAccountBinding, error) {
	ctx, store, err := b.store.Open(ctx, "ManagedServiceAccountBindings", "list", namespace)
	if err != nil {
		return nil, err
	}
	// With a resource version, the watch cache could return an older list.
	listed, err := store.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the ManagedServiceAccountBindings of namespace %s: %w", namespace, err)
	}
	return listed.(*authentication.ManagedServiceAccountBindingList).Items, nil
}
