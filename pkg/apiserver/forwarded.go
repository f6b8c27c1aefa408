package apiserver

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// forwardedUser is a user whose request the hub has forwarded.
type forwardedUser struct{ user.Info }

// authorizedByHub allows requests that the hub has forwarded. The hub's kube-apiserver authorizes the same attributes
// of the same user before it forwards a request, so another SubjectAccessReview would only repeat its decision, later and
// from a cache. All other decisions are those of next: requests that clients send directly, and permissions that a request
// requires in addition. Non-resource requests are included there, because the hub sends some of its own without
// authorization, such as those for OpenAPI.
func authorizedByHub(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if forwardedRequest(ctx, a) {
			return authorizer.DecisionAllow, "the hub authorized the request before it forwarded it", nil
		}
		return next.Authorize(ctx, a)
	})
}

// forwardedRequest reports whether the attributes are those of the request itself, and the hub has forwarded it. After
// impersonation on this server, the user of the request is another one.
func forwardedRequest(ctx context.Context, a authorizer.Attributes) bool {
	forwarded, ok := a.GetUser().(*forwardedUser)
	if !ok || !a.IsResourceRequest() {
		return false
	}
	caller, known := request.UserFrom(ctx)
	info, found := request.RequestInfoFrom(ctx)
	return known && found && caller == user.Info(forwarded) && info.IsResourceRequest &&
		a.GetVerb() == info.Verb && a.GetAPIGroup() == info.APIGroup && a.GetAPIVersion() == info.APIVersion &&
		a.GetNamespace() == info.Namespace && a.GetResource() == info.Resource && a.GetSubresource() == info.Subresource && a.GetName() == info.Name
}
