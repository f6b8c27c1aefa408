package executor

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
)

const accounts = "managedserviceaccounts"

// Bind returns nil if the caller may bind a ManagedServiceAccount to users, a
// Forbidden error if not, or an InternalError.
func Bind(ctx context.Context, a authorizer.Authorizer, namespace, account string) error {
	return authz.Check(ctx, a, authorizationv1.ResourceAttributes{
		Verb: "bind", Group: authenticationv1beta1.GroupName, Version: "*", Resource: accounts, Namespace: namespace, Name: account,
	}, authenticationv1beta1.Resource(accounts), "bind this ManagedServiceAccount to users")
}
