package executor

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// action completes "user cannot".
func (q question) action() string {
	switch {
	case q.former && q.agent:
		return fmt.Sprintf("set the executor of a ManifestWork that acts as the agent of cluster %s, because its objects would be removed or taken over", q.namespace)
	case q.former:
		return fmt.Sprintf("replace ServiceAccount %s of cluster %s as the executor of a ManifestWork, because its objects would be removed or taken over", q.executor, q.namespace)
	case q.agent:
		return fmt.Sprintf("write a ManifestWork without spec.executor, which acts as the agent of cluster %s", q.namespace)
	}
	return fmt.Sprintf("make ServiceAccount %s of cluster %s the executor of a ManifestWork", q.executor, q.namespace)
}

// refusal returns an error that contains the permission that would allow the executor.
func (c *Checker) refusal(ctx context.Context, q question) error {
	text := fmt.Sprintf("user %q cannot %s; grant it with %s", q.caller.GetName(), q.action(),
		rbac.RoleText(q.namespace, rbac.RuleFor(ResourceAttributes(q.namespace, q.name))))
	switch {
	case q.agent && q.former:
	case q.agent:
		text += ", or set an executor that the user is allowed to use"
	case q.ineffective != "":
		text += "; " + q.ineffective
	case c.isAccount(ctx, q):
		text += fmt.Sprintf(", or with a ManagedServiceAccountBinding in namespace %q that binds the user to ManagedServiceAccount %q", q.namespace, q.executor.Name)
	}
	return errors.New(text)
}

// isAccount reports whether the executor is known to be the ServiceAccount of the
// ManagedServiceAccount of its name. It only improves the message.
func (c *Checker) isAccount(ctx context.Context, q question) bool {
	if c.Bindings == nil || c.Accounts == nil {
		return false
	}
	on, known, err := c.Accounts(ctx, q.namespace, q.executor.Name)
	return err == nil && known && on == q.executor
}

func (q question) refuse(cause error) error {
	return apierrors.NewForbidden(workv1.Resource(resource), q.work, cause)
}
