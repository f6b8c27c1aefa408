// Package clusterpermission serves ClusterPermissions. It refuses a ClusterPermission that cannot be
// delivered or that the caller may not grant, and delivers a stored one within the request.
package clusterpermission

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/validation"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/escalation"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// Options configure ClusterPermissions.
type Options struct {
	// Delivery writes the ManifestWorks.
	Delivery Delivery
	// Authorizer decides about the grants and reads of callers.
	Authorizer      authorizer.Authorizer
	EscalationCheck EscalationCheck
	// HubNamespaces is true if namespaceSelectors match the namespaces of the hub.
	HubNamespaces bool
}

// Definition returns the row of ClusterPermissions.
func Definition(o Options) definition.Resource {
	d := delivery{o.Delivery}
	g := &grants{check: o.EscalationCheck, authorizer: o.Authorizer, hubNamespaces: o.HubNamespaces, checker: &escalation.Checker{
		Authorizer: o.Authorizer,
		// Options without Delivery describe the row only.
		Delivered: func(ctx context.Context, namespace string) ([]workv1.Manifest, error) {
			return d.Delivered(ctx, namespace)
		},
	}}
	base := definition.Base{Object: &rbac.ClusterPermission{}}
	return definition.Resource{
		Name: "clusterpermissions", Singular: "clusterpermission", Kind: "ClusterPermission",
		ShortNames: []string{"cp"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{rbacv1alpha1.SchemeGroupVersion},
		Strategy: &definition.Strategy[*rbac.ClusterPermission]{
			Rules:            validation.ClusterPermission,
			Warnings:         validation.WarningsForClusterPermission,
			PrepareForCreate: func(ctx context.Context, c *rbac.ClusterPermission) { g.prepare(ctx, c, nil) },
			PrepareForUpdate: g.prepare,
			ServerStatus:     "approval",
		},
		Quota:  quota.Limits{Objects: 2_000, Bytes: 16 << 20},
		Limits: quota.ObjectLimits{SpecBytes: 512 << 10},
		Columns: definition.Columns[*rbac.ClusterPermission]{
			{Name: "Applied", Description: "Whether the ManifestWork is applied on the managed cluster.", Condition: rbacv1alpha1.ConditionAppliedRBACManifestWork},
			{Name: "Approval", Description: "The user who approved the spec, or the author of a pending change.", Value: approval},
			{Name: "Subjects", Description: "Subjects of the bindings.", Value: subjects},
			{Name: "Roles", Description: "Number of roles and cluster roles.", Wide: true, Value: func(c *rbac.ClusterPermission) any {
				return strconv.Itoa(one(c.Spec.ClusterRole) + length(c.Spec.Roles) + length(c.Spec.RoleRefs))
			}},
			{Name: "Bindings", Description: "Number of role bindings and cluster role bindings.", Wide: true, Value: func(c *rbac.ClusterPermission) any {
				return strconv.Itoa(one(c.Spec.ClusterRoleBinding) + length(c.Spec.ClusterRoleBindings) + length(c.Spec.RoleBindings))
			}},
			{Name: "Work", Description: "The ManifestWork that delivers the permissions.", Wide: true, Value: func(c *rbac.ClusterPermission) any {
				if isPending(c) && c.Status.Approval.Delivered == nil {
					return "<none>"
				}
				return render.WorkName(&rbacv1alpha1.ClusterPermission{ObjectMeta: c.ObjectMeta})
			}},
		},
		Wrap: func(store *definition.REST) rest.Storage { return &REST{REST: store, delivery: d, grants: g} },
		Subresources: map[string]func(*definition.REST) rest.Storage{
			"approval": func(store *definition.REST) rest.Storage { return &approvalREST{base, store, g, d} },
			"rendered": func(store *definition.REST) rest.Storage { return &renderedREST{base, store, g, d} },
		},
	}
}

func approval(c *rbac.ClusterPermission) any {
	switch a := c.Status.Approval; {
	case isPending(c):
		return fmt.Sprintf("Pending (generation %d by %s)", a.Pending.Generation, a.Pending.RequestedBy)
	case a != nil && a.Approved != nil && a.Approved.Generation == c.Generation:
		return "By " + a.Approved.ApprovedBy
	}
	return "<none>"
}

// shownSubjects is the number of subjects that the table names. It counts the others.
const shownSubjects = 3

func subjects(c *rbac.ClusterPermission) any {
	var shown []string
	seen := map[string]bool{}
	for _, s := range c.Spec.Subjects() {
		name := s.Kind + "/" + s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			name = s.Kind + "/" + s.Namespace + ":" + s.Name
		}
		if !seen[name] {
			seen[name] = true
			shown = append(shown, name)
		}
	}
	if more := len(shown) - shownSubjects; more > 0 {
		return fmt.Sprintf("%s + %d more", strings.Join(shown[:shownSubjects], ","), more)
	}
	return strings.Join(shown, ",")
}

func length[T any](list *[]T) int { return len(ptr.Deref(list, nil)) }

func one[T any](p *T) int {
	if p == nil {
		return 0
	}
	return 1
}
