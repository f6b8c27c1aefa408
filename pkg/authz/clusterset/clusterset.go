// Package clusterset asks whether a caller may move clusters into ManagedClusterSets
// or bind the sets to namespaces. Nothing else builds the attributes of these questions.
package clusterset

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
)

const (
	resource = "managedclustersets"
	verb     = "create"
)

// Join tells why the caller may not move clusters into a set or out of it; nil if
// it may.
func Join(ctx context.Context, authz authorizer.Authorizer, set string) error {
	return check(ctx, authz, set, "join", "move clusters into this set or out of it")
}

// Bind tells why the caller may not bind a set to namespaces; nil if it may.
func Bind(ctx context.Context, authz authorizer.Authorizer, set string) error {
	return check(ctx, authz, set, "bind", "bind this set to a namespace")
}

func check(ctx context.Context, authz authorizer.Authorizer, set, subresource, what string) error {
	caller, known := request.UserFrom(ctx)
	if !known {
		return apierrors.NewInternalError(errors.New("the request has no user"))
	}
	decision, _, err := authz.Authorize(ctx, authorizer.AttributesRecord{
		User:            caller,
		Verb:            verb,
		APIGroup:        clusterv1beta2.GroupName,
		APIVersion:      "*",
		Resource:        resource,
		Subresource:     subresource,
		Name:            set,
		ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("asking whether %q may %s: %w", caller.GetName(), what, err))
	}
	return apierrors.NewForbidden(clusterv1beta2.Resource(resource), set, fmt.Errorf(
		"user %q may not %s; it takes a ClusterRole with the rule {apiGroups: [%s], resources: [%s/%s], resourceNames: [%s], verbs: [%s]}",
		caller.GetName(), what, clusterv1beta2.GroupName, resource, subresource, set, verb))
}
