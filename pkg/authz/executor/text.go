package executor

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
)

// rule is the RBAC rule that allows to have works act as the executor of a name, as
// it can be written into a Role.
func rule(name string) string {
	return fmt.Sprintf("{apiGroups: [%s], resources: [%s], resourceNames: [%q], verbs: [%s]}", work.GroupName, resource, name, verb)
}

// what is asked, to be read after a user's name and "may".
func (q question) what() string {
	if q.agent {
		return fmt.Sprintf("have a work without spec.executor act as the agent of cluster %s", q.namespace)
	}
	return fmt.Sprintf("have a work act as ServiceAccount %s of cluster %s", q.executor, q.namespace)
}

// refusal says what would allow what was asked.
func (c *Checker) refusal(ctx context.Context, q question) error {
	text := fmt.Sprintf("user %q may not %s; it takes a Role in namespace %s with the rule %s",
		q.caller.GetName(), q.what(), q.namespace, rule(q.name))
	switch {
	case q.agent:
		text += ", or an executor that the user may name"
	case q.unhelpful != "":
		text += "; " + q.unhelpful
	case c.isAccount(ctx, q):
		text += fmt.Sprintf(", or a ManagedServiceAccountBinding in namespace %s that binds the user to ManagedServiceAccount %s", q.namespace, q.executor.Name)
	}
	return errors.New(text)
}

// isAccount tells whether the executor is known to be the ServiceAccount of the
// ManagedServiceAccount of its name. That is said only to help.
func (c *Checker) isAccount(ctx context.Context, q question) bool {
	if c.options.Bindings == nil || c.options.Accounts == nil {
		return false
	}
	on, known, err := c.options.Accounts.ServiceAccount(ctx, q.namespace, q.executor.Name)
	return err == nil && known && on == q.executor
}

func (q question) refuse(why error) error {
	return apierrors.NewForbidden(work.Resource(resource), q.work, why)
}
