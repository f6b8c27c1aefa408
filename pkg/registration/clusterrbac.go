package registration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/util/retry"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// ErrTerminating is returned by Grant while the namespace of the cluster, or an object of its access, is being deleted.
var ErrTerminating = errors.New("still being deleted")

// errIncomplete is returned by a check without writes for an object that differs from the wanted one.
var errIncomplete = errors.New("the object differs from the wanted one")

// Access grants and revokes the RBAC of a cluster's agents on the hub. The names of all objects derive from the name of
// the cluster, so that it never touches an object of another cluster. It is safe for concurrent use.
type Access struct {
	// Labels are set on every object that Access creates, in addition to the cluster label.
	Labels map[string]string

	hub    kubernetes.Interface
	cached *Cached
}

// Cached holds caches of the hub's objects that have the cluster label.
type Cached struct {
	Namespaces          corelisters.NamespaceLister
	ClusterRoles        rbaclisters.ClusterRoleLister
	ClusterRoleBindings rbaclisters.ClusterRoleBindingLister
	RoleBindings        rbaclisters.RoleBindingLister
	Leases              coordinationlisters.LeaseLister
}

// CachedFrom returns the caches of a factory. The caller starts its informers.
func CachedFrom(labelled kubeinformers.SharedInformerFactory) *Cached {
	return &Cached{
		Namespaces:          labelled.Core().V1().Namespaces().Lister(),
		ClusterRoles:        labelled.Rbac().V1().ClusterRoles().Lister(),
		ClusterRoleBindings: labelled.Rbac().V1().ClusterRoleBindings().Lister(),
		RoleBindings:        labelled.Rbac().V1().RoleBindings().Lister(),
		Leases:              labelled.Coordination().V1().Leases().Lister(),
	}
}

// NewAccess returns an Access that writes to the hub. Grant, Granted and Revoked read the
// caches, or the hub if there are none. Revoke and Remove always read the hub, so that a
// replica can revoke before its caches are filled.
func NewAccess(hub kubernetes.Interface, cached *Cached) *Access {
	return &Access{hub: hub, cached: cached}
}

// Grant creates or repairs the access of a cluster's agents, and writes only differences. If agents has no groups,
// existing bindings keep their subjects. It returns ErrTerminating while an old object is being deleted.
func (a *Access) Grant(ctx context.Context, cluster string, agents Agents, leaseDurationSeconds int32) error {
	return a.grant(ctx, cluster, agents, leaseDurationSeconds, true)
}

// Granted reports whether Grant would write nothing.
func (a *Access) Granted(ctx context.Context, cluster string, agents Agents, leaseDurationSeconds int32) (bool, error) {
	err := a.grant(ctx, cluster, agents, leaseDurationSeconds, false)
	if errors.Is(err, errIncomplete) || errors.Is(err, ErrTerminating) {
		return false, nil
	}
	return err == nil, err
}

func (a *Access) grant(ctx context.Context, cluster string, agents Agents, leaseDurationSeconds int32, write bool) error {
	if why := ReservedName(cluster); why != "" {
		return fmt.Errorf("a cluster cannot be named %q: %s", cluster, why)
	}
	namespace := a.keepNamespace(ctx, cluster, write)
	if namespace != nil && !errors.Is(namespace, ErrTerminating) {
		return namespace
	}
	if err := a.keepClusterRole(ctx, cluster, agents.Rules, write); err != nil {
		return err
	}
	if err := a.keepClusterRoleBinding(ctx, cluster, agents.Groups, write); err != nil {
		return err
	}
	if namespace != nil {
		return namespace // a terminating namespace accepts no new objects
	}
	for _, role := range agentRoles {
		if err := a.keepRoleBinding(ctx, cluster, role, agents.Groups, write); err != nil {
			return err
		}
	}
	return a.keepLease(ctx, cluster, leaseDurationSeconds, write)
}

