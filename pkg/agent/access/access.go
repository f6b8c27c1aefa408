// Package access tells what ServiceAccounts may do on the managed cluster.
//
// Answers come from the cluster itself, by SubjectAccessReviews, and are kept for
// as long as nothing changes that could change them: the RBAC objects of the
// cluster are watched, and an event forgets exactly the answers that it may
// concern.
package access

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Request is one request to the managed cluster's API server, as its authorizers see it.
type Request struct {
	Verb string
	// Resource may be with a subresource, such as deployments/scale.
	Group, Version, Resource string
	// Namespace is empty for a cluster-scoped object, Name for a request that names
	// none. The API server takes a request that names a Namespace for one in it.
	Namespace, Name string
}

// Decision is whether a request is allowed.
type Decision struct {
	Allowed bool
	// Reason is what the cluster says about it; may be empty.
	Reason string
}

// UserName is the user name of a ServiceAccount.
func UserName(account types.NamespacedName) string {
	return serviceaccount.MakeUsername(account.Namespace, account.Name)
}

// Groups are the groups of a ServiceAccount that is authenticated.
func Groups(account types.NamespacedName) []string {
	return append(serviceaccount.MakeGroupNames(account.Namespace), "system:authenticated")
}
