package accountsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// AccessName is the name of the Role and the RoleBinding, in the hub namespace
	// of a cluster, by which its agent reaches the Secrets of its accounts.
	AccessName = clusterv1.AgentSecretsAccess

	// pausePerName is how long a Role stays as it is before further names are added,
	// for each name that it has. A Role of thousands is large, and is not written
	// again for every one of thousands of accounts; agents need to read a Secret
	// only some time after they made it.
	pausePerName = time.Millisecond
	// longestPause is well within the time that agents wait for access.
	longestPause = time.Second
)

// Access lets the agent of a cluster create Secrets, which RBAC cannot limit by
// name, and read and change those that it made for its accounts and no others: a
// Secret that anybody else put there, under whatever name, stays out of its reach.
type Access struct {
	hub      kubernetes.Interface
	accounts accountlisters.ManagedServiceAccountLister
	clusters clusterlisters.ManagedClusterLister
	roles    rbaclisters.RoleLister
	bindings rbaclisters.RoleBindingLister
	secrets  Secrets
	groups   func(cluster string) []string
	clock    clock.PassiveClock
	loop     reconcile.Loop

	mu sync.Mutex
	// written is when the Role of a namespace was last written.
	written map[string]time.Time
}

// AccessInformers feed an Access. The caller starts them.
type AccessInformers struct {
	Accounts accountinformers.ManagedServiceAccountInformer
	Clusters clusterinformers.ManagedClusterInformer
	// Roles and Bindings have at least those with the label of a cluster's name.
	Roles    rbacinformers.RoleInformer
	Bindings rbacinformers.RoleBindingInformer
	Secrets  Secrets
	// Groups returns the groups of the hub that the agents of a cluster are in, or
	// nothing while that is unknown; nil if they may be in any of clusterv1.AgentGroups.
	Groups func(cluster string) []string
	// Registrations change what Groups returns for the cluster of their name; may be nil.
	Registrations cache.SharedIndexInformer
}

// NewAccess returns an Access that writes to the hub.
func NewAccess(hub kubernetes.Interface, informers AccessInformers) *Access {
	a := &Access{
		hub:      hub,
		accounts: informers.Accounts.Lister(),
		clusters: informers.Clusters.Lister(),
		roles:    informers.Roles.Lister(),
		bindings: informers.Bindings.Lister(),
		secrets:  informers.Secrets,
		groups:   informers.Groups,
		clock:    clock.RealClock{},
		written:  map[string]time.Time{},
	}
	if a.groups == nil {
		a.groups = clusterv1.AgentGroups
	}
	a.loop = reconcile.Loop{
		Name:      "managedserviceaccount-access",
		Reconcile: a.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: informers.Accounts.Informer(), Keys: namespaceKeys},
			{Informer: informers.Clusters.Informer(), Keys: clusterKeys},
			{Informer: informers.Roles.Informer(), Keys: ownKeys},
			{Informer: informers.Bindings.Informer(), Keys: ownKeys},
			{Informer: informers.Secrets.Informer, Keys: namespaceKeys},
		},
	}
	if informers.Registrations != nil {
		a.loop.Feeds = append(a.loop.Feeds, reconcile.Feed{Informer: informers.Registrations, Keys: clusterKeys})
	}
	return a
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (a *Access) Run(ctx context.Context) { a.loop.Run(ctx) }

// namespaceKeys is the Role of the namespace that an object is in.
func namespaceKeys(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{{Namespace: object.GetNamespace(), Name: AccessName}}
}

func clusterKeys(obj any) []cache.ObjectName {
	cluster, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{{Namespace: cluster.GetName(), Name: AccessName}}
}

func ownKeys(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok || object.GetName() != AccessName {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(object)}
}

func (a *Access) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	rules, err := a.rules(name.Namespace)
	if err != nil {
		return 0, err
	}
	if rules == nil {
		return 0, a.revoke(ctx, name.Namespace)
	}
	again, err := a.keepRole(ctx, name.Namespace, rules)
	if err != nil {
		return 0, err
	}
	return again, a.keepBinding(ctx, name.Namespace)
}

