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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// Access grants and revokes the RBAC of a cluster's agents on the hub. The names of all objects derive from the name of
// the cluster, so that it never touches an object of another cluster. It is safe for concurrent use.
type Access struct {
	// Labels are set on every object that Access creates, in addition to the cluster label.
	Labels map[string]string

	hub                 kubernetes.Interface
	namespaces          corelisters.NamespaceLister
	clusterRoles        rbaclisters.ClusterRoleLister
	clusterRoleBindings rbaclisters.ClusterRoleBindingLister
	roleBindings        rbaclisters.RoleBindingLister
	leases              coordinationlisters.LeaseLister
}

// NewAccess returns an Access that writes to the hub. labelled caches the hub's objects that have the cluster label. The
// caller starts its informers. Revoke and Remove read the hub instead, so that a replica can revoke before its caches are
// filled.
func NewAccess(hub kubernetes.Interface, labelled kubeinformers.SharedInformerFactory) *Access {
	rbac := labelled.Rbac().V1()
	return &Access{
		hub: hub, namespaces: labelled.Core().V1().Namespaces().Lister(), clusterRoles: rbac.ClusterRoles().Lister(),
		clusterRoleBindings: rbac.ClusterRoleBindings().Lister(), roleBindings: rbac.RoleBindings().Lister(),
		leases: labelled.Coordination().V1().Leases().Lister(),
	}
}

