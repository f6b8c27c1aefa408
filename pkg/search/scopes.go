package search

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

// Scopes knows what callers may find.
type Scopes interface {
	// Scope is what a caller may find now. It returns an error rather than guess.
	Scope(ctx context.Context, caller user.Info) (visibility.Scope, error)
	// Subscribe gives a channel that receives when a caller's scope may have changed,
	// until stop is called.
	Subscribe(caller user.Info) (changed <-chan struct{}, stop func())
}