// rules are what the agent of a cluster may do to Secrets in its namespace; nothing
// where the hub does not accept the cluster, or deletes it, or there are no accounts.
func (a *Access) rules(namespace string) ([]rbacv1.PolicyRule, error) {
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

// keepRole makes the Role of a namespace what it should be, and returns when to
// do so if that is later.
func (a *Access) keepRole(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) (time.Duration, error) {
	roles := a.hub.RbacV1().Roles(namespace)
	role, err := a.roles.Roles(namespace).Get(AccessName)
	if apierrors.IsNotFound(err) {
		_, err = roles.Create(ctx, &rbacv1.Role{ObjectMeta: accessMeta(namespace), Rules: rules}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return 0, settled("creating a Role", namespace, err)
		}
		// It has lost the label by which the cache knows it.
		role, err = roles.Get(ctx, AccessName, metav1.GetOptions{})
	}
	if err != nil {
		return 0, settled("reading a Role", namespace, err)
	}
	if labelled(role.Labels, namespace) && equality.Semantic.DeepEqual(role.Rules, rules) {
		return 0, nil
	}
	if left := a.pause(namespace, role.Rules, rules); left > 0 {
		return left, nil
	}
	update := role.DeepCopy()
	update.Labels, update.Rules = withLabel(update.Labels, namespace), rules
	_, err = roles.Update(ctx, update, metav1.UpdateOptions{})
	return 0, settled("updating a Role", namespace, err)
}

// pause returns how long the rules of a namespace may stay as they are. Whatever
// they have too much goes at once.
func (a *Access) pause(namespace string, present, wanted []rbacv1.PolicyRule) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if onlyLacksNames(present, wanted) {
		pause := min(pausePerName*time.Duration(len(wanted[len(wanted)-1].ResourceNames)), longestPause)
		if left := a.written[namespace].Add(pause).Sub(a.clock.Now()); left > 0 {
			return left
		}
	}
	a.written[namespace] = a.clock.Now()
	return 0
}

// onlyLacksNames tells whether all that is wrong with rules is that names are missing.
func onlyLacksNames(present, wanted []rbacv1.PolicyRule) bool {
	if len(present) > len(wanted) {
		return false
	}
	for i, rule := range present {
		if !sets.New(wanted[i].ResourceNames...).HasAll(rule.ResourceNames...) {
			return false
		}
		rule.ResourceNames = wanted[i].ResourceNames
		if !equality.Semantic.DeepEqual(rule, wanted[i]) {
			return false
		}
	}
	return true
}

func (a *Access) keepBinding(ctx context.Context, namespace string) error {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: AccessName}
	var subjects []rbacv1.Subject
	for _, group := range a.groups(namespace) {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	if len(subjects) == 0 {
		return nil // the registration brings an event
	}
	bindings := a.hub.RbacV1().RoleBindings(namespace)
	binding, err := a.bindings.RoleBindings(namespace).Get(AccessName)
	if apierrors.IsNotFound(err) {
		_, err = bindings.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: accessMeta(namespace), RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return settled("creating a RoleBinding", namespace, err)
		}
		binding, err = bindings.Get(ctx, AccessName, metav1.GetOptions{})
	}
	if err != nil {
		return settled("reading a RoleBinding", namespace, err)
	}
	if binding.RoleRef != ref {
		// Where a binding leads to cannot be changed.
		err := bindings.Delete(ctx, AccessName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}})
		if err == nil {
			_, err = bindings.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: accessMeta(namespace), RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		}
		return settled("replacing a RoleBinding", namespace, err)
	}
	if labelled(binding.Labels, namespace) && equality.Semantic.DeepEqual(binding.Subjects, subjects) {
		return nil
	}
	update := binding.DeepCopy()
	update.Labels, update.Subjects = withLabel(update.Labels, namespace), subjects
	_, err = bindings.Update(ctx, update, metav1.UpdateOptions{})
	return settled("updating a RoleBinding", namespace, err)
}

func (a *Access) revoke(ctx context.Context, namespace string) error {
	a.mu.Lock()
	delete(a.written, namespace)
	a.mu.Unlock()
	if _, err := a.bindings.RoleBindings(namespace).Get(AccessName); err == nil {
		err := a.hub.RbacV1().RoleBindings(namespace).Delete(ctx, AccessName, metav1.DeleteOptions{})
		if err := settled("deleting a RoleBinding", namespace, err); err != nil {
			return err
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err := a.roles.Roles(namespace).Get(AccessName); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	return settled("deleting a Role", namespace, a.hub.RbacV1().Roles(namespace).Delete(ctx, AccessName, metav1.DeleteOptions{}))
}

func accessMeta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: AccessName, Labels: withLabel(nil, namespace)}
}

func labelled(values map[string]string, cluster string) bool {
	return values[clusterv1.ClusterNameLabel] == cluster
}

func withLabel(values map[string]string, cluster string) map[string]string {
	values = maps.Clone(values)
	if values == nil {
		values = map[string]string{}
	}
	values[clusterv1.ClusterNameLabel] = cluster
	return values
}

// settled passes on the errors that have to be tried again. The others bring an
// event, or come from a namespace that is being deleted.
func settled(what, namespace string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	return fmt.Errorf("%s for the agent of cluster %s: %w", what, namespace, err)
}
