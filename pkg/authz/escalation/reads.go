package escalation

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// Reads tells why the caller of ctx may not refer to roles of the hub in the
// ClusterPermission of this name: to deliver a role is to show it, so the caller
// needs get on each. It is nil if the caller may, a Forbidden error that names
// every role which it may not get, or an internal one.
func Reads(ctx context.Context, authz authorizer.Authorizer, name string, refs []rbacv1alpha1.HubRoleRef) error {
	caller, err := callerOf(ctx)
	if err != nil {
		return err
	}
	asked := map[roleKey]bool{}
	var lines []string
	for _, ref := range refs {
		key := hubRole(ref)
		if asked[key] {
			continue
		}
		asked[key] = true
		rule := rbacv1.PolicyRule{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{key.name}, Verbs: []string{"get"},
		}
		takes := "a ClusterRole"
		if key.kind == kindRole {
			rule.Resources, takes = []string{"roles"}, fmt.Sprintf("a Role in namespace %q", key.namespace)
		}
		allowed, err := allows(ctx, authz, authorizer.AttributesRecord{
			User:            caller,
			Verb:            rule.Verbs[0],
			APIGroup:        rbacv1.GroupName,
			APIVersion:      "*",
			Resource:        rule.Resources[0],
			Namespace:       key.namespace,
			Name:            key.name,
			ResourceRequest: true,
		})
		if err != nil {
			return err
		}
		if !allowed {
			lines = append(lines, fmt.Sprintf("%s: it takes %s with the rule %s", key, takes, ruleText(rule)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return apierrors.NewForbidden(rbacv1alpha1.Resource(resource), name, fmt.Errorf(
		"user %q may not read these roles of the hub, and so not deliver them:\n%s",
		caller.GetName(), strings.Join(bounded(lines, maxLines, maxLineBytes), "\n")))
}

// ReadsNamespaces tells why the caller of ctx may not be shown which namespaces of
// the hub the ClusterPermission of this name selects: that takes list on them. It is
// nil if the caller may, a Forbidden error, or an internal one.
func ReadsNamespaces(ctx context.Context, authz authorizer.Authorizer, name string) error {
	caller, err := callerOf(ctx)
	if err != nil {
		return err
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}}
	allowed, err := allows(ctx, authz, authorizer.AttributesRecord{
		User:            caller,
		Verb:            rule.Verbs[0],
		APIVersion:      "*",
		Resource:        rule.Resources[0],
		ResourceRequest: true,
	})
	if err != nil || allowed {
		return err
	}
	return apierrors.NewForbidden(rbacv1alpha1.Resource(resource), name, fmt.Errorf(
		"user %q may not read the namespaces of the hub, and so not see which of them are selected: it takes a ClusterRole with the rule %s",
		caller.GetName(), ruleText(rule)))
}
