// Package clusterset checks whether a caller may move clusters into ManagedClusterSets, or bind the sets to namespaces.
package clusterset

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
)

const resource = "managedclustersets"

// Join returns nil if the caller may move clusters into a set and out of it, a
// Forbidden error if not, or an InternalError.
func Join(ctx context.Context, a authorizer.Authorizer, set string) error {
	return check(ctx, a, set, "join", "move clusters into or out of this cluster set")
}

// Bind returns nil if the caller may bind a set to namespaces, a Forbidden error if not, or an InternalError.
func Bind(ctx context.Context, a authorizer.Authorizer, set string) error {
	return check(ctx, a, set, "bind", "bind this cluster set to a namespace")
}

func check(ctx context.Context, a authorizer.Authorizer, set, subresource, action string) error {
	return authz.Check(ctx, a, authorizationv1.ResourceAttributes{
		Verb: "create", Group: clusterv1beta2.GroupName, Version: "*", Resource: resource, Subresource: subresource, Name: set,
	}, clusterv1beta2.Resource(resource), set, action)
}
