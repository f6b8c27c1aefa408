package registration

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// Withdrawn returns a function that reports whether the agents of a cluster have no access to the hub, as
// after a denial or a deletion. The hub is read once. It can only be used for clusters that the hub has
// accepted before.
func Withdrawn(ctx context.Context, hub kubernetes.Interface) (func(cluster string) bool, error) {
	options := metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel}
	roles, err := hub.RbacV1().ClusterRoles().List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing the ClusterRoles of clusters: %w", err)
	}
	bindings, err := hub.RbacV1().ClusterRoleBindings().List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing the ClusterRoleBindings of clusters: %w", err)
	}
	bound, granted := sets.New[string](), sets.New[string]()
	for i := range bindings.Items {
		bound.Insert(bindings.Items[i].Name)
	}
	for i := range roles.Items {
		role := &roles.Items[i]
		cluster := role.Labels[clusterv1.ClusterNameLabel]
		if role.Name == accessName(cluster) && bound.Has(role.Name) && setRules(role, deniedRules(cluster)) {
			granted.Insert(cluster)
		}
	}
	return func(cluster string) bool { return !sharesRole(cluster) && !granted.Has(cluster) }, nil
}
