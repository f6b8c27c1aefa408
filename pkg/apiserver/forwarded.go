package apiserver

import (
	"context"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// forwardedUser is the user of one request that the hub has forwarded.
type forwardedUser struct {
	user.Info
	// authorized is true once the decision of the hub has been used. Later checks of the same permission, such as those
	// of open connections, require a new decision.
	authorized atomic.Bool
}

// authorizedByHub allows requests that the hub has forwarded. The hub's kube-apiserver authorizes the same attributes
// of the same user before it forwards a request, so another SubjectAccessReview would only repeat its decision, later and
// from a cache. All other decisions are those of next: requests that clients send directly, permissions that a request
// requires in addition, and later checks of open connections. Non-resource requests are included there, because the hub sends some of its own without
// authorization, such as those for OpenAPI.
func authorizedByHub(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if forwarded := forwardedRequest(ctx, a); forwarded != nil && forwarded.authorized.CompareAndSwap(false, true) {
			return authorizer.DecisionAllow, "the hub authorized the request before it forwarded it", nil
		}
		return next.Authorize(ctx, a)
	})
}

// forwardedRequest returns the user if the attributes are those of the request itself, and the hub has forwarded it.
// Otherwise it returns nil. After impersonation on this server, the user of the request is another one.
func forwardedRequest(ctx context.Context, a authorizer.Attributes) *forwardedUser {
	forwarded, ok := a.GetUser().(*forwardedUser)
	if !ok || !a.IsResourceRequest() {
		return nil
	}
	caller, known := request.UserFrom(ctx)
	info, found := request.RequestInfoFrom(ctx)
	if known && found && caller == user.Info(forwarded) && info.IsResourceRequest &&
		a.GetVerb() == info.Verb && a.GetAPIGroup() == info.APIGroup && a.GetAPIVersion() == info.APIVersion &&
		a.GetNamespace() == info.Namespace && a.GetResource() == info.Resource && a.GetSubresource() == info.Subresource && a.GetName() == info.Name {
		return forwarded
	}
	return nil
}
