package rbac

import (
	"crypto/rand"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// NewProbe returns a review of an access that no binding grants, by a user of a random name without groups.
// ShowsOtherAuthorizers judges the result.
func NewProbe() *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "open-cluster-management:probe:" + rand.Text(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: "access.open-cluster-management.io", Resource: "probes", Name: "probe"},
	}}
}

// ShowsOtherAuthorizers reports whether the result of a probe shows that the API server asks another authorizer than RBAC.
// RBAC and the Node authorizer neither allow a probe nor give a reason for it. AlwaysAllow allows it, and ABAC says that
// no policy matches it.
func ShowsOtherAuthorizers(result *authorizationv1.SubjectAccessReviewStatus) bool {
	return result.Allowed || result.Denied || result.Reason != "" || result.EvaluationError != ""
}
