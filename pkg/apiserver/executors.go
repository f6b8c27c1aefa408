package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/registry/authentication/managedserviceaccountbinding"
)

// identityAge is the lifetime of the cached identity of this server on the hub. The cache expires
// because the credentials may be replaced with credentials of another user.
const identityAge = 5 * time.Minute

// executors returns the checker of executors and the bindings that it reads. The bindings are nil if this
// server does not serve them.
func (a *assembly) executors() (*executor.Checker, *managedserviceaccountbinding.Bindings) {
	clients := a.server.clients
	identity := &hubIdentity{reviews: a.server.hub.AuthenticationV1().SelfSubjectReviews(), known: cache.NewExpiring()}
	checker := &executor.Checker{
		Authorizer:  a.generic.Authorization.Authorizer,
		Server:      identity.user,
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

// hubIdentity caches the identity of this server on the hub.
type hubIdentity struct {
	reviews authenticationclient.SelfSubjectReviewInterface
	known   *cache.Expiring
}

func (i *hubIdentity) user(ctx context.Context) (user.Info, error) {
	if known, ok := i.known.Get(""); ok {
		return known.(user.Info), nil
	}
	review, err := i.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating a SelfSubjectReview: %w", err)
	}
	info := review.Status.UserInfo
	if info.Username == "" {
		return nil, errors.New("creating a SelfSubjectReview: the response has no user name")
	}
	known := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{}}
	for key, values := range info.Extra {
		known.Extra[key] = values
	}
	i.known.Set("", known, identityAge)
	return known, nil
}
