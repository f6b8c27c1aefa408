package permissions

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/utils/ptr"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	authenticationclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
	authenticationlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// Sources read the objects on which ClusterPermissions depend. They read objects that a cache does not
// contain from the API server, because the cache may lag behind.
type Sources struct {
	Accounts       authenticationclient.ManagedServiceAccountsGetter
	CachedAccounts authenticationlisters.ManagedServiceAccountLister
	Addons         Addons
	// HubRoles reads the roles of the hub.
	HubRoles           rbacclient.RbacV1Interface
	CachedRoles        rbaclisters.RoleLister
	CachedClusterRoles rbaclisters.ClusterRoleLister
	// Namespaces are the namespaces that selectors match.
	Namespaces Namespaces
}

// Addons finds the namespace in which the agent of the upstream add-on managed-serviceaccount keeps the
// ServiceAccounts of a cluster. That agent does not report it.
type Addons interface {
	PublicAgent(ctx context.Context, cluster string) (render.PublicAgent, error)
}

// inputs reads all objects on which a ClusterPermission depends. If ask is false, an object that is not
// cached counts as missing.
func (s *Sources) inputs(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, ask bool) (render.Inputs, error) {
	var in render.Inputs
	var err error
	if in.Accounts, err = s.accounts(ctx, permission, ask); err != nil {
		return in, err
	}
	if len(in.Accounts) > 0 {
		if in.PublicAgent, err = s.Addons.PublicAgent(ctx, permission.Namespace); err != nil {
			return in, fmt.Errorf("looking up the add-on of cluster %s: %w", permission.Namespace, err)
		}
	}
	if in.HubRoles, err = s.hubRoles(ctx, permission, ask); err != nil {
		return in, err
	}
	if render.HasSelectors(permission) {
		if in.Namespaces, in.NamespacesKnown, err = s.Namespaces.list(permission.Namespace); err != nil {
			return in, err
		}
	}
	return in, nil
}

// ServiceAccount returns the ServiceAccount of a ManagedServiceAccount on its cluster. It is
// unknown if the account does not exist, is being deleted, or was not reported by an agent.
func (s *Sources) ServiceAccount(ctx context.Context, namespace, account string) (on types.NamespacedName, known bool, err error) {
	found, err := s.account(ctx, namespace, account, true)
	if found == nil || err != nil {
		return on, false, err
	}
	agent, err := s.Addons.PublicAgent(ctx, namespace)
	if err != nil {
		return on, false, fmt.Errorf("looking up the add-on of cluster %s: %w", namespace, err)
	}
	on, absent := render.ServiceAccount(found, agent)
	return on, absent == "", nil
}

// accounts reads the ManagedServiceAccounts that a ClusterPermission names.
func (s *Sources) accounts(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, ask bool) (render.Accounts, error) {
	accounts := render.Accounts{}
	for _, name := range render.AccountNames(permission) {
		account, err := s.account(ctx, permission.Namespace, name, ask)
		if err != nil {
			return nil, err
		}
		if account != nil {
			accounts[name] = account
		}
	}
	return accounts, nil
}

// account reads a ManagedServiceAccount. It returns nil if the account does not exist.
func (s *Sources) account(ctx context.Context, namespace, name string, ask bool) (*authenticationv1beta1.ManagedServiceAccount, error) {
	account, err := s.CachedAccounts.ManagedServiceAccounts(namespace).Get(name)
	if err != nil && ask {
		// A hub that does not serve ManagedServiceAccounts also returns 404.
		account, err = s.Accounts.ManagedServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking up ManagedServiceAccount %s/%s: %w", namespace, name, err)
	}
	return account, nil
}

// hubRoles reads the hub roles to which a ClusterPermission refers.
func (s *Sources) hubRoles(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, ask bool) (render.HubRoles, error) {
	roles := render.HubRoles{}
	for _, key := range render.HubRoleKeys(permission) {
		rules, err := s.rules(ctx, key, ask)
		switch {
		case err == nil:
			roles[key] = rules
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("looking up %s of the hub: %w", key, err)
		}
	}
	return roles, nil
}

func (s *Sources) rules(ctx context.Context, key render.ObjectKey, ask bool) ([]rbacv1.PolicyRule, error) {
	if key.Namespace == "" {
		role, err := s.CachedClusterRoles.Get(key.Name)
		if err != nil && ask {
			role, err = s.HubRoles.ClusterRoles().Get(ctx, key.Name, metav1.GetOptions{})
		}
		return ptr.Deref(role, rbacv1.ClusterRole{}).Rules, err
	}
	role, err := s.CachedRoles.Roles(key.Namespace).Get(key.Name)
	if err != nil && ask {
		role, err = s.HubRoles.Roles(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	}
	return ptr.Deref(role, rbacv1.Role{}).Rules, err
}
