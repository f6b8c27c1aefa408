package definition

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Handle refers to a storage that exists once its row is served. The zero value is ready for use.
type Handle[S interface {
	Context(ctx context.Context, verb, namespace string) context.Context
}] struct {
	storage atomic.Pointer[S]
}

// Set sets the storage.
func (h *Handle[S]) Set(storage S) { h.storage.Store(&storage) }

// Open returns the storage, and a context in which the storage serves a request of the server itself.
// Before the row is served, it returns an API error with status 503 that names the kind in plural.
func (h *Handle[S]) Open(ctx context.Context, kinds, verb, namespace string) (context.Context, S, error) {
	storage := h.storage.Load()
	if storage == nil {
		var none S
		return nil, none, apierrors.NewServiceUnavailable(fmt.Sprintf("%s are not served yet", kinds))
	}
	return (*storage).Context(ctx, verb, namespace), *storage, nil
}
