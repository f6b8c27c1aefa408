package permissions

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	rbacinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// ErrNamespacesUnknown is the error of a rendering before the namespaces are listed.
var ErrNamespacesUnknown = errors.New("the namespaces are not known yet")

// Namespaces are the namespaces that namespaceSelectors match.
type Namespaces struct {
	Informer cache.SharedIndexInformer
	// hub is true for the namespaces of the hub, which apply to every cluster.
	hub bool
}

// ManagedNamespaces are the namespaces of each managed cluster, as its agent reports them.
func ManagedNamespaces(from rbacinformers.ClusterNamespaceInformer) Namespaces {
	return Namespaces{Informer: from.Informer()}
}

// HubNamespaces are the namespaces of the hub, which the upstream controller uses.
func HubNamespaces(from coreinformers.NamespaceInformer) Namespaces {
	return Namespaces{Informer: from.Informer(), hub: true}
}

// Cluster returns the cluster to which an object of the informer applies, or "" for every cluster.
func (n Namespaces) Cluster(object metav1.Object) string {
	if n.hub {
		return ""
	}
	return object.GetNamespace()
}

// list returns the namespaces for a cluster, and reports whether they are known. An agent may not
// have reported them yet.
func (n Namespaces) list(cluster string) (namespaces []render.Namespace, known bool, err error) {
	// With an incomplete cache, delivered objects would be removed.
	if !n.Informer.HasSynced() {
		return nil, false, ErrNamespacesUnknown
	}
	collect := func(obj any) {
		if namespace, ok := obj.(metav1.Object); ok && namespace.GetDeletionTimestamp() == nil {
			namespaces = append(namespaces, render.Namespace{Name: namespace.GetName(), Labels: namespace.GetLabels()})
		}
	}
	if n.hub {
		err = cache.ListAll(n.Informer.GetIndexer(), labels.Everything(), collect)
		return namespaces, true, err
	}
	err = cache.ListAllByNamespace(n.Informer.GetIndexer(), cluster, labels.Everything(), collect)
	// Every cluster has namespaces, so an empty list means that they are not reported yet.
	return namespaces, len(namespaces) > 0, err
}
