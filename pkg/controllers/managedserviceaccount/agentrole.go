package managedserviceaccount

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
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
	hub      kubernetes.Interface
	accounts accountlisters.ManagedServiceAccountLister
	clusters clusterlisters.ManagedClusterLister
	roles    rbaclisters.RoleLister
	bindings rbaclisters.RoleBindingLister
	secrets  Secrets
	groups   func(cluster string) []string
	loop     reconcile.Loop
}

// AgentRoleInformers are the informers of an AgentRoleController. The caller starts them.
type AgentRoleInformers struct {
	Accounts accountinformers.ManagedServiceAccountInformer
	Clusters clusterinformers.ManagedClusterInformer
	// Roles and Bindings contain at least the objects with the label of the name of a cluster.
	Roles    rbacinformers.RoleInformer
	Bindings rbacinformers.RoleBindingInformer
	Secrets  Secrets
	// Groups returns the groups of the agents of a cluster on the hub. It returns none while they
	// are unknown. The default is clusterv1.AgentGroups.
	Groups func(cluster string) []string
	// Registrations change the result of Groups for the cluster with their name. It may be nil.
	Registrations cache.SharedIndexInformer
}

// NewAgentRoleController returns an AgentRoleController.
func NewAgentRoleController(hub kubernetes.Interface, informers AgentRoleInformers) *AgentRoleController {
	a := &AgentRoleController{
		hub:      hub,
		accounts: informers.Accounts.Lister(),
		clusters: informers.Clusters.Lister(),
		roles:    informers.Roles.Lister(),
		bindings: informers.Bindings.Lister(),
		secrets:  informers.Secrets,
		groups:   informers.Groups,
	}
	if a.groups == nil {
		a.groups = clusterv1.AgentGroups
	}
	a.loop = reconcile.Loop{
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
		a.loop.Feeds = append(a.loop.Feeds, reconcile.Feed{Informer: informers.Registrations, Keys: reconcile.Keys(clusterKeys)})
	}
	return a
}

// Run reconciles until ctx ends, and returns when every worker has stopped.
func (a *AgentRoleController) Run(ctx context.Context) { a.loop.Run(ctx) }

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
	if err := a.keepRole(ctx, name.Namespace, rules); err != nil {
		return 0, err
	}
	return 0, a.keepBinding(ctx, name.Namespace)
}

// rules returns the rules for the agent of a cluster. It returns none if the hub does not accept
// the cluster, if the cluster is being deleted, or if it has no accounts.
func (a *AgentRoleController) rules(namespace string) ([]rbacv1.PolicyRule, error) {
	cluster, err := a.clusters.Get(namespace)
	if apierrors.IsNotFound(err) || err == nil && (!cluster.Spec.HubAcceptsClient || cluster.DeletionTimestamp != nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	accounts, err := a.accounts.ManagedServiceAccounts(namespace).List(labels.Everything())
	if err != nil || len(accounts) == 0 {
		return nil, err
	}
	secrets := []string{"secrets"}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: secrets, Verbs: []string{"create"}}}
	var names []string
	for _, account := range accounts {
		if secret, err := a.secrets.of(account); err != nil {
			return nil, err
		} else if secret != nil {
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

// keepRole creates or updates the Role of a namespace.
func (a *AgentRoleController) keepRole(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) error {
	roles := a.hub.RbacV1().Roles(namespace)
	role, err := a.roles.Roles(namespace).Get(AgentRoleName)
	if apierrors.IsNotFound(err) {
		_, err = roles.Create(ctx, &rbacv1.Role{ObjectMeta: accessMeta(namespace), Rules: rules}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return settled("creating the Role", namespace, err)
		}
		// The Role exists without the label, so it is not cached.
		role, err = roles.Get(ctx, AgentRoleName, metav1.GetOptions{})
	}
	if err != nil {
		return settled("reading the Role", namespace, err)
	}
	if labelled(role.Labels, namespace) && equality.Semantic.DeepEqual(role.Rules, rules) {
		return nil
	}
	update := role.DeepCopy()
	metav1.SetMetaDataLabel(&update.ObjectMeta, clusterv1.ClusterNameLabel, namespace)
	update.Rules = rules
	_, err = roles.Update(ctx, update, metav1.UpdateOptions{})
	return settled("updating the Role", namespace, err)
}

func (a *AgentRoleController) keepBinding(ctx context.Context, namespace string) error {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: AgentRoleName}
	var subjects []rbacv1.Subject
	for _, group := range a.groups(namespace) {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	if len(subjects) == 0 {
		return nil // the registration triggers an event
	}
	bindings := a.hub.RbacV1().RoleBindings(namespace)
	binding, err := a.bindings.RoleBindings(namespace).Get(AgentRoleName)
	if apierrors.IsNotFound(err) {
		_, err = bindings.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: accessMeta(namespace), RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return settled("creating the RoleBinding", namespace, err)
		}
		binding, err = bindings.Get(ctx, AgentRoleName, metav1.GetOptions{})
	}
	if err != nil {
		return settled("reading the RoleBinding", namespace, err)
	}
	if binding.RoleRef != ref {
		// roleRef is immutable.
		err := bindings.Delete(ctx, AgentRoleName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}})
		if err == nil {
			_, err = bindings.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: accessMeta(namespace), RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		}
		return settled("replacing the RoleBinding", namespace, err)
	}
	if labelled(binding.Labels, namespace) && equality.Semantic.DeepEqual(binding.Subjects, subjects) {
		return nil
	}
	update := binding.DeepCopy()
	metav1.SetMetaDataLabel(&update.ObjectMeta, clusterv1.ClusterNameLabel, namespace)
	update.Subjects = subjects
	_, err = bindings.Update(ctx, update, metav1.UpdateOptions{})
	return settled("updating the RoleBinding", namespace, err)
}

func (a *AgentRoleController) revoke(ctx context.Context, namespace string) error {
	if _, err := a.bindings.RoleBindings(namespace).Get(AgentRoleName); err == nil {
		err := a.hub.RbacV1().RoleBindings(namespace).Delete(ctx, AgentRoleName, metav1.DeleteOptions{})
		if err := settled("deleting the RoleBinding", namespace, err); err != nil {
			return err
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err := a.roles.Roles(namespace).Get(AgentRoleName); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	return settled("deleting the Role", namespace, a.hub.RbacV1().Roles(namespace).Delete(ctx, AgentRoleName, metav1.DeleteOptions{}))
}

func accessMeta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: AgentRoleName, Labels: map[string]string{clusterv1.ClusterNameLabel: namespace}}
}

// labelled reports whether labels contain the name of a cluster.
func labelled(values map[string]string, cluster string) bool {
	return values[clusterv1.ClusterNameLabel] == cluster
}

// settled returns nil for errors that require no retry, because an event follows them or the
// namespace is being deleted.
func settled(what, namespace string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	return fmt.Errorf("%s for the agent of cluster %s: %w", what, namespace, err)
}
