package managedserviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// AgentRoleName is the name of the Role and the RoleBinding in the namespace of a cluster that allow
	// its agent to access the Secrets of its accounts.
	AgentRoleName = clusterv1.AgentSecretsAccess

	// secretDelay collects new Secrets: a Role with thousands of names is too large to write for each of them. It is
	// shorter than the time that agents wait for access before they report a failure.
	secretDelay = 500 * time.Millisecond
)

// AgentRoleController allows the agent of a cluster to create Secrets, and to read and change only
// the Secrets that it created for its accounts. RBAC cannot limit creation by name. The agent
// cannot access a Secret that another client created, regardless of its name.
type AgentRoleController struct {
	reconcile.Loop
	AgentRoleInformers
	hub kubernetes.Interface
}

// AgentRoleInformers are the informers of an AgentRoleController. The caller starts them.
type AgentRoleInformers struct {
	Accounts accountinformers.ManagedServiceAccountInformer
	Clusters clusterinformers.ManagedClusterInformer
	// Roles and Bindings contain at least the objects with the label of the name of a cluster.
	Roles    rbacinformers.RoleInformer
	Bindings rbacinformers.RoleBindingInformer
	Secrets  Secrets
	// Groups returns the groups of the agents of a cluster on the hub. It returns none while they are unknown. If it is
	// nil, they are clusterv1.AgentGroups.
	Groups func(cluster string) []string
	// Registrations change the result of Groups for the cluster with their name. It may be nil.
	Registrations cache.SharedIndexInformer
}

// NewAgentRoleController returns an AgentRoleController.
func NewAgentRoleController(hub kubernetes.Interface, informers AgentRoleInformers) *AgentRoleController {
	a := &AgentRoleController{AgentRoleInformers: informers, hub: hub}
	a.Loop = reconcile.Loop{
		Name:      "managedserviceaccount-access",
		Reconcile: a.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: informers.Accounts.Informer(), Keys: reconcile.Keys(namespaceKeys)},
			{Informer: informers.Clusters.Informer(), Keys: reconcile.Keys(clusterKeys)},
			{Informer: informers.Roles.Informer(), Keys: reconcile.Keys(ownKeys)},
			{Informer: informers.Bindings.Informer(), Keys: reconcile.Keys(ownKeys)},
			{Informer: informers.Secrets.Informer, Keys: reconcile.Keys(namespaceKeys), Delay: secretDelay},
		},
	}
	if informers.Registrations != nil {
		a.Loop.Feeds = append(a.Loop.Feeds, reconcile.Feed{Informer: informers.Registrations, Keys: reconcile.Keys(clusterKeys)})
	}
	if a.Groups == nil {
		a.Groups = clusterv1.AgentGroups
	}
	return a
}

// namespaceKeys returns the Role in the namespace of an object.
func namespaceKeys(object metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{{Namespace: object.GetNamespace(), Name: AgentRoleName}}
}

// clusterKeys returns the Role in the namespace of a cluster.
func clusterKeys(cluster metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{{Namespace: cluster.GetName(), Name: AgentRoleName}}
}

// ownKeys returns the Role for a Role or RoleBinding with the name AgentRoleName.
func ownKeys(object metav1.Object) []cache.ObjectName {
	if object.GetName() != AgentRoleName {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(object)}
}

func (a *AgentRoleController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	rules, err := a.rules(name.Namespace)
	if err != nil {
		return 0, err
	}
	if rules == nil {
		return 0, a.revoke(ctx, name.Namespace)
	}
	role := a.role(name.Namespace, rules)
	if err := settled("keeping the Role", name.Namespace, role.Keep(ctx)); err != nil {
		return 0, err
	}
	subjects := rbacSubjects(a.Groups(name.Namespace))
	if len(subjects) == 0 {
		return 0, nil // the registration triggers an event
	}
	return 0, settled("keeping the RoleBinding", name.Namespace, a.binding(name.Namespace, subjects).Keep(ctx))
}

