// Package multiclusterroleassignment serves MulticlusterRoleAssignments. It refuses a MulticlusterRoleAssignment if the
// caller may not select its clusters or may not make its grants on them.
package multiclusterroleassignment

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/validation"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/roleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	render "open-cluster-management.io/hub-apiserver/pkg/render/roleassignment"
)

// Planner plans the grants of MulticlusterRoleAssignments.
type Planner interface {
	// Plan returns the grants on each cluster. If pass is nil, authors may grant everything. If only is not nil, the
	// plan omits the grants of other role assignments.
	Plan(ctx context.Context, a *rbacv1beta1.MulticlusterRoleAssignment, pass multiclusterroleassignment.Pass, only map[string]bool) (*multiclusterroleassignment.Plan, error)
}

// Options configure MulticlusterRoleAssignments. Options without Planner describe the row only.
type Options struct {
	Planner Planner
	Checker *roleassignment.Checker
	// Checks limits the concurrent requests of a caller that check permissions on clusters.
	Checks *callers.Bound
	// RoleExists reports whether the hub has a ClusterRole.
	RoleExists func(ctx context.Context, name string) (bool, error)
	// Refuse is true if the server refuses grants that the author may not make. Warn is true if it returns
	// warnings instead.
	Refuse, Warn bool
}

// Definition returns the row of MulticlusterRoleAssignments.
func Definition(o Options) definition.Resource {
	return definition.Resource{
		Name: "multiclusterroleassignments", Singular: "multiclusterroleassignment", Kind: "MulticlusterRoleAssignment",
		ShortNames: []string{"mra"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{rbacv1beta1.SchemeGroupVersion},
		Strategy: &definition.Strategy[*rbac.MulticlusterRoleAssignment]{
			PrepareForCreate: func(ctx context.Context, a *rbac.MulticlusterRoleAssignment) {
				recordAuthors(ctx, a, nil)
				a.Status.Conditions = pendingConditions()
			},
			PrepareForUpdate: recordAuthors,
			PrepareForImport: func(ctx context.Context, a *rbac.MulticlusterRoleAssignment) {
				a.Status.Preview = nil
				if len(a.Status.Authors) == 0 {
					// Another server did not record the authors. The importer decides about all grants.
					recordAuthors(ctx, a, nil)
				}
			},
			PrepareForStatusUpdate: func(_ context.Context, a, _ *rbac.MulticlusterRoleAssignment) { a.Status.Preview = nil },
			Rules:                  validation.MulticlusterRoleAssignment,
			ServerStatus:           "authors",
		},
		Quota: quota.Limits{Objects: 1_000, Bytes: 32 << 20},
		// The status names up to 5,000 clusters.
		Limits: quota.ObjectLimits{StatusBytes: 512 << 10, StatusItems: 10_000},
		Columns: definition.Columns[*rbac.MulticlusterRoleAssignment]{
			{Name: "Subject", Description: "The subject that gets the roles.", Value: func(a *rbac.MulticlusterRoleAssignment) any {
				return render.SubjectName(&a.Spec.Subject)
			}},
			{Name: "Roles", Description: "The ClusterRoles.", Value: roles},
			{Name: "Clusters", Description: "The number of clusters that have applied all grants, and of all selected clusters.", Value: clusters},
			{Name: "Ready", Description: "Whether all role assignments are active on all selected clusters.", Condition: rbacv1beta1.ConditionReady},
			{Name: "Authors", Description: "The users who wrote the role assignments.", Wide: true, Value: func(a *rbac.MulticlusterRoleAssignment) any {
				var names []string
				for _, author := range a.Status.Authors {
					names = append(names, author.Username)
				}
				return strings.Join(names, ",")
			}},
		},
		Wrap: func(store *definition.REST) rest.Storage { return &REST{REST: store, Options: o} },
		Subresources: map[string]func(*definition.REST) rest.Storage{
			"rendered": func(store *definition.REST) rest.Storage {
				return &renderedREST{definition.Base{Object: &rbac.MulticlusterRoleAssignment{}}, store, o}
			},
		},
	}
}

// pendingConditions returns the conditions of a new object. They stay until the controller has written its
// ClusterPermissions.
func pendingConditions() []metav1.Condition {
	now := metav1.Now()
	return []metav1.Condition{
		{Type: rbacv1beta1.ConditionApplied, Status: metav1.ConditionUnknown, Reason: rbacv1beta1.ReasonApplyInProgress,
			Message: "The ClusterPermissions are not written yet.", ObservedGeneration: 1, LastTransitionTime: now},
		{Type: rbacv1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: rbacv1beta1.ReasonAssignmentsPending,
			Message: "The role assignments are not processed yet.", ObservedGeneration: 1, LastTransitionTime: now},
	}
}

// shownRoles is the number of ClusterRoles that the table names. It counts the others.
const shownRoles = 3

func roles(a *rbac.MulticlusterRoleAssignment) any {
	var shown []string
	seen := map[string]bool{}
	for _, assignment := range a.Spec.RoleAssignments {
		if !seen[assignment.ClusterRole] {
			seen[assignment.ClusterRole] = true
			shown = append(shown, assignment.ClusterRole)
		}
	}
	if more := len(shown) - shownRoles; more > 0 {
		return fmt.Sprintf("%s + %d more", strings.Join(shown[:shownRoles], ","), more)
	}
	return strings.Join(shown, ",")
}

func clusters(a *rbac.MulticlusterRoleAssignment) any {
	if a.Status.Clusters == nil {
		return "<unknown>"
	}
	return fmt.Sprintf("%d/%d", a.Status.Clusters.Ready, a.Status.Clusters.Selected)
}
