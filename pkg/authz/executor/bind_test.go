package executor

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestBind(t *testing.T) {
	anna := &user.DefaultInfo{Name: "anna"}
	ctx := request.WithUser(t.Context(), anna)
	decision := authorizer.DecisionAllow
	var asked authorizer.Attributes
	hub := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = a
		return decision, "", nil
	})
	if err := Bind(ctx, hub, "cluster1", "deployer"); err != nil {
		t.Errorf("Bind(deployer) = %v, want nil", err)
	}
	want := authorizer.AttributesRecord{
		User: anna, Verb: "bind", APIGroup: "authentication.open-cluster-management.io", APIVersion: "*",
		Resource: "managedserviceaccounts", Namespace: "cluster1", Name: "deployer", ResourceRequest: true,
	}
	if !equality.Semantic.DeepEqual(asked, authorizer.Attributes(want)) {
		t.Errorf("access review of Bind(deployer) = %+v, want %+v", asked, want)
	}
	decision = authorizer.DecisionNoOpinion
	const text = `managedserviceaccounts.authentication.open-cluster-management.io "deployer" is forbidden: ` +
		`user "anna" cannot bind this ManagedServiceAccount to users; grant it with a Role in namespace "cluster1" that contains the rule ` +
		`{apiGroups: [authentication.open-cluster-management.io], resources: [managedserviceaccounts], resourceNames: [deployer], verbs: [bind]}`
	if err := Bind(ctx, hub, "cluster1", "deployer"); !apierrors.IsForbidden(err) || err.Error() != text {
		t.Errorf("Bind(deployer) = %v, want %s", err, text)
	}
}
