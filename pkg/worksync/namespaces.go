package worksync

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	rbacinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1alpha1"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

var errNamespacesUnknown = errors.New("the namespaces are not known yet")

// Namespaces are what namespaceSelectors select from.
type Namespaces interface {
	// list gives the namespaces to select from for a cluster. It is not known
	// where nobody has reported them.
	list(cluster string) (namespaces []render.Namespace, known bool, err error)
	informer() cache.SharedIndexInformer
	// cluster is the one whose namespace an object of the informer is; empty if it counts for every cluster.
	cluster(obj metav1.Object) string
}

// ManagedNamespaces are the cluster's own namespaces, as its agent reports them.
func ManagedNamespaces(from rbacinformers.ClusterNamespaceInformer) Namespaces {
	return managedNamespaces{lister: from.Lister(), shared: from.Informer()}
}

type managedNamespaces struct {
	lister rbaclisters.ClusterNamespaceLister
	shared cache.SharedIndexInformer
}

func (n managedNamespaces) informer() cache.SharedIndexInformer    { return n.shared }
func (n managedNamespaces) cluster(namespace metav1.Object) string { return namespace.GetNamespace() }

func (n managedNamespaces) list(cluster string) ([]render.Namespace, bool, error) {
	// A cache that is still being filled would take away what is delivered.
	if !n.shared.HasSynced() {
		return nil, false, errNamespacesUnknown
	}
	reported, err := n.lister.ClusterNamespaces(cluster).List(labels.Everything())
	if err != nil {
		return nil, false, err
	}
	out := make([]render.Namespace, 0, len(reported))
	for _, namespace := range reported {
		if namespace.DeletionTimestamp == nil {
			out = append(out, render.Namespace{Name: namespace.Name, Labels: namespace.Labels})
		}
	}
	// No cluster is without namespaces.
	return out, len(out) > 0, nil
}

// HubNamespaces are the hub's namespaces, which today's public controller selects from.
func HubNamespaces(from coreinformers.NamespaceInformer) Namespaces {
	return hubNamespaces{lister: from.Lister(), shared: from.Informer()}
}

type hubNamespaces struct {
	lister corelisters.NamespaceLister
	shared cache.SharedIndexInformer
}

func (n hubNamespaces) informer() cache.SharedIndexInformer { return n.shared }
func (n hubNamespaces) cluster(metav1.Object) string        { return "" }

func (n hubNamespaces) list(string) ([]render.Namespace, bool, error) {
	if !n.shared.HasSynced() {
		return nil, false, errNamespacesUnknown
	}
	existing, err := n.lister.List(labels.Everything())
	if err != nil {
		return nil, false, err
	}
	out := make([]render.Namespace, 0, len(existing))
	for _, namespace := range existing {
		if namespace.Status.Phase != corev1.NamespaceTerminating {
			out = append(out, render.Namespace{Name: namespace.Name, Labels: namespace.Labels})
		}
	}
	return out, true, nil
}