// rules returns the rules for the agent of a cluster. It returns none if the hub does not accept
// the cluster, if the cluster is being deleted, or if it has no accounts.
func (a *AgentRoleController) rules(namespace string) ([]rbacv1.PolicyRule, error) {
	cluster, err := reconcile.OrNil(a.Clusters.Lister().Get(namespace))
	if err != nil || cluster == nil || !cluster.Spec.HubAcceptsClient || cluster.DeletionTimestamp != nil {
		return nil, err
	}
	accounts, err := a.Accounts.Lister().ManagedServiceAccounts(namespace).List(labels.Everything())
	if err != nil || len(accounts) == 0 {
		return nil, err
	}
	secrets := []string{"secrets"}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: secrets, Verbs: []string{"create"}}}
	var names []string
	for _, account := range accounts {
		secret, err := a.Secrets.named(cache.MetaObjectToName(account))
		if err != nil {
			return nil, err
		}
		if secret != nil && ownedBy(secret, account) {
			names = append(names, secret.Name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: secrets, ResourceNames: names, Verbs: []string{"get", "patch", "update"},
		})
	}
	return rules, nil
}

// role keeps the Role of a namespace. One without the label exists, but is not cached.
func (a *AgentRoleController) role(namespace string, rules []rbacv1.PolicyRule) reconcile.Keeper[*rbacv1.Role] {
	return reconcile.Keeper[*rbacv1.Role]{
		What: "Role " + AgentRoleName, Client: a.hub.RbacV1().Roles(namespace), Cached: a.Roles.Lister().Roles(namespace).Get,
		Wanted: &rbacv1.Role{ObjectMeta: accessMeta(namespace), Rules: rules},
		Fix: func(have *rbacv1.Role) (changed, replace bool) {
			changed = have.Labels[clusterv1.ClusterNameLabel] != namespace || !equality.Semantic.DeepEqual(have.Rules, rules)
			metav1.SetMetaDataLabel(&have.ObjectMeta, clusterv1.ClusterNameLabel, namespace)
			have.Rules = rules
			return changed, false
		},
	}
}

func (a *AgentRoleController) binding(namespace string, subjects []rbacv1.Subject) reconcile.Keeper[*rbacv1.RoleBinding] {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: AgentRoleName}
	return reconcile.Keeper[*rbacv1.RoleBinding]{
		What: "RoleBinding " + AgentRoleName, Client: a.hub.RbacV1().RoleBindings(namespace), Cached: a.Bindings.Lister().RoleBindings(namespace).Get,
		Wanted: &rbacv1.RoleBinding{ObjectMeta: accessMeta(namespace), RoleRef: ref, Subjects: subjects},
		Fix: func(have *rbacv1.RoleBinding) (changed, replace bool) {
			changed = have.Labels[clusterv1.ClusterNameLabel] != namespace || !equality.Semantic.DeepEqual(have.Subjects, subjects)
			metav1.SetMetaDataLabel(&have.ObjectMeta, clusterv1.ClusterNameLabel, namespace)
			have.Subjects = subjects
			return changed, have.RoleRef != ref
		},
	}
}

func rbacSubjects(groups []string) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for _, group := range groups {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return subjects
}

func (a *AgentRoleController) revoke(ctx context.Context, namespace string) error {
	if _, err := a.Bindings.Lister().RoleBindings(namespace).Get(AgentRoleName); err == nil {
		err := a.hub.RbacV1().RoleBindings(namespace).Delete(ctx, AgentRoleName, metav1.DeleteOptions{})
		if err := settled("deleting the RoleBinding", namespace, err); err != nil {
			return err
		}
	}
	if _, err := a.Roles.Lister().Roles(namespace).Get(AgentRoleName); err != nil {
		return nil // the only error of the cache is not found
	}
	return settled("deleting the Role", namespace, a.hub.RbacV1().Roles(namespace).Delete(ctx, AgentRoleName, metav1.DeleteOptions{}))
}

func accessMeta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: AgentRoleName, Labels: map[string]string{clusterv1.ClusterNameLabel: namespace}}
}

// settled returns nil for errors that require no retry, because an event follows them or the
// namespace is being deleted.
func settled(what, namespace string, err error) error {
	if err == nil || reconcile.Outdated(err) || errors.Is(err, reconcile.ErrTerminating) {
		return nil
	}
	return fmt.Errorf("%s for the agent of cluster %s: %w", what, namespace, err)
}
