package escalation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

func TestReads(t *testing.T) {
	ctx := request.WithUser(t.Context(), alice)
	refs := []rbacv1alpha1.HubRoleRef{
		{Kind: "ClusterRole", Name: "open"}, {Kind: "ClusterRole", Name: "secret"},
		{Kind: "Role", Namespace: "a", Name: "secret"}, {Kind: "ClusterRole", Name: "secret"},
	}
	var asked []string
	authz := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser() != alice || !a.IsResourceRequest() || a.GetSubresource() != "" {
			t.Errorf("access review of Reads() = %+v, want a resource and user alice", a)
		}
		asked = append(asked, fmt.Sprintf("%s %s.%s %s/%s", a.GetVerb(), a.GetResource(), a.GetAPIGroup(), a.GetNamespace(), a.GetName()))
		if a.GetName() == "open" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "", nil
	})
	err := Reads(ctx, authz, cpName, refs)
	want := []string{
		"get clusterroles.rbac.authorization.k8s.io /open",
		"get clusterroles.rbac.authorization.k8s.io /secret",
		"get roles.rbac.authorization.k8s.io a/secret",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("access reviews of Reads() = %q, want %q", asked, want)
	}
	wantText := `user "alice" cannot get these roles of the hub, and so cannot deliver them:
ClusterRole "secret": grant it with a ClusterRole, bound by a ClusterRoleBinding, that contains the rule {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [secret], verbs: [get]}
Role "secret" in namespace "a": grant it with a Role in namespace "a" that contains the rule {apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [secret], verbs: [get]}`
	if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), wantText) || !strings.Contains(err.Error(), `"`+cpName+`"`) {
		t.Errorf("Reads() = %v, want Forbidden with\n%s", err, wantText)
	}

	if err := Reads(ctx, authz, cpName, refs[:1]); err != nil {
		t.Errorf("Reads(allowed role) = %v, want nil", err)
	}
	if err := Reads(ctx, authz, cpName, nil); err != nil {
		t.Errorf("Reads(no roles) = %v, want nil", err)
	}
	if err := Reads(t.Context(), authz, cpName, refs); !apierrors.IsInternalError(err) {
		t.Errorf("Reads() without a user = %v, want an InternalError", err)
	}
	broken := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", errors.New("no answer")
	})
	if err := Reads(ctx, broken, cpName, refs); !apierrors.IsInternalError(err) {
		t.Errorf("Reads() without a decision = %v, want an InternalError", err)
	}
}
