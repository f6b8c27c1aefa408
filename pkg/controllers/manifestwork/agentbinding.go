package manifestwork

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// accessPeriod is the interval of checks whether an agent has cleaned up.
const accessPeriod = time.Second

// AgentBindingController keeps the RoleBinding of an agent until the agent has cleaned up, when the
// namespace of its cluster is deleted. The namespace controller deletes all objects at the same
// time. Without its RoleBinding, an agent could not remove its finalizer from ManifestWorks, and
// the namespace would remain. Therefore, RoleBindings of agents have the finalizer of
// ManifestWorks. This controller removes it after the last ManifestWork.
type AgentBindingController struct {
	reconcile.Loop
	hub    kubernetes.Interface
	works  workclient.ManifestWorksGetter
	lister rbaclisters.RoleBindingLister
}

// NewAgentBindingController returns an AgentBindingController. bindings is an informer of the
// RoleBindings with the label of the name of a cluster. The caller starts it.
func NewAgentBindingController(hub kubernetes.Interface, works workclient.ManifestWorksGetter, bindings rbacinformers.RoleBindingInformer) *AgentBindingController {
	c := &AgentBindingController{hub: hub, works: works, lister: bindings.Lister()}
	c.Loop = reconcile.Loop{
		Name:      "agent-access",
		Reconcile: c.reconcile,
		Feeds:     []reconcile.Feed{{Informer: bindings.Informer(), Keys: reconcile.Keys(heldBindingKeys)}},
	}
	return c
}

func heldBindingKeys(binding *rbacv1.RoleBinding) []cache.ObjectName {
	if !held(binding) {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(binding)}
}

// held reports whether a RoleBinding that is being deleted waits for this controller.
func held(binding *rbacv1.RoleBinding) bool {
	return binding.DeletionTimestamp != nil && slices.Contains(binding.Finalizers, workv1.ManifestWorkFinalizer)
}

func (c *AgentBindingController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	binding, err := reconcile.OrNil(c.lister.RoleBindings(name.Namespace).Get(name.Name))
	if err != nil || binding == nil || !held(binding) {
		return 0, err
	}
	needed, err := c.needed(ctx, name.Namespace)
	if err != nil {
		return 0, err
	}
	if needed {
		return accessPeriod, nil
	}
	update := binding.DeepCopy()
	update.Finalizers = slices.DeleteFunc(update.Finalizers, func(f string) bool { return f == workv1.ManifestWorkFinalizer })
	_, err = c.hub.RbacV1().RoleBindings(name.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if err = reconcile.IgnoreOutdated(err); err != nil {
		return 0, fmt.Errorf("removing the finalizer from RoleBinding %s: %w", name, err)
	}
	return 0, nil
}

// needed reports whether the agent has ManifestWorks to clean up. If only the RoleBinding is
// deleted, the access of the agent is revoked immediately.
func (c *AgentBindingController) needed(ctx context.Context, namespace string) (bool, error) {
	ns, err := reconcile.OrNil(c.hub.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}))
	if err != nil || ns == nil || ns.DeletionTimestamp == nil {
		return false, err
	}
	works, err := c.works.ManifestWorks(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	return err == nil && len(works.Items) > 0, err
}