func (a *Access) keepNamespace(ctx context.Context, cluster string, write bool) error {
	wanted := &corev1.Namespace{ObjectMeta: a.meta("", cluster, cluster)}
	wanted.Annotations = map[string]string{madeForAnnotation: cluster}
	k := keeper[*corev1.Namespace]{
		what: "Namespace " + cluster, client: a.hub.CoreV1().Namespaces(), wanted: wanted,
		fix: func(have *corev1.Namespace) (changed, replace bool) { return a.label(have, cluster), false },
	}
	if a.cached != nil {
		k.cached = a.cached.Namespaces.Get
	}
	return k.keep(ctx, write)
}

func (a *Access) keepClusterRole(ctx context.Context, cluster string, ofDriver []rbacv1.PolicyRule, write bool) error {
	rules := acceptedRules(cluster, ofDriver)
	k := keeper[*rbacv1.ClusterRole]{
		what: "ClusterRole " + accessName(cluster), client: a.hub.RbacV1().ClusterRoles(),
		wanted: &rbacv1.ClusterRole{ObjectMeta: a.meta("", accessName(cluster), cluster), Rules: rules},
		fix: func(have *rbacv1.ClusterRole) (changed, replace bool) {
			changed = a.label(have, cluster)
			return setRules(have, rules) || changed, false
		},
	}
	if a.cached != nil {
		k.cached = a.cached.ClusterRoles.Get
	}
	return k.keep(ctx, write)
}

func (a *Access) keepClusterRoleBinding(ctx context.Context, cluster string, groups []string, write bool) error {
	name := accessName(cluster)
	wanted := &rbacv1.ClusterRoleBinding{
		ObjectMeta: a.meta("", name, cluster), RoleRef: clusterRoleRef(name), Subjects: agentSubjects(groups),
	}
	k := keeper[*rbacv1.ClusterRoleBinding]{
		what: "ClusterRoleBinding " + name, client: a.hub.RbacV1().ClusterRoleBindings(), wanted: wanted,
		fix: func(have *rbacv1.ClusterRoleBinding) (changed, replace bool) {
			changed = a.label(have, cluster)
			if len(groups) > 0 && !equality.Semantic.DeepEqual(have.Subjects, wanted.Subjects) {
				have.Subjects, changed = wanted.Subjects, true
			}
			return changed, have.RoleRef != wanted.RoleRef
		},
	}
	if a.cached != nil {
		k.cached = a.cached.ClusterRoleBindings.Get
	}
	return k.keep(ctx, write)
}

func (a *Access) keepRoleBinding(ctx context.Context, cluster, role string, groups []string, write bool) error {
	name := bindingName(cluster, role)
	wanted := &rbacv1.RoleBinding{
		ObjectMeta: a.meta(cluster, name, cluster), RoleRef: clusterRoleRef(accessPrefix + role), Subjects: agentSubjects(groups),
	}
	if role == workRole {
		// If the namespace is deleted, the agent needs the binding until its ManifestWorks are
		// removed.
		wanted.Finalizers = []string{workv1.ManifestWorkFinalizer}
	}
	k := keeper[*rbacv1.RoleBinding]{
		what: "RoleBinding " + cluster + "/" + name, client: a.hub.RbacV1().RoleBindings(cluster), wanted: wanted,
		fix: func(have *rbacv1.RoleBinding) (changed, replace bool) {
			changed = a.label(have, cluster)
			if len(groups) > 0 && !equality.Semantic.DeepEqual(have.Subjects, wanted.Subjects) {
				have.Subjects, changed = wanted.Subjects, true
			}
			for _, finalizer := range wanted.Finalizers {
				if !slices.Contains(have.Finalizers, finalizer) {
					have.Finalizers, changed = append(have.Finalizers, finalizer), true
				}
			}
			return changed, have.RoleRef != wanted.RoleRef
		},
		remove: a.removeRoleBinding,
	}
	if a.cached != nil {
		k.cached = a.cached.RoleBindings.RoleBindings(cluster).Get
	}
	return k.keep(ctx, write)
}

