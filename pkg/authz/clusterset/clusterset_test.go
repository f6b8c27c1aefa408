package clusterset

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
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"admins"}}
	ctx := request.WithUser(t.Context(), alice)
	var asked authorizer.Attributes
	answering := func(decision authorizer.Decision, err error) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = a
			return decision, "", err
		})
	}
	checks := map[string]func(context.Context, authorizer.Authorizer, string) error{"join": Join, "bind": Bind}
	for subresource, check := range checks {
		t.Run(subresource, func(t *testing.T) {
			if err := check(ctx, answering(authorizer.DecisionAllow, nil), "prod"); err != nil {
				t.Errorf("allowed: %v", err)
			}
			want := authorizer.AttributesRecord{
				User: alice, Verb: "create", APIGroup: "cluster.open-cluster-management.io", APIVersion: "*",
				Resource: "managedclustersets", Subresource: subresource, Name: "prod", ResourceRequest: true,
			}
			if got, ok := asked.(authorizer.AttributesRecord); !ok || got.User != want.User || got.GetSubresource() != want.Subresource ||
				got.GetName() != want.Name || got.GetVerb() != want.Verb || got.GetAPIGroup() != want.APIGroup ||
				got.GetResource() != want.Resource || got.GetNamespace() != "" || !got.IsResourceRequest() {
				t.Errorf("asked %+v, not %+v", asked, want)
			}

			err := check(ctx, answering(authorizer.DecisionNoOpinion, nil), "prod")
			rule := "{apiGroups: [cluster.open-cluster-management.io], resources: [managedclustersets/" + subresource + "], resourceNames: [prod], verbs: [create]}"
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"alice"`) || !strings.Contains(err.Error(), rule) {
				t.Errorf("refused: %v", err)
			}
			if err := check(ctx, answering(authorizer.DecisionDeny, nil), "prod"); !apierrors.IsForbidden(err) {
				t.Errorf("denied: %v", err)
			}
			// Nobody is told to be forbidden what could not be asked.
			if err := check(ctx, answering(authorizer.DecisionNoOpinion, errors.New("no answer")), "prod"); !apierrors.IsInternalError(err) {
				t.Errorf("without an answer: %v", err)
			}
			if err := check(t.Context(), answering(authorizer.DecisionAllow, nil), "prod"); !apierrors.IsInternalError(err) {
				t.Errorf("without a user: %v", err)
			}
		})
	}
}
