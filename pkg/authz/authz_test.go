package authz

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestCheck(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"admins"}, UID: "1", Extra: map[string][]string{"scope": {"all"}}}
	withUser := request.WithUser(t.Context(), alice)
	access := authorizationv1.ResourceAttributes{
		Verb: "update", Group: "example.com", Version: "*", Resource: "widgets", Subresource: "color", Namespace: "a", Name: "123",
	}
	const forbidden = `widgets.example.com "123" is forbidden: user "alice" cannot paint; grant it with a Role in namespace "a" that contains the rule ` +
		`{apiGroups: [example.com], resources: [widgets/color], resourceNames: ["123"], verbs: [update]}`
	for name, test := range map[string]struct {
		ctx      context.Context
		decision authorizer.Decision
		err      error
		// want is part of the error, or "" if there is none.
		want     string
		internal bool
	}{
		"allowed":                  {ctx: withUser, decision: authorizer.DecisionAllow},
		"allowed with an error":    {ctx: withUser, decision: authorizer.DecisionAllow, err: errors.New("one of two failed")},
		"no opinion":               {ctx: withUser, decision: authorizer.DecisionNoOpinion, want: forbidden},
		"denied":                   {ctx: withUser, decision: authorizer.DecisionDeny, want: forbidden},
		"an error is not a denial": {ctx: withUser, decision: authorizer.DecisionNoOpinion, err: errors.New("no answer"), want: `checking whether user "alice" can update widgets.example.com/color "123" in namespace "a": no answer`, internal: true},
		"a request without a user": {ctx: t.Context(), decision: authorizer.DecisionAllow, want: "the request has no user", internal: true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked authorizer.Attributes
			hub := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				asked = a
				return test.decision, "", test.err
			})
			err := Check(test.ctx, hub, access, schema.GroupResource{Group: "example.com", Resource: "widgets"}, access.Name, "paint")
			switch {
			case test.want == "":
				if err != nil {
					t.Errorf("Check() = %v, want nil", err)
				}
			case test.internal != apierrors.IsInternalError(err), test.internal == apierrors.IsForbidden(err), !strings.Contains(err.Error(), test.want):
				t.Errorf("Check() = %v, want %s", err, test.want)
			}
			if asked == nil {
				return
			}
			// Webhook authorizers also use the UID and the extra fields of the user.
			if asked.GetUser() != alice || asked.GetVerb() != "update" || asked.GetAPIGroup() != "example.com" || asked.GetAPIVersion() != "*" ||
				asked.GetResource() != "widgets" || asked.GetSubresource() != "color" || asked.GetNamespace() != "a" || asked.GetName() != "123" || !asked.IsResourceRequest() {
				t.Errorf("access review of Check() = %+v, want %+v of alice", asked, access)
			}
		})
	}
}
