package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/utils/clock"

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/registry/authentication/managedserviceaccountbinding"
	"open-cluster-management.io/hub-apiserver/pkg/worksync"
)

// identityAge is how long the hub's answer is taken for who this server is. Its
// credentials may be replaced by those of somebody else, though seldom.
const identityAge = 5 * time.Minute

// executors returns what judges who may have works act as whom, and the bindings that
// it goes by; these are nil where the hub keeps the accounts, or does not serve them.
func (c CompletedConfig) executors(clients *clients, hub kubernetes.Interface, sources *worksync.Sources) (*executor.Checker, *managedserviceaccountbinding.Bindings) {
	identity := &hubIdentity{reviews: hub.AuthenticationV1().SelfSubjectReviews(), clock: clock.RealClock{}}
	options := executor.Options{
		Authorizer:  c.generic.Authorization.Authorizer,
		Server:      identity.user,
		NilExecutor: c.extra.NilExecutor,
	}
	resource := authenticationv1alpha1.SchemeGroupVersion.WithResource("managedserviceaccountbindings")
	if clients.accounts != clients.own {
		// Nobody who reads one should believe that it has an effect.
		c.generic.MergedResourceConfig.DisableResources(resource)
	}
	var bindings *managedserviceaccountbinding.Bindings
	if c.generic.MergedResourceConfig.ResourceEnabled(resource) {
		bindings = &managedserviceaccountbinding.Bindings{}
		options.Bindings, options.Accounts = bindings, sources
	}
	return executor.NewChecker(options), bindings
}

// executorNames are the names by which the works of ClusterPermissions, which this
// server writes, are judged; none if they are not.
func (c *ExtraConfig) executorNames() []string {
	switch {
	case c.WorkExecutor != nil:
		return []string{serviceaccount.MakeUsername(c.WorkExecutor.Namespace, c.WorkExecutor.Name)}
	case c.NilExecutor == executor.Check:
		return []string{executor.AgentExecutor}
	}
	return nil
}

// hubIdentity is who this server is on the hub.
type hubIdentity struct {
	reviews authenticationclient.SelfSubjectReviewInterface
	clock   clock.PassiveClock

	mu    sync.Mutex
	known user.Info
	asked time.Time
}

// user returns who the hub says this server is, or said not long ago.
func (i *hubIdentity) user(ctx context.Context) (user.Info, error) {
	if known := i.cached(); known != nil {
		return known, nil
	}
	asked := i.clock.Now()
	review, err := i.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("self subject review: %w", err)
	}
	info := review.Status.UserInfo
	if info.Username == "" {
		return nil, errors.New("self subject review: the hub has answered without a user name")
	}
	known := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{}}
	for key, values := range info.Extra {
		known.Extra[key] = values
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.asked = known, asked
	return known, nil
}

func (i *hubIdentity) cached() user.Info {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil || i.clock.Since(i.asked) >= identityAge {
		return nil
	}
	return i.known
}
