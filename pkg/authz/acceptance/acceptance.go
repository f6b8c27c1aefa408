// Package acceptance checks whether a caller may decide which managed clusters the hub accepts.
package acceptance

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
)

// Check returns nil if the caller may accept or deny a cluster, a Forbidden error if not, or an InternalError.
func Check(ctx context.Context, a authorizer.Authorizer, cluster string) error {
	return authz.Check(ctx, a, authorizationv1.ResourceAttributes{
		Verb: "update", Group: registerv1alpha1.GroupName, Version: "*", Resource: "managedclusters", Subresource: "accept", Name: cluster,
	}, registerv1alpha1.Resource("managedclusters/accept"), cluster, "accept or deny this cluster")
}
