package managedserviceaccountbinding

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Bindings reads ManagedServiceAccountBindings from the store that their row gives
// it. The zero value can be used once the row that has it is served.
type Bindings struct {
	store atomic.Pointer[definition.REST]
}

var _ executor.Bindings = &Bindings{}

func (b *Bindings) serve(store *definition.REST) { b.store.Store(store) }

// Bindings implements executor.Bindings. It is as of now: what was deleted before the
// call is not there, whichever replica did it. Callers may not change what they
// get. It fails as a request does whose server is not ready.
func (b *Bindings) Bindings(ctx context.Context, namespace string) ([]authentication.ManagedServiceAccountBinding, error) {
	store := b.store.Load()
	if store == nil {
		return nil, apierrors.NewServiceUnavailable("ManagedServiceAccountBindings are not served yet")
	}
	ctx = request.WithNamespace(ctx, namespace)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: "list", Namespace: namespace,
		APIGroup: authentication.GroupName, APIVersion: authenticationv1alpha1.SchemeGroupVersion.Version, Resource: resource,
	})
	// Without a resource version, which would let the watch cache answer with what it
	// has seen so far.
	listed, err := store.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the ManagedServiceAccountBindings of namespace %s: %w", namespace, err)
	}
	list, ok := listed.(*authentication.ManagedServiceAccountBindingList)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("a list of ManagedServiceAccountBindings is a %T", listed))
	}
	return list.Items, nil
}
