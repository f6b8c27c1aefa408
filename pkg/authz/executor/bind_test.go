package executor

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

func TestBind(t *testing.T) {
	anna := &user.DefaultInfo{Name: "anna", Groups: []string{"admins"}, UID: "1", Extra: map[string][]string{"scope": {"all"}}}
	ctx := request.WithUser(t.Context(), anna)
	var asked authorizer.AttributesRecord
	answering := func(decision authorizer.Decision, err error) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = a.(authorizer.AttributesRecord)
			return decision, "", err
		})
	}

	if err := Bind(ctx, answering(authorizer.DecisionAllow, nil), "cluster1", "deployer"); err != nil {
		t.Errorf("allowed: %v", err)
	}
	// The full identity is asked about: webhook authorizers look at UID and extra too.
	if asked.GetUser() != anna || asked.GetVerb() != "bind" || asked.GetAPIGroup() != "authentication.open-cluster-management.io" ||
		asked.GetResource() != "managedserviceaccounts" || asked.GetSubresource() != "" || asked.GetName() != "deployer" ||
		asked.GetNamespace() != "cluster1" || !asked.IsResourceRequest() {
		t.Errorf("asked %+v", asked)
	}

	err := Bind(ctx, answering(authorizer.DecisionNoOpinion, nil), "cluster1", "deployer")
	rule := "Role in namespace cluster1 with the rule {apiGroups: [authentication.open-cluster-management.io], resources: [managedserviceaccounts], resourceNames: [deployer], verbs: [bind]}"
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"anna"`) || !strings.Contains(err.Error(), rule) {
		t.Errorf("refused: %v", err)
	}
	if err := Bind(ctx, answering(authorizer.DecisionDeny, nil), "cluster1", "deployer"); !apierrors.IsForbidden(err) {
		t.Errorf("denied: %v", err)
	}
	// Nobody is told to be forbidden what could not be asked.
	if err := Bind(ctx, answering(authorizer.DecisionNoOpinion, errors.New("no answer")), "cluster1", "deployer"); !apierrors.IsInternalError(err) {
		t.Errorf("without an answer: %v", err)
	}
	if err := Bind(t.Context(), answering(authorizer.DecisionAllow, nil), "cluster1", "deployer"); !apierrors.IsInternalError(err) {
		t.Errorf("without a user: %v", err)
	}
}
