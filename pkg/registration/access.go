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

// ErrTerminating is what Grant returns while the namespace of a cluster, or a part of
// its access, is still being deleted. Nothing can be made in its place before it is gone.
var ErrTerminating = errors.New("still being deleted")

// errIncomplete is what a look that may not write returns for what is not as it should be.
var errIncomplete = errors.New("not as it should be")

// Access gives the agents of a cluster what they may do on the hub, and takes it
// away. What belongs to a cluster is found by names that are made from its name
// alone, so that nothing of another cluster is ever touched. It is safe for
// concurrent use.
type Access struct {
	// Labels are on everything that an Access makes, in addition to the name of the cluster.
	Labels map[string]string

	hub    kubernetes.Interface
	cached *Cached
}

// Cached are caches of the hub's objects that have the label with the name of a cluster.
type Cached struct {
	Namespaces          corelisters.NamespaceLister
	ClusterRoles        rbaclisters.ClusterRoleLister
	ClusterRoleBindings rbaclisters.ClusterRoleBindingLister
	RoleBindings        rbaclisters.RoleBindingLister
	Leases              coordinationlisters.LeaseLister
}

// CachedFrom returns the caches of a factory, whose informers the caller starts.
func CachedFrom(labelled kubeinformers.SharedInformerFactory) *Cached {
	return &Cached{
		Namespaces:          labelled.Core().V1().Namespaces().Lister(),
		ClusterRoles:        labelled.Rbac().V1().ClusterRoles().Lister(),
		ClusterRoleBindings: labelled.Rbac().V1().ClusterRoleBindings().Lister(),
		RoleBindings:        labelled.Rbac().V1().RoleBindings().Lister(),
		Leases:              labelled.Coordination().V1().Leases().Lister(),
	}
}

// NewAccess returns an Access that writes to the hub. Grant, Granted and Revoked read
// the caches, or the hub if there are none; Revoke and Remove always read the hub, so
// that a replica can revoke before its caches are filled.
func NewAccess(hub kubernetes.Interface, cached *Cached) *Access {
	return &Access{hub: hub, cached: cached}
}

// Grant gives the agents of a cluster their access, and repairs it. If they have no
// groups, existing bindings keep their subjects. It writes only what differs. ErrTerminating says that something is in the way that will go.
func (a *Access) Grant(ctx context.Context, cluster string, agents Agents, leaseDurationSeconds int32) error {
	return a.grant(ctx, cluster, agents, leaseDurationSeconds, true)
}

// Granted tells whether Grant would find nothing to do. It writes nothing.
func (a *Access) Granted(ctx context.Context, cluster string, agents Agents, leaseDurationSeconds int32) (bool, error) {
	err := a.grant(ctx, cluster, agents, leaseDurationSeconds, false)
	if errors.Is(err, errIncomplete) || errors.Is(err, ErrTerminating) {
		return false, nil
	}
	return err == nil, err
}

func (a *Access) grant(ctx context.Context, cluster string, agents Agents, leaseDurationSeconds int32, write bool) error {
	if why := ReservedName(cluster); why != "" {
		return fmt.Errorf("no cluster can be named %s: %s", cluster, why)
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
		return namespace // nothing can be made in it
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
		// Should somebody delete the namespace, agents need it until their works are gone.
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
	// Public agents take it for granted that a Lease has been renewed. This one was not,
	// since it was acquired.
	now := metav1.NewMicroTime(time.Now())
	k := keeper[*coordinationv1.Lease]{
		what: "Lease " + cluster + "/" + LeaseName, client: a.hub.CoordinationV1().Leases(cluster),
		wanted: &coordinationv1.Lease{ObjectMeta: a.meta(cluster, LeaseName, cluster), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(LeaseName), LeaseDurationSeconds: &leaseDurationSeconds, AcquireTime: &now, RenewTime: &now,
		}},
		// All else of it is the agent's; the server itself has no right to change one.
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

// label gives an object its labels, and reports whether that is a change.
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

// setRules gives a role exactly these rules, and tells whether that is a change. With
// an aggregation rule, the hub would soon replace them.
func setRules(role *rbacv1.ClusterRole, rules []rbacv1.PolicyRule) bool {
	if role.AggregationRule == nil && equality.Semantic.DeepEqual(role.Rules, rules) {
		return false
	}
	role.AggregationRule, role.Rules = nil, rules
	return true
}

// object is what a keeper keeps.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
}

// client is that of one kind of object.
type client[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// keeper makes an object of the hub what it should be.
type keeper[T object[T]] struct {
	what   string
	client client[T]
	// cached reads what may be outdated; nil reads the hub.
	cached func(name string) (T, error)
	wanted T
	// fix repairs an object, and tells whether that changed it, or whether it has to be
	// replaced by another one.
	fix func(have T) (changed, replace bool)
	// remove removes what has to be replaced; by default it is just deleted.
	remove func(ctx context.Context, have T) error
}

// keep makes the object what it should be, or without write returns errIncomplete if it is not.
func (k keeper[T]) keep(ctx context.Context, write bool) error {
	read := k.cached
	if read == nil {
		read = func(name string) (T, error) { return k.client.Get(ctx, name, metav1.GetOptions{}) }
	}
	// What a cache has may be outdated: then the hub refuses the write, and is asked.
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
