package executor

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
)

const (
	accounts = "managedserviceaccounts"
	bindVerb = "bind"
)

// Bind tells why the caller may not say who has works act as a ManagedServiceAccount;
// nil if it may.
func Bind(ctx context.Context, authz authorizer.Authorizer, namespace, account string) error {
	caller, known := request.UserFrom(ctx)
	if !known {
		return apierrors.NewInternalError(errors.New("the request has no user"))
	}
	decision, _, err := authz.Authorize(ctx, authorizer.AttributesRecord{
		User:            caller,
		Verb:            bindVerb,
		APIGroup:        authentication.GroupName,
		APIVersion:      "*",
		Resource:        accounts,
		Namespace:       namespace,
		Name:            account,
		ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("asking whether %q may bind ManagedServiceAccount %s/%s: %w", caller.GetName(), namespace, account, err))
	}
	return apierrors.NewForbidden(authentication.Resource(accounts), account, fmt.Errorf(
		"user %q may not bind this account to whoever is to have works act as it; it takes a Role in namespace %s with the rule {apiGroups: [%s], resources: [%s], resourceNames: [%s], verbs: [%s]}",
		caller.GetName(), namespace, authentication.GroupName, accounts, account, bindVerb))
}