func (a *Access) keepLease(ctx context.Context, cluster string, leaseDurationSeconds int32, write bool) error {
	// Upstream OCM agents expect a renew time. This Lease was not renewed since it was acquired.
	now := metav1.NewMicroTime(time.Now())
	k := keeper[*coordinationv1.Lease]{
		what: "Lease " + cluster + "/" + LeaseName, client: a.hub.CoordinationV1().Leases(cluster),
		wanted: &coordinationv1.Lease{ObjectMeta: a.meta(cluster, LeaseName, cluster), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(LeaseName), LeaseDurationSeconds: &leaseDurationSeconds, AcquireTime: &now, RenewTime: &now,
		}},
		// The agent owns the rest of the Lease. The server has no permission to update it.
		fix: func(have *coordinationv1.Lease) (changed, replace bool) {
			return false, have.Labels[clusterv1.ClusterNameLabel] != cluster
		},
	}
	if a.cached != nil {
		k.cached = a.cached.Leases.Leases(cluster).Get
	}
	return k.keep(ctx, write)
}

func (a *Access) meta(namespace, name, cluster string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	a.label(&meta, cluster)
	return meta
}

// label sets the labels of an object, and reports whether they changed.
func (a *Access) label(object metav1.Object, cluster string) bool {
	labels, changed := maps.Clone(object.GetLabels()), false
	if labels == nil {
		labels = map[string]string{}
	}
	wanted := maps.Clone(a.Labels)
	if wanted == nil {
		wanted = map[string]string{}
	}
	wanted[clusterv1.ClusterNameLabel] = cluster
	for key, value := range wanted {
		if has, ok := labels[key]; !ok || has != value {
			labels[key], changed = value, true
		}
	}
	if changed {
		object.SetLabels(labels)
	}
	return changed
}

// setRules sets the rules of a role, and reports whether they changed. It removes an aggregation rule, because the hub
// would replace the rules according to it.
func setRules(role *rbacv1.ClusterRole, rules []rbacv1.PolicyRule) bool {
	if role.AggregationRule == nil && equality.Semantic.DeepEqual(role.Rules, rules) {
		return false
	}
	role.AggregationRule, role.Rules = nil, rules
	return true
}

// object is the constraint of objects that a keeper repairs.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
}

// client is the client of one kind.
type client[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// keeper creates or repairs one object on the hub.
type keeper[T object[T]] struct {
	what   string
	client client[T]
	// cached reads a cache. If it is nil, the keeper reads the hub.
	cached func(name string) (T, error)
	wanted T
	// fix repairs the object. It reports whether it changed the object, or that the object must be replaced.
	fix func(have T) (changed, replace bool)
	// remove removes an object that must be replaced. By default the keeper deletes it.
	remove func(ctx context.Context, have T) error
}

// keep creates or repairs the object. If write is false, it returns errIncomplete instead.
func (k keeper[T]) keep(ctx context.Context, write bool) error {
	read := k.cached
	if read == nil {
		read = func(name string) (T, error) { return k.client.Get(ctx, name, metav1.GetOptions{}) }
	}
	// If the cache is behind, the hub refuses the write. The retry reads the hub.
	err := retry.OnError(retry.DefaultRetry, outdated, func() error {
		have, err := read(k.wanted.GetName())
		read = func(name string) (T, error) { return k.client.Get(ctx, name, metav1.GetOptions{}) }
		return k.settle(ctx, have, err, write)
	})
	if err == nil || errors.Is(err, errIncomplete) || errors.Is(err, ErrTerminating) {
		return err
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("%s: its namespace is %w", k.what, ErrTerminating)
	}
	return fmt.Errorf("%s: %w", k.what, err)
}

func outdated(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func (k keeper[T]) settle(ctx context.Context, have T, err error, write bool) error {
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if apierrors.IsNotFound(err) {
		if !write {
			return errIncomplete
		}
		_, err := k.client.Create(ctx, k.wanted, metav1.CreateOptions{})
		return err
	}
	if have.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is %w", k.what, ErrTerminating)
	}
	update := have.DeepCopy()
	changed, replace := k.fix(update)
	switch {
	case !changed && !replace:
		return nil
	case !write:
		return errIncomplete
	case !replace:
		_, err := k.client.Update(ctx, update, metav1.UpdateOptions{})
		return err
	}
	remove := k.remove
	if remove == nil {
		remove = func(ctx context.Context, have T) error {
			uid := have.GetUID()
			return k.client.Delete(ctx, have.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}
	}
	if err := remove(ctx, have); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = k.client.Create(ctx, k.wanted, metav1.CreateOptions{})
	return err
}
