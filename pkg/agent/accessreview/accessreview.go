// Package accessreview checks the permissions of ServiceAccounts on the managed cluster.
//
// The managed cluster decides by SubjectAccessReviews. Their answers are cached. A Reviewer watches
// the RBAC objects of the cluster. An event invalidates exactly the answers that it may change.
package accessreview

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Request is one request to the managed cluster's API server, with the attributes that its
// authorizers use.
type Request struct {
	Verb string
	// Resource may include a subresource, such as deployments/scale.
	Group, Version, Resource string
	// Namespace is empty for a cluster-scoped object. Name is empty if the request has no name. For
	// authorizers, a request for a Namespace object is in that namespace.
	Namespace, Name string
}

// Attributes returns the request in the form of a SubjectAccessReview.
func (r Request) Attributes() authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	return authorizationv1.ResourceAttributes{
		Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: resource, Subresource: subresource,
		Namespace: r.Namespace, Name: r.Name,
	}
}

// Decision is the cluster's decision on a request.
type Decision struct {
	Allowed bool
	// Reason is given by the cluster and may be empty.
	Reason string
}

// UserName returns the user name of a ServiceAccount.
func UserName(account types.NamespacedName) string {
	return serviceaccount.MakeUsername(account.Namespace, account.Name)
}

// Groups returns the groups of an authenticated ServiceAccount.
func Groups(account types.NamespacedName) []string {
	return append(serviceaccount.MakeGroupNames(account.Namespace), "system:authenticated")
}
