package registration

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// Withdrawn returns a function that reports whether the agents of a cluster have no access to the hub, as
// after a denial or a deletion. The hub is read once. It can only be used for clusters that the hub has
// accepted before.
func Withdrawn(ctx context.Context, hub kubernetes.Interface) (func(cluster string) bool, error) {
	options := metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel}
	roles := sets.New[string]()
	err := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return hub.RbacV1().ClusterRoles().List(ctx, options)
	})).EachListItem(ctx, options, func(obj runtime.Object) error {
		role, ok := obj.(*rbacv1.ClusterRole)
		if ok && role.Name == accessName(role.Labels[clusterv1.ClusterNameLabel]) && setRules(role, deniedRules(role.Labels[clusterv1.ClusterNameLabel])) {
			roles.Insert(role.Name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the ClusterRoles of clusters: %w", err)
	}
	bound := sets.New[string]()
	err = pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return hub.RbacV1().ClusterRoleBindings().List(ctx, options)
	})).EachListItem(ctx, options, func(obj runtime.Object) error {
		if binding, ok := obj.(*rbacv1.ClusterRoleBinding); ok {
			bound.Insert(binding.Name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the ClusterRoleBindings of clusters: %w", err)
	}
	return func(cluster string) bool {
		return !sharesRole(cluster) && !(roles.Has(accessName(cluster)) && bound.Has(accessName(cluster)))
	}, nil
}
