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
	"open-cluster-management.io/hub-apiserver/pkg/authz"
)

func TestReads(t *testing.T) {
	ctx := request.WithUser(t.Context(), alice)
	refs := []rbacv1alpha1.HubRoleRef{
		{Kind: "ClusterRole", Name: "open"}, {Kind: "ClusterRole", Name: "secret"},
		{Kind: "Role", Namespace: "a", Name: "secret"}, {Kind: "ClusterRole", Name: "secret"},
	}
	var asked []string
	decides := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser() != alice || !a.IsResourceRequest() || a.GetSubresource() != "" {
			t.Errorf("access review of Reads() = %+v, want a resource and user alice", a)
		}
		asked = append(asked, fmt.Sprintf("%s %s.%s %s/%s", a.GetVerb(), a.GetResource(), a.GetAPIGroup(), a.GetNamespace(), a.GetName()))
		if a.GetName() == "open" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "", nil
	})
	err := Reads(ctx, decides, cpName, refs)
	want := []string{
		"get clusterroles.rbac.authorization.k8s.io /",
		"get clusterroles.rbac.authorization.k8s.io /open",
		"get clusterroles.rbac.authorization.k8s.io /secret",
		"get roles.rbac.authorization.k8s.io /",
		"get roles.rbac.authorization.k8s.io a/",
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

	if err := Reads(ctx, decides, cpName, refs[:1]); err != nil {
		t.Errorf("Reads(allowed role) = %v, want nil", err)
	}
	if err := Reads(ctx, decides, cpName, nil); err != nil {
		t.Errorf("Reads(no roles) = %v, want nil", err)
	}
	if err := Reads(t.Context(), decides, cpName, refs); !apierrors.IsInternalError(err) {
		t.Errorf("Reads() without a user = %v, want an InternalError", err)
	}
	broken := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", errors.New("no answer")
	})
	if err := Reads(ctx, broken, cpName, refs); !apierrors.IsInternalError(err) {
		t.Errorf("Reads() without a decision = %v, want an InternalError", err)
	}
}

// TestReadsAreBounded checks that the number of access reviews does not follow the number of roles.
func TestReadsAreBounded(t *testing.T) {
	ctx := request.WithUser(t.Context(), alice)
	var refs []rbacv1alpha1.HubRoleRef
	for i := range authz.MaxReviews {
		name := fmt.Sprint("r", i)
		refs = append(refs, rbacv1alpha1.HubRoleRef{Kind: "ClusterRole", Name: name}, rbacv1alpha1.HubRoleRef{Kind: "Role", Namespace: "a", Name: name},
			rbacv1alpha1.HubRoleRef{Kind: "Role", Namespace: name, Name: name})
	}
	for name, test := range map[string]struct {
		refs    []rbacv1alpha1.HubRoleRef
		allowed string
		reviews int
		ok      func(error) bool
	}{
		"all roles":        {refs, "/", 2, func(err error) bool { return err == nil }},
		"single roles":     {refs, "/r", authz.MaxReviews, apierrors.IsInvalid},
		"one role":         {refs[:1], "/r", 1, func(err error) bool { return err == nil }},
		"no role":          {refs, "none", authz.MaxReviews, apierrors.IsInvalid},
		"roles one by one": {refs[:300], "/r", 2 + 100 + 1 + 100 + 200, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			reviews := 0
			err := Reads(ctx, authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				reviews++
				if object := a.GetNamespace() + "/" + a.GetName(); object == test.allowed || test.allowed == "/r" && a.GetName() != "" {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			}), cpName, test.refs)
			if reviews != test.reviews || !test.ok(err) {
				t.Errorf("Reads() = %v after %d reviews, want %d", err, reviews, test.reviews)
			}
			if apierrors.IsInvalid(err) && !strings.Contains(err.Error(), "spec.roleRefs") {
				t.Errorf("Reads() = %v, want an error of spec.roleRefs", err)
			}
		})
	}
}