// Grant creates or repairs the access of a cluster's agents, and writes only differences. If agents has no groups,
// existing bindings keep their subjects. It returns reconcile.ErrTerminating while an old object is being deleted.
func (a *Access) Grant(ctx context.Context, cluster string, agents Agents, leaseDurationSeconds int32) error {
	if why := ReservedName(cluster); why != "" {
		return fmt.Errorf("a cluster cannot be named %q: %s", cluster, why)
	}
	for _, object := range a.objects(cluster, agents, leaseDurationSeconds) {
		if err := object.Keep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Granted reports, from the caches, whether Grant would write nothing.
func (a *Access) Granted(cluster string, agents Agents, leaseDurationSeconds int32) (bool, error) {
	for _, object := range a.objects(cluster, agents, leaseDurationSeconds) {
		if err := object.Kept(); err != nil {
			if errors.Is(err, reconcile.ErrIncomplete) {
				err = nil
			}
			return false, err
		}
	}
	return true, nil
}

// kept is an object that a reconcile.Keeper repairs.
type kept interface {
	Keep(ctx context.Context) error
	Kept() error
}

// objects returns the objects of an accepted cluster in the order of their creation. A namespace that is being deleted
// accepts no objects, so it delays only those that follow it.
func (a *Access) objects(cluster string, agents Agents, leaseDurationSeconds int32) []kept {
	objects := []kept{a.clusterRole(cluster, agents.Rules), a.clusterRoleBinding(cluster, agents.Groups), a.namespace(cluster)}
	for _, role := range agentRoles {
		objects = append(objects, a.roleBinding(cluster, role, agents.Groups))
	}
	return append(objects, a.lease(cluster, leaseDurationSeconds))
}

func (a *Access) namespace(cluster string) kept {
	wanted := &corev1.Namespace{ObjectMeta: a.meta("", cluster, cluster)}
	wanted.Annotations = map[string]string{madeForAnnotation: cluster}
	return reconcile.Keeper[*corev1.Namespace]{
		What: "Namespace " + cluster, Client: a.hub.CoreV1().Namespaces(), Cached: a.namespaces.Get, Wanted: wanted,
		Fix: func(have *corev1.Namespace) (changed, replace bool) { return a.label(have, cluster), false },
	}
}

func (a *Access) clusterRole(cluster string, ofDriver []rbacv1.PolicyRule) kept {
	rules := acceptedRules(cluster, ofDriver)
	return reconcile.Keeper[*rbacv1.ClusterRole]{
		What: "ClusterRole " + accessName(cluster), Client: a.hub.RbacV1().ClusterRoles(), Cached: a.clusterRoles.Get,
		Wanted: &rbacv1.ClusterRole{ObjectMeta: a.meta("", accessName(cluster), cluster), Rules: rules},
		Fix: func(have *rbacv1.ClusterRole) (changed, replace bool) {
			changed = a.label(have, cluster)
			return setRules(have, rules) || changed, false
		},
	}
}

func (a *Access) clusterRoleBinding(cluster string, groups []string) kept {
	name := accessName(cluster)
	wanted := &rbacv1.ClusterRoleBinding{
		ObjectMeta: a.meta("", name, cluster), RoleRef: clusterRoleRef(name), Subjects: agentSubjects(groups),
	}
	return reconcile.Keeper[*rbacv1.ClusterRoleBinding]{
		What: "ClusterRoleBinding " + name, Client: a.hub.RbacV1().ClusterRoleBindings(), Cached: a.clusterRoleBindings.Get, Wanted: wanted,
		Fix: func(have *rbacv1.ClusterRoleBinding) (changed, replace bool) {
			changed = a.label(have, cluster)
			return setSubjects(&have.Subjects, wanted.Subjects) || changed, have.RoleRef != wanted.RoleRef
		},
	}
}

func (a *Access) roleBinding(cluster, role string, groups []string) kept {
	name := bindingName(cluster, role)
	wanted := &rbacv1.RoleBinding{
		ObjectMeta: a.meta(cluster, name, cluster), RoleRef: clusterRoleRef(accessPrefix + role), Subjects: agentSubjects(groups),
	}
	if role == workRole {
		// If the namespace is deleted, the agent needs the binding until its ManifestWorks are
		// removed.
		wanted.Finalizers = []string{workv1.ManifestWorkFinalizer}
	}
	return reconcile.Keeper[*rbacv1.RoleBinding]{
		What: "RoleBinding " + cluster + "/" + name, Client: a.hub.RbacV1().RoleBindings(cluster), Cached: a.roleBindings.RoleBindings(cluster).Get,
		Wanted: wanted, Remove: a.removeRoleBinding,
		Fix: func(have *rbacv1.RoleBinding) (changed, replace bool) {
			changed = a.label(have, cluster)
			for _, finalizer := range wanted.Finalizers {
				if !slices.Contains(have.Finalizers, finalizer) {
					have.Finalizers, changed = append(have.Finalizers, finalizer), true
				}
			}
			return setSubjects(&have.Subjects, wanted.Subjects) || changed, have.RoleRef != wanted.RoleRef
		},
	}
}

func (a *Access) lease(cluster string, leaseDurationSeconds int32) kept {
	// Upstream OCM agents expect a renew time. This Lease was not renewed since it was acquired.
	now := metav1.NewMicroTime(time.Now())
	return reconcile.Keeper[*coordinationv1.Lease]{
		What: "Lease " + cluster + "/" + LeaseName, Client: a.hub.CoordinationV1().Leases(cluster), Cached: a.leases.Leases(cluster).Get,
		Wanted: &coordinationv1.Lease{ObjectMeta: a.meta(cluster, LeaseName, cluster), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(LeaseName), LeaseDurationSeconds: &leaseDurationSeconds, AcquireTime: &now, RenewTime: &now,
		}},
		// The agent owns the rest of the Lease. The server has no permission to update it.
		Fix: func(have *coordinationv1.Lease) (changed, replace bool) {
			return false, have.Labels[clusterv1.ClusterNameLabel] != cluster
		},
	}
}

func (a *Access) meta(namespace, name, cluster string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	a.label(&meta, cluster)
	return meta
}

// label sets the labels of an object, and reports whether they changed.
func (a *Access) label(object metav1.Object, cluster string) bool {
	labels := map[string]string{}
	maps.Copy(labels, object.GetLabels())
	maps.Copy(labels, a.Labels)
	labels[clusterv1.ClusterNameLabel] = cluster
	changed := !maps.Equal(labels, object.GetLabels())
	object.SetLabels(labels)
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

// setSubjects sets the subjects of a binding if they are known, and reports whether they changed.
func setSubjects(subjects *[]rbacv1.Subject, wanted []rbacv1.Subject) bool {
	if len(wanted) == 0 || equality.Semantic.DeepEqual(*subjects, wanted) {
		return false
	}
	*subjects = wanted
	return true
}
