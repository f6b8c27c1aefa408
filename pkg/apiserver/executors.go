package apiserver

import (
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/registry/authentication/managedserviceaccountbinding"
)

// executors returns the checker of executors and the bindings that it reads. The bindings are nil if this
// server does not serve them.
func (a *assembly) executors() (*executor.Checker, *managedserviceaccountbinding.Bindings) {
	clients := a.server.clients
	checker := &executor.Checker{
		Authorizer:  a.generic.Authorization.Authorizer,
		Server:      executor.ServerIdentity(a.server.hub.AuthenticationV1().SelfSubjectReviews()),
		NilExecutor: a.extra.NilExecutor,
	}
	resource := authenticationv1alpha1.SchemeGroupVersion.WithResource("managedserviceaccountbindings")
	if clients.accounts != clients.own {
		// Bindings would have no effect, so they are not served.
		a.generic.MergedResourceConfig.DisableResources(resource)
	}
	var bindings *managedserviceaccountbinding.Bindings
	if a.generic.MergedResourceConfig.ResourceEnabled(resource) {
		bindings = &managedserviceaccountbinding.Bindings{}
		checker.Bindings, checker.Accounts = bindings.Bindings, a.deliverer.Sources.ServiceAccount
	}
	return checker, bindings
}
