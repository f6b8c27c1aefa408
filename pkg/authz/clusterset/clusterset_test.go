package clusterset

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestJoinAndBind(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice"}
	ctx := request.WithUser(t.Context(), alice)
	for subresource, test := range map[string]struct {
		check  func(context.Context, authorizer.Authorizer, string) error
		action string
	}{
		"join": {Join, "move clusters into or out of this cluster set"},
		"bind": {Bind, "bind this cluster set to a namespace"},
	} {
		t.Run(subresource, func(t *testing.T) {
			decision := authorizer.DecisionAllow
			var asked authorizer.Attributes
			hub := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				asked = a
				return decision, "", nil
			})
			if err := test.check(ctx, hub, "prod"); err != nil {
				t.Errorf("check(prod) = %v, want nil", err)
			}
			want := authorizer.AttributesRecord{
				User: alice, Verb: "create", APIGroup: "cluster.open-cluster-management.io", APIVersion: "*",
				Resource: "managedclustersets", Subresource: subresource, Name: "prod", ResourceRequest: true,
			}
			if !equality.Semantic.DeepEqual(asked, authorizer.Attributes(want)) {
				t.Errorf("access review of check(prod) = %+v, want %+v", asked, want)
			}
			decision = authorizer.DecisionNoOpinion
			text := `managedclustersets.cluster.open-cluster-management.io "prod" is forbidden: user "alice" cannot ` + test.action +
				`; grant it with a ClusterRole, bound by a ClusterRoleBinding, that contains the rule ` +
				`{apiGroups: [cluster.open-cluster-management.io], resources: [managedclustersets/` + subresource + `], resourceNames: [prod], verbs: [create]}`
			if err := test.check(ctx, hub, "prod"); !apierrors.IsForbidden(err) || err.Error() != text {
				t.Errorf("check(prod) = %v, want %s", err, text)
			}
		})
	}
}
