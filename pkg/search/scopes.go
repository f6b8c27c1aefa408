package search

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

// Scopes returns the scopes of callers.
type Scopes interface {
	// Scope returns the resources that a caller can find now. If they are unknown, it returns an
	// error.
	Scope(ctx context.Context, caller user.Info) (visibility.Scope, error)
	// Subscribe returns a channel that receives a value when the scope of a caller may have
	// changed, until stop is called.
	Subscribe(caller user.Info) (changed <-chan struct{}, stop func())
}
