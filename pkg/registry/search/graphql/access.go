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
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

var graphqlResource = searchv1alpha1.Resource("graphql")

// accessTimeout bounds one decision.
const accessTimeout = 10 * time.Second

// access decides again whether the caller of a connection may use it, which was decided before it was accepted.
type access struct {
	authorizer authorizer.Authorizer
	attributes authorizer.Attributes
}

// newAccess is about the request that ctx is of; nil if nobody decides.
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

// check returns an API error, which is a forbidden one only if the right is gone for sure.
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
		klog.FromContext(ctx).Error(err, "the right to use GraphQL is not known", "user", a.attributes.GetUser().GetName())
		return terms.Unavailable("whether you may use graphql is not known right now; try again")
	}
	klog.FromContext(ctx).V(2).Info("the right to use GraphQL was revoked", "user", a.attributes.GetUser().GetName(), "reason", reason)
	return apierrors.NewForbidden(graphqlResource, "", errors.New("the right to use it was revoked"))
}

// keepAllowed closes the connection soon after its caller may not use it any more. While that cannot be
// found out, the connection stays: what is seen on it is decided elsewhere, and again and again.
func (s *socket) keepAllowed(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		s.endIfRevoked(s.access.check(ctx))
	}, s.limits.Recheck, 0.2, true)
}

// endIfRevoked closes the connection if an error of check says so.
func (s *socket) endIfRevoked(err error) {
	if apierrors.IsForbidden(err) {
		s.close(closeForbidden, "Forbidden")
		s.cancel()
	}
}
