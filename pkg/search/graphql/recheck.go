package graphql

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/klog/v2"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

var graphqlResource = searchv1alpha1.Resource("graphql")

// accessTimeout bounds one authorization.
const accessTimeout = 10 * time.Second

// access checks again whether the caller of an open connection is allowed to use it.
type access struct {
	authorizer authorizer.Authorizer
	attributes authorizer.Attributes
}

// newAccess returns the access for the request of ctx, or nil if there is no authorizer.
func newAccess(ctx context.Context, decides authorizer.Authorizer) (*access, error) {
	if decides == nil {
		return nil, nil
	}
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return nil, err
	}
	return &access{authorizer: decides, attributes: attributes}, nil
}

// check returns an API error if the permission cannot be confirmed. The error is Forbidden only if
// the permission was certainly revoked.
func (a *access) check(ctx context.Context) error {
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	decision, reason, err := a.authorizer.Authorize(ctx, a.attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot check the permission to use GraphQL", "user", a.attributes.GetUser().GetName())
		return serving.Unavailable("your permission to use graphql cannot be checked at the moment; try again later")
	}
	klog.FromContext(ctx).V(2).Info("The permission to use GraphQL was revoked", "user", a.attributes.GetUser().GetName(), "reason", reason)
	return apierrors.NewForbidden(graphqlResource, "", errors.New("your permission was revoked"))
}

// keepAllowed closes the connection soon after its caller loses permission. If the authorizer
// fails, the connection stays open: scopes decide which resources it receives, and the scopes are
// checked continuously.
func (s *socket) keepAllowed(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		s.endIfRevoked(s.access.check(ctx))
	}, s.limits.Recheck, 0.2, true)
}

// endIfRevoked closes the connection if check returned a Forbidden error.
func (s *socket) endIfRevoked(err error) {
	if apierrors.IsForbidden(err) {
		s.close(closeForbidden, "Forbidden")
		s.cancel()
	}
}
