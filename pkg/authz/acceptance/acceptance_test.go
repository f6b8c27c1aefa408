package acceptance

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestCheck(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"admins"}, UID: "1", Extra: map[string][]string{"scope": {"all"}}}
	ctx := request.WithUser(t.Context(), alice)
	var asked authorizer.Attributes
	answering := func(decision authorizer.Decision, err error) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = a
			return decision, "", err
		})
	}

	if err := Check(ctx, answering(authorizer.DecisionAllow, nil), "c1"); err != nil {
		t.Errorf("allowed: %v", err)
	}
	// The full identity is asked about: webhook authorizers look at UID and extra too.
	if asked.GetUser() != alice || asked.GetVerb() != "update" || asked.GetAPIGroup() != "register.open-cluster-management.io" ||
		asked.GetResource() != "managedclusters" || asked.GetSubresource() != "accept" || asked.GetName() != "c1" ||
		asked.GetNamespace() != "" || !asked.IsResourceRequest() {
		t.Errorf("asked %+v", asked)
	}

	err := Check(ctx, answering(authorizer.DecisionNoOpinion, nil), "c1")
	rule := "{apiGroups: [register.open-cluster-management.io], resources: [managedclusters/accept], resourceNames: [c1], verbs: [update]}"
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"alice"`) || !strings.Contains(err.Error(), rule) {
		t.Errorf("refused: %v", err)
	}
	if err := Check(ctx, answering(authorizer.DecisionDeny, nil), "c1"); !apierrors.IsForbidden(err) {
		t.Errorf("denied: %v", err)
	}
	// Nobody is told to be forbidden what could not be asked.
	if err := Check(ctx, answering(authorizer.DecisionNoOpinion, errors.New("no answer")), "c1"); !apierrors.IsInternalError(err) {
		t.Errorf("without an answer: %v", err)
	}
	if err := Check(t.Context(), answering(authorizer.DecisionAllow, nil), "c1"); !apierrors.IsInternalError(err) {
		t.Errorf("without a user: %v", err)
	}
}
