package executor

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestHubIdentity checks that the identity is cached for identityAge, and that errors are not cached.
func TestHubIdentity(t *testing.T) {
	hub := fake.NewClientset()
	var asked int
	var fails error
	name := "system:serviceaccount:hub:server"
	hub.PrependReactor("create", "selfsubjectreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{
			Username: name, UID: "7", Groups: []string{"system:serviceaccounts"},
			Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"server-0"}},
		}}}, fails
	})
	clock := clocktesting.NewFakeClock(time.Now())
	identity := &hubIdentity{reviews: hub.AuthenticationV1().SelfSubjectReviews(), known: cache.NewExpiringWithClock(clock)}
	is := func(want string, calls int) {
		t.Helper()
		got, err := identity.user(t.Context())
		switch {
		case asked != calls:
			t.Errorf("reviews = %d, want %d", asked, calls)
		case want == "" && err == nil:
			t.Errorf("user() = %v, want an error", got)
		case want == "":
		case err != nil:
			t.Error(err)
		case got.GetName() != want || got.GetUID() != "7" || !slices.Equal(got.GetGroups(), []string{"system:serviceaccounts"}) ||
			!maps.EqualFunc(got.GetExtra(), map[string][]string{"authentication.kubernetes.io/pod-name": {"server-0"}}, slices.Equal):
			t.Errorf("user() = %+v, want %s with its groups and extra", got, want)
		}
	}

	fails = errors.New("hub is unavailable")
	is("", 1)
	fails = nil
	is(name, 2)
	clock.SetTime(clock.Now().Add(identityAge - time.Second))
	is(name, 2)
	name = "somebody-else"
	clock.SetTime(clock.Now().Add(time.Second))
	is(name, 3)
	name = ""
	clock.SetTime(clock.Now().Add(identityAge))
	is("", 4)
}
