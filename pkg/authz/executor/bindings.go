package executor

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
)

// bound returns the name of a ManagedServiceAccountBinding that allows a caller to use an executor of a cluster; "" if
// there is none. If a binding names the caller but has no effect, ineffective explains why.
func (c *Checker) bound(ctx context.Context, caller user.Info, namespace string, executor types.NamespacedName) (binding, ineffective string, err error) {
	bindings, err := c.Bindings(ctx, namespace)
	if err != nil {
		return "", "", err
	}
	// The ServiceAccount has the name of its account, so bindings of other accounts do not matter.
	i := slices.IndexFunc(bindings, func(b authentication.ManagedServiceAccountBinding) bool {
		return b.DeletionTimestamp == nil && b.Spec.Ref.Name == executor.Name && b.Spec.Ref.Namespace == namespace &&
			slices.ContainsFunc(b.Spec.Subjects, func(subject rbacv1.Subject) bool { return names(subject, caller) })
	})
	if i < 0 {
		return "", "", nil
	}
	on, known, err := c.Accounts(ctx, namespace, executor.Name)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("reading the ServiceAccount of ManagedServiceAccount %s/%s: %w", namespace, executor.Name, err)
	case !known:
		return "", fmt.Sprintf("ManagedServiceAccountBinding %q binds the user to ManagedServiceAccount %q, but has no effect: no agent has reported the account on this cluster",
			bindings[i].Name, executor.Name), nil
	case on != executor:
		return "", fmt.Sprintf("ManagedServiceAccountBinding %q binds the user to ManagedServiceAccount %q, but has no effect: the account is ServiceAccount %s on this cluster",
			bindings[i].Name, executor.Name, on), nil
	}
	return bindings[i].Name, "", nil
}

// names reports whether a subject includes a caller, as RBAC does.
func names(subject rbacv1.Subject, caller user.Info) bool {
	switch subject.Kind {
	case rbacv1.UserKind:
		return subject.Name == caller.GetName()
	case rbacv1.GroupKind:
		return slices.Contains(caller.GetGroups(), subject.Name)
	case rbacv1.ServiceAccountKind:
		return serviceaccount.MatchesUsername(subject.Namespace, subject.Name, caller.GetName())
	}
	return false
}
