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

// bound returns the name of a ManagedServiceAccountBinding that lets a caller have
// works of a cluster act as an executor; "" if there is none. why then tells of a
// binding that names the caller and does not help all the same; "" if there is none
// of these either.
func (c *Checker) bound(ctx context.Context, caller user.Info, namespace string, executor types.NamespacedName) (binding, why string, err error) {
	bindings, err := c.options.Bindings.Bindings(ctx, namespace)
	if err != nil {
		return "", "", err
	}
	// An account has its name on every cluster, so that no binding of another one
	// has to be looked at.
	i := slices.IndexFunc(bindings, func(b authentication.ManagedServiceAccountBinding) bool {
		return b.DeletionTimestamp == nil && b.Spec.Ref.Name == executor.Name && b.Spec.Ref.Namespace == namespace &&
			slices.ContainsFunc(b.Spec.Subjects, func(subject rbacv1.Subject) bool { return names(subject, caller) })
	})
	if i < 0 {
		return "", "", nil
	}
	on, known, err := c.options.Accounts.ServiceAccount(ctx, namespace, executor.Name)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("asking what ManagedServiceAccount %s/%s is on the cluster: %w", namespace, executor.Name, err)
	case !known:
		return "", fmt.Sprintf("ManagedServiceAccountBinding %s binds the user to ManagedServiceAccount %s, which no agent has reported to be on this cluster",
			bindings[i].Name, executor.Name), nil
	case on != executor:
		return "", fmt.Sprintf("ManagedServiceAccountBinding %s binds the user to ManagedServiceAccount %s, which is ServiceAccount %s on this cluster",
			bindings[i].Name, executor.Name, on), nil
	}
	return bindings[i].Name, "", nil
}

// names tells whether a caller is a subject, as RBAC does.
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
