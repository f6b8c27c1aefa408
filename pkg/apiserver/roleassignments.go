package apiserver

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/roleassignment"
	assignmentcontroller "open-cluster-management.io/hub-apiserver/pkg/controllers/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/multiclusterroleassignment"
)

// checksPerCaller is the maximum number of concurrent requests of a caller that check permissions on clusters.
const checksPerCaller = 4

// assign builds the planner and the controller of MulticlusterRoleAssignments, if the server serves them.
func (a *assembly) assign() error {
	s, roles := a.server, a.server.hubRoles.Rbac().V1()
	if !a.generic.MergedResourceConfig.ResourceEnabled(rbacv1beta1.SchemeGroupVersion.WithResource("multiclusterroleassignments")) {
		return nil
	}
	client, err := dynamic.NewForConfig(a.hub)
	if err != nil {
		return fmt.Errorf("building the client of the hub: %w", err)
	}
	placements, err := assignmentcontroller.NewPlacements(client)
	if err != nil {
		return err
	}
	checker := &roleassignment.Checker{Authorizer: a.extra.Reviewer, Reviews: a.reviews, Delivered: a.deliverer.Delivered}
	clusters := s.informers.clusters.Cluster().V1().ManagedClusters()
	stored := s.informers.own.Rbac().V1alpha1().ClusterPermissions()
	planner := &assignmentcontroller.Planner{
		Sets: a.resolver, Clusters: clusters.Lister(), Placements: placements, Permissions: stored.Informer().GetIndexer(),
	}
	// A MulticlusterRoleAssignment cannot wait for approval.
	refuse := a.extra.EscalationCheck == clusterpermission.Enforce || a.extra.EscalationCheck == clusterpermission.Approve
	newPass := func(assignment *rbacv1beta1.MulticlusterRoleAssignment) assignmentcontroller.Pass {
		if !refuse {
			return nil
		}
		return checker.NewPass("controller of namespace "+assignment.Namespace, len(assignment.Status.Authors))
	}
	controller, err := assignmentcontroller.NewController(planner, newPass, s.clients.own.RbacV1beta1(), s.clients.own.RbacV1alpha1(), assignmentcontroller.Informers{
		Assignments: s.informers.own.Rbac().V1beta1().MulticlusterRoleAssignments(),
		Permissions: stored, Clusters: clusters,
		Sets: s.informers.sets.Cluster().V1beta2().ManagedClusterSets(),
	})
	if err != nil {
		return err
	}
	s.controllers = append(s.controllers, controller.Run)
	s.hooks["placement-decisions"] = s.whenServed(assignmentcontroller.PlacementDecisionResource, placements.Run)
	a.assignments = &multiclusterroleassignment.Options{
		Planner: planner, Checker: checker, Checks: callers.NewBound("checks of role assignments", "", checksPerCaller, requestRetrySeconds),
		Refuse: refuse, Warn: a.extra.EscalationCheck == clusterpermission.Warn,
		RoleExists: func(ctx context.Context, name string) (bool, error) {
			if _, err := roles.ClusterRoles().Lister().Get(name); err == nil {
				return true, nil
			}
			// The cache may not contain a new ClusterRole yet.
			role, err := reconcile.OrNil(s.hub.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{}))
			return role != nil && err == nil, err
		},
	}
	return nil
}
