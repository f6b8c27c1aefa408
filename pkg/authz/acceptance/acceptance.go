// Package acceptance asks whether a caller may decide about managed clusters. Nothing
// else builds the attributes of this question.
package acceptance

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

const (
	resource    = "managedclusters"
	subresource = "accept"
	verb        = "update"
)

// Check tells why the caller may not decide whether the hub accepts a cluster; nil
// if it may.
func Check(ctx context.Context, authz authorizer.Authorizer, cluster string) error {
	caller, known := request.UserFrom(ctx)
	if !known {
		return apierrors.NewInternalError(errors.New("the request has no user"))
	}
	decision, _, err := authz.Authorize(ctx, authorizer.AttributesRecord{
		User:            caller,
		Verb:            verb,
		APIGroup:        registerv1alpha1.GroupName,
		APIVersion:      "*",
		Resource:        resource,
		Subresource:     subresource,
		Name:            cluster,
		ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("asking whether %q may decide about cluster %s: %w", caller.GetName(), cluster, err))
	}
	return apierrors.NewForbidden(registerv1alpha1.Resource(resource+"/"+subresource), cluster, fmt.Errorf(
		"user %q may not decide whether the hub accepts this cluster; it takes a ClusterRole with the rule {apiGroups: [%s], resources: [%s/%s], resourceNames: [%s], verbs: [%s]}",
		caller.GetName(), registerv1alpha1.GroupName, resource, subresource, cluster, verb))
}
