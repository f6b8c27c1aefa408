package worksync

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// accessPeriod is how often it is looked whether an agent has cleaned up.
const accessPeriod = time.Second

// AgentAccess lets agents clean up when the hub namespace of their cluster is
// deleted. The namespace controller deletes everything in it at once; without
// the RoleBinding an agent could not take its finalizer off the works, and the
// namespace would never go. So RoleBindings to agents carry the finalizer of
// works, and this takes it off after the last work.
type AgentAccess struct {
	hub    kubernetes.Interface
	works  workclient.ManifestWorksGetter
	lister rbaclisters.RoleBindingLister
	loop   reconcile.Loop
}

// NewAgentAccess returns an AgentAccess that is fed by the given informer, of
// the RoleBindings that are labelled with the name of a cluster, which the
// caller starts.
func NewAgentAccess(hub kubernetes.Interface, works workclient.ManifestWorksGetter, bindings rbacinformers.RoleBindingInformer) *AgentAccess {
	a := &AgentAccess{hub: hub, works: works, lister: bindings.Lister()}
	a.loop = reconcile.Loop{
		Name:      "agent-access",
		Reconcile: a.reconcile,
		Feeds:     []reconcile.Feed{{Informer: bindings.Informer(), Keys: heldBindingKeys}},
	}
	return a
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (a *AgentAccess) Run(ctx context.Context) { a.loop.Run(ctx) }

func heldBindingKeys(obj any) []cache.ObjectName {
	binding, ok := obj.(*rbacv1.RoleBinding)
	if !ok || !held(binding) {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(binding)}
}

// held tells whether a RoleBinding that is being deleted waits for this controller.
func held(binding *rbacv1.RoleBinding) bool {
	return binding.DeletionTimestamp != nil && slices.Contains(binding.Finalizers, workv1.ManifestWorkFinalizer)
}

func (a *AgentAccess) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	binding, err := a.lister.RoleBindings(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && !held(binding) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	needed, err := a.needed(ctx, name.Namespace)
	if err != nil {
		return 0, err
	}
	if needed {
		return accessPeriod, nil
	}
	update := binding.DeepCopy()
	update.Finalizers = slices.DeleteFunc(update.Finalizers, func(f string) bool { return f == workv1.ManifestWorkFinalizer })
	_, err = a.hub.RbacV1().RoleBindings(name.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // the change brings an event
	}
	if err != nil {
		return 0, fmt.Errorf("letting RoleBinding %s go: %w", name, err)
	}
	return 0, nil
}

// needed tells whether the agent still has something to clean up. Where only
// the RoleBinding is deleted, access is meant to be revoked, and at once.
func (a *AgentAccess) needed(ctx context.Context, namespace string) (bool, error) {
	ns, err := a.hub.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	works, err := a.works.ManifestWorks(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, err
	}
	return len(works.Items) > 0, nil
}
