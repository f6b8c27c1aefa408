package executor

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
)

// identityAge is the lifetime of the cached identity of this server on the hub. The cache expires
// because the credentials may be replaced with credentials of another user.
const identityAge = 5 * time.Minute

// ServerIdentity returns the function Server of a Checker. It caches the identity.
func ServerIdentity(reviews authenticationclient.SelfSubjectReviewInterface) func(context.Context) (user.Info, error) {
	return (&hubIdentity{reviews: reviews, known: cache.NewExpiring()}).user
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
