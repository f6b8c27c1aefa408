// Package clusterpermission defines how ClusterPermissions are served: what
// cannot be delivered is refused, and what is stored is delivered within the request.
package clusterpermission

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// Options are what ClusterPermissions need beside their storage.
type Options struct {
	// Delivery carries them to managed clusters.
	Delivery Delivery
	// Authorizer tells what callers may grant and see.
	Authorizer authorizer.Authorizer
	// EscalationCheck says what becomes of those whose author may not grant what they grant.
	EscalationCheck EscalationCheck
	// HubNamespaces says that namespaceSelectors select namespaces of the hub.
	HubNamespaces bool
}

// Definition is the row of ClusterPermissions.
func Definition(o Options) definition.Resource {
	d := delivering{o.Delivery}
	g := &grants{check: o.EscalationCheck, authorizer: o.Authorizer, hubNamespaces: o.HubNamespaces, checker: &escalation.Checker{
		Authorizer: o.Authorizer,
		Delivered: func(ctx context.Context, namespace string) ([]workv1.Manifest, error) {
			return d.Delivered(ctx, namespace)
		},
	}}
	return definition.Resource{
		Name: "clusterpermissions", Singular: "clusterpermission", Kind: "ClusterPermission",
		ShortNames: []string{"cp"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{rbacv1alpha1.SchemeGroupVersion},
		New:      func() runtime.Object { return &rbac.ClusterPermission{} },
		NewList:  func() runtime.Object { return &rbac.ClusterPermissionList{} },
		Strategy: &definition.Strategy[*rbac.ClusterPermission]{
			Spec:                 func(c *rbac.ClusterPermission) any { return &c.Spec },
			Status:               func(c *rbac.ClusterPermission) any { return &c.Status },
			Validate:             validation.ValidateClusterPermission,
			ValidateUpdate:       validation.ValidateClusterPermissionUpdate,
			ValidateStatusUpdate: validation.ValidateClusterPermissionStatusUpdate,
			Warnings:             validation.WarningsForClusterPermission,
			PrepareForCreate:     func(ctx context.Context, c *rbac.ClusterPermission) { g.prepare(ctx, c, nil) },
			PrepareForUpdate:     g.prepare,
			ServerStatus: &definition.ServerStatus[*rbac.ClusterPermission]{
				Name: "approval", Part: func(c *rbac.ClusterPermission) any { return &c.Status.Approval },
			},
		},
		Quota:  quota.Limits{Objects: 2_000, Bytes: 16 << 20},
		Limits: quota.ObjectLimits{SpecBytes: 512 << 10},
		Columns: definition.Columns[*rbac.ClusterPermission]{
			definition.ConditionColumn("Applied", "Whether everything delivered is applied on the managed cluster.",
				rbacv1alpha1.ConditionAppliedRBACManifestWork, func(c *rbac.ClusterPermission) []metav1.Condition { return c.Status.Conditions }),
			{Name: "Approval", Description: "Whether the spec waits for approval, or who has approved it.", Value: approval},
			{Name: "Subjects", Description: "Who gets the permissions.", Value: subjects},
			{Name: "Roles", Description: "Number of roles and cluster roles.", Wide: true, Value: func(c *rbac.ClusterPermission) any {
				return strconv.Itoa(one(c.Spec.ClusterRole) + length(c.Spec.Roles) + length(c.Spec.RoleRefs))
			}},
			{Name: "Bindings", Description: "Number of role bindings and cluster role bindings.", Wide: true, Value: func(c *rbac.ClusterPermission) any {
				return strconv.Itoa(one(c.Spec.ClusterRoleBinding) + length(c.Spec.ClusterRoleBindings) + length(c.Spec.RoleBindings))
			}},
			{Name: "Work", Description: "The ManifestWork that delivers the permissions.", Wide: true, Value: func(c *rbac.ClusterPermission) any {
				if waits(c) && c.Status.Approval.Delivered == nil {
					return "<none>"
				}
				return render.WorkName(&rbacv1alpha1.ClusterPermission{ObjectMeta: c.ObjectMeta})
			}},
		},
		Wrap: func(store *definition.REST) rest.Storage { return &REST{REST: store, delivery: d, grants: g} },
		Subresources: map[string]func(*definition.REST) rest.Storage{
			"approval": func(store *definition.REST) rest.Storage { return &approvalREST{store: store, grants: g, delivery: d} },
			"rendered": func(store *definition.REST) rest.Storage { return &renderedREST{store: store, grants: g, delivery: d} },
		},
	}
}

func approval(c *rbac.ClusterPermission) any {
	switch a := c.Status.Approval; {
	case waits(c):
		return fmt.Sprintf("Pending (generation %d by %s)", a.Pending.Generation, a.Pending.RequestedBy)
	case a != nil && a.Approved != nil && a.Approved.Generation == c.Generation:
		return "By " + a.Approved.ApprovedBy
	}
	return "<none>"
}

// shownSubjects is how many subjects the table names before it counts the rest.
const shownSubjects = 3

func subjects(c *rbac.ClusterPermission) any {
	var shown []string
	seen := map[string]bool{}
	add := func(subject *rbacv1.Subject, more []rbacv1.Subject) {
		if subject != nil {
			more = append([]rbacv1.Subject{*subject}, more...)
		}
		for _, s := range more {
			name := s.Kind + "/" + s.Name
			if s.Kind == rbacv1.ServiceAccountKind {
				name = s.Kind + "/" + s.Namespace + ":" + s.Name
			}
			if !seen[name] {
				seen[name] = true
				shown = append(shown, name)
			}
		}
	}
	if binding := c.Spec.ClusterRoleBinding; binding != nil {
		add(binding.Subject, binding.Subjects)
	}
	for _, binding := range ptr.Deref(c.Spec.ClusterRoleBindings, nil) {
		add(binding.Subject, binding.Subjects)
	}
	for _, binding := range ptr.Deref(c.Spec.RoleBindings, nil) {
		add(binding.Subject, binding.Subjects)
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
