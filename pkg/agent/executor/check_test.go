package executor

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
)

// basicUserRemoved is a cluster whose administrator has removed the permissions that all users have by
// default.
type basicUserRemoved struct {
	authorizationv1client.SelfSubjectRulesReviewInterface
}

func (basicUserRemoved) Create(context.Context, *authorizationv1.SelfSubjectRulesReview, metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error) {
	return nil, apierrors.NewForbidden(authorizationv1.Resource("selfsubjectrulesreviews"), "", errors.New("no rule"))
}

// TestExecutorWithoutOwnRules checks that the message names the executor and the rule that it lacks if it
// is not allowed to read its own rules.
func TestExecutorWithoutOwnRules(t *testing.T) {
	t.Parallel()
	a := newAccount("deployer")
	a.rules = basicUserRemoved{}
	c := &check{account: a, held: map[string][]rbacv1.PolicyRule{}}
	_, err := c.rulesIn(t.Context(), "web")
	var refusal *work.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("rulesIn() = %v, want a refusal", err)
	}
	const want = "not applied: the executor team/deployer cannot read its own permissions, which Roles and bindings require; grant it to the executor with a ClusterRole, " +
		"bound by a ClusterRoleBinding, that contains the rule {apiGroups: [authorization.k8s.io], resources: [selfsubjectrulesreviews], verbs: [create]}: "
	if !strings.HasPrefix(refusal.Message, want) {
		t.Errorf("message = %s, want the prefix %s", refusal.Message, want)
	}
}
