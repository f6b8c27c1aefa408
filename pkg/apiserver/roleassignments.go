package apiserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"

	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/roleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedclusterset"
	assignmentcontroller "open-cluster-management.io/hub-apiserver/pkg/controllers/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/multiclusterroleassignment"
)

// checksPerCaller is the maximum number of concurrent requests of a caller that check permissions on clusters.
const checksPerCaller = 4

// roleAssignments serve MulticlusterRoleAssignments.
type roleAssignments struct {
	options    multiclusterroleassignment.Options
	placements *assignmentcontroller.Placements
	hub        discovery.DiscoveryInterface
	controller *assignmentcontroller.Controller
}

// roleAssignments builds the planner and the controller. It returns nil if the server does not serve
// MulticlusterRoleAssignments.
func (c CompletedConfig) roleAssignments(clients *clients, informers informerFactories, resolver *managedclusterset.Resolver, hub kubernetes.Interface, roles rbacinformers.Interface, deliverer *permissions.Deliverer, reviews *callers.Reviews) (*roleAssignments, error) {
	if !c.generic.MergedResourceConfig.ResourceEnabled(rbacv1beta1.SchemeGroupVersion.WithResource("multiclusterroleassignments")) {
		return nil, nil
	}
	client, err := dynamic.NewForConfig(c.hub)
	if err != nil {
		return nil, fmt.Errorf("building the client of the hub: %w", err)
	}
	placements, err := assignmentcontroller.NewPlacements(client)
	if err != nil {
		return nil, err
	}
	checker := &roleassignment.Checker{Authorizer: c.extra.Reviewer, Reviews: reviews, Delivered: deliverer.Delivered}
	clusters := informers.clusters.Cluster().V1().ManagedClusters()
	stored := informers.own.Rbac().V1alpha1().ClusterPermissions()
	planner := &assignmentcontroller.Planner{
		Sets: resolver, Clusters: clusters.Lister(), Placements: placements, Permissions: stored.Informer().GetIndexer(),
	}
	// A MulticlusterRoleAssignment cannot wait for approval.
	refuse := c.extra.EscalationCheck == clusterpermission.Enforce || c.extra.EscalationCheck == clusterpermission.Approve
	newPass := func(a *rbacv1beta1.MulticlusterRoleAssignment) assignmentcontroller.Pass {
		if !refuse {
			return nil
		}
		return checker.NewPass("controller of namespace "+a.Namespace, len(a.Status.Authors))
	}
	controller, err := assignmentcontroller.NewController(planner, newPass, clients.own.RbacV1beta1(), clients.own.RbacV1alpha1(), assignmentcontroller.Informers{
		Assignments: informers.own.Rbac().V1beta1().MulticlusterRoleAssignments(),
		Permissions: stored, Clusters: clusters,
		Sets: informers.sets.Cluster().V1beta2().ManagedClusterSets(),
	})
	if err != nil {
		return nil, err
	}
	return &roleAssignments{placements: placements, hub: hub.Discovery(), controller: controller, options: multiclusterroleassignment.Options{
		Planner: planner, Checker: checker, Checks: callers.NewBound("checks of role assignments", "", checksPerCaller, requestRetrySeconds), Refuse: refuse, Warn: c.extra.EscalationCheck == clusterpermission.Warn,
		RoleExists: func(ctx context.Context, name string) (bool, error) {
			if _, err := roles.ClusterRoles().Lister().Get(name); err == nil {
				return true, nil
			}
			// The cache may not contain a new ClusterRole yet.
			_, err := hub.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		},
	}}, nil
}

// run watches PlacementDecisions when the hub serves them, until ctx ends.
func (r *roleAssignments) run(ctx context.Context) {
	if waitUntilServed(ctx, r.hub, assignmentcontroller.PlacementDecisionResource) {
		r.placements.Run(ctx)
	}
}
