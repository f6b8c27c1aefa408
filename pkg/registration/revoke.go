package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// Revoke revokes the access of a cluster. Afterwards, its agents can only read their own ManagedCluster. It revokes the
// widest permissions first and continues after a failure. It uses no cache, so any replica can call it at any time.
func (a *Access) Revoke(ctx context.Context, cluster string) error {
	var errs []error
	if !sharesRole(cluster) {
		errs = append(errs, a.narrow(ctx, cluster))
	}
	errs = append(errs, a.revokeRoleBindings(ctx, cluster))
	err := a.hub.CoordinationV1().Leases(cluster).Delete(ctx, LeaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("deleting the Lease: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("revoking the access of ManagedCluster %q: %w", cluster, err)
	}
	return nil
}

// Regroup binds the permissions that Revoke leaves to the given groups. A withdrawn claim changes the driver of a denied
// cluster, and with it the groups of its agents. An interrupted grant or a failed revocation can leave the role without
// its binding, and the agents must be able to read that they are denied. If groups is empty, the binding keeps its
// subjects. Regroup creates nothing for a cluster without a role.
func (a *Access) Regroup(ctx context.Context, cluster string, groups []string) error {
	if sharesRole(cluster) || len(groups) == 0 {
		return nil
	}
	binding := a.clusterRoleBinding(cluster, groups)
	if err := binding.Kept(); !errors.Is(err, reconcile.ErrIncomplete) {
		return err
	}
	_, err := a.hub.RbacV1().ClusterRoles().Get(ctx, accessName(cluster), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = binding.Keep(ctx)
	}
	if err != nil && !errors.Is(err, reconcile.ErrTerminating) {
		return fmt.Errorf("changing the groups of ManagedCluster %q: %w", cluster, err)
	}
	return nil
}

// Revoked reports, from the caches, whether Revoke would write nothing.
func (a *Access) Revoked(cluster string) (bool, error) {
	if !sharesRole(cluster) {
		role, err := reconcile.OrNil(a.clusterRoles.Get(accessName(cluster)))
		if err != nil || role != nil && setRules(role.DeepCopy(), deniedRules(cluster)) {
			return false, err
		}
		binding, err := reconcile.OrNil(a.clusterRoleBindings.Get(accessName(cluster)))
		if err != nil || binding != nil && binding.RoleRef != clusterRoleRef(accessName(cluster)) {
			return false, err
		}
	}
	bindings, err := a.roleBindings.RoleBindings(cluster).List(labels.Everything())
	if err != nil || slices.ContainsFunc(bindings, func(binding *rbacv1.RoleBinding) bool {
		return ownBinding(cluster, binding.Name) && (binding.DeletionTimestamp == nil || len(binding.Subjects) > 0)
	}) {
		return false, err
	}
	lease, err := reconcile.OrNil(a.leases.Leases(cluster).Get(LeaseName))
	return lease == nil && err == nil, err
}

// Remove removes the objects that Revoke leaves. It returns false while an object remains, for example because of a
// finalizer.
func (a *Access) Remove(ctx context.Context, cluster string) (done bool, err error) {
	if err := a.Revoke(ctx, cluster); err != nil {
		return false, err
	}
	if sharesRole(cluster) {
		return true, nil
	}
	unbound, err := gone(ctx, a.hub.RbacV1().ClusterRoleBindings(), accessName(cluster))
	if err == nil {
		done, err = gone(ctx, a.hub.RbacV1().ClusterRoles(), accessName(cluster))
	}
	if err != nil {
		return false, fmt.Errorf("deleting the roles and bindings of ManagedCluster %q: %w", cluster, err)
	}
	return done && unbound, nil
}

// gone deletes an object, and reports whether it no longer exists.
func gone[T reconcile.Object[T]](ctx context.Context, objects reconcile.Client[T], name string) (bool, error) {
	err := objects.Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil {
		_, err = objects.Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// narrow reduces the role of a cluster to reading its own ManagedCluster. If the role cannot be changed, narrow deletes
// its binding.
func (a *Access) narrow(ctx context.Context, cluster string) error {
	name := accessName(cluster)
	roles, bindings := a.hub.RbacV1().ClusterRoles(), a.hub.RbacV1().ClusterRoleBindings()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		role, err := roles.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !setRules(role, deniedRules(cluster)) {
			return nil
		}
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		if unbound := bindings.Delete(ctx, name, metav1.DeleteOptions{}); unbound != nil && !apierrors.IsNotFound(unbound) {
			err = errors.Join(err, unbound)
		}
		return fmt.Errorf("reducing ClusterRole %s: %w", name, err)
	}
	binding, err := bindings.Get(ctx, name, metav1.GetOptions{})
	if err == nil && binding.RoleRef != clusterRoleRef(name) {
		err = bindings.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("checking ClusterRoleBinding %s: %w", name, err)
	}
	return nil
}

// revokeRoleBindings deletes the RoleBindings of a cluster in its namespace.
func (a *Access) revokeRoleBindings(ctx context.Context, cluster string) error {
	list, err := a.hub.RbacV1().RoleBindings(cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing RoleBindings: %w", err)
	}
	var errs []error
	for i := range list.Items {
		binding := &list.Items[i]
		if !ownBinding(cluster, binding.Name) {
			continue
		}
		if err := a.removeRoleBinding(ctx, binding); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting RoleBinding %s: %w", binding.Name, err))
		}
	}
	return errors.Join(errs...)
}

// removeRoleBinding deletes a RoleBinding. Before that it removes the server's finalizer and the subjects, so that
// another finalizer cannot keep the binding in force. If RBAC forbids the removal of the subjects, it removes all
// finalizers.
func (a *Access) removeRoleBinding(ctx context.Context, binding *rbacv1.RoleBinding) error {
	bindings := a.hub.RbacV1().RoleBindings(binding.Namespace)
	change := func(fix func(*rbacv1.RoleBinding)) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			current, err := bindings.Get(ctx, binding.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			fix(current)
			_, err = bindings.Update(ctx, current, metav1.UpdateOptions{})
			return err
		})
	}
	if len(binding.Finalizers) > 0 {
		err := change(func(update *rbacv1.RoleBinding) {
			update.Finalizers = slices.DeleteFunc(update.Finalizers, func(f string) bool { return f == workv1.ManifestWorkFinalizer })
			if len(update.Finalizers) > 0 {
				update.Subjects = nil
			}
		})
		if apierrors.IsForbidden(err) {
			err = change(func(update *rbacv1.RoleBinding) { update.Finalizers = nil })
		}
		if err != nil {
			return err
		}
	}
	return bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}})
}
