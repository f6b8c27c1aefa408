package acceptance

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestCheck(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice"}
	ctx := request.WithUser(t.Context(), alice)
	decision := authorizer.DecisionAllow
	var asked authorizer.Attributes
	hub := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = a
		return decision, "", nil
	})
	if err := Check(ctx, hub, "c1"); err != nil {
		t.Errorf("Check(c1) = %v, want nil", err)
	}
	want := authorizer.AttributesRecord{
		User: alice, Verb: "update", APIGroup: "register.open-cluster-management.io", APIVersion: "*",
		Resource: "managedclusters", Subresource: "accept", Name: "c1", ResourceRequest: true,
	}
	if !equality.Semantic.DeepEqual(asked, authorizer.Attributes(want)) {
		t.Errorf("access review of Check(c1) = %+v, want %+v", asked, want)
	}
	decision = authorizer.DecisionNoOpinion
	const text = `managedclusters/accept.register.open-cluster-management.io "c1" is forbidden: user "alice" cannot accept or deny this cluster; ` +
		`grant it with a ClusterRole, bound by a ClusterRoleBinding, that contains the rule ` +
		`{apiGroups: [register.open-cluster-management.io], resources: [managedclusters/accept], resourceNames: [c1], verbs: [update]}`
	if err := Check(ctx, hub, "c1"); !apierrors.IsForbidden(err) || err.Error() != text {
		t.Errorf("Check(c1) = %v, want %s", err, text)
	}
}
