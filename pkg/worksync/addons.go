package worksync

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// accountAddon is the public addon whose agents keep ManagedServiceAccounts.
const accountAddon = "managed-serviceaccount"

// AddonResource is the resource of ManagedClusterAddOns, which a hub that runs OCM has.
var AddonResource = schema.GroupVersionResource{
	Group: "addon.open-cluster-management.io", Version: "v1alpha1", Resource: "managedclusteraddons",
}

var noAddon = render.PublicAgent{Absent: "the cluster does not have the addon " + accountAddon}

// HubAddons reads the ManagedClusterAddOns managed-serviceaccount of a hub. One
// without their CustomResourceDefinition has none.
type HubAddons struct {
	client dynamic.Interface
	shared cache.SharedIndexInformer
	served func() bool
}

// NewHubAddons returns addons of which served tells whether the hub has them. The
// caller runs their informer once it has.
func NewHubAddons(client dynamic.Interface, served func() bool) (*HubAddons, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, AddonResource, metav1.NamespaceAll, 0,
		cache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, accountAddon).String()
		}).Informer()
	if err := informer.SetTransform(onlyNamespaces); err != nil {
		return nil, fmt.Errorf("informer of ManagedClusterAddOns: %w", err)
	}
	return &HubAddons{client: client, shared: informer, served: served}, nil
}

// Informer is of the addons.
func (a *HubAddons) Informer() cache.SharedIndexInformer { return a.shared }

// PublicAgent implements Addons.
func (a *HubAddons) PublicAgent(ctx context.Context, cluster string) (render.PublicAgent, error) {
	if !a.served() {
		return render.PublicAgent{}, nil
	}
	obj, known, err := a.shared.GetStore().GetByKey(cache.NewObjectName(cluster, accountAddon).String())
	if err != nil {
		return render.PublicAgent{}, err
	}
	addon, ok := obj.(*unstructured.Unstructured)
	if !known && a.shared.HasSynced() {
		return noAddon, nil
	}
	if !ok {
		addon, err = a.client.Resource(AddonResource).Namespace(cluster).Get(ctx, accountAddon, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return noAddon, nil
		}
		if err != nil {
			return render.PublicAgent{}, err
		}
	}
	namespace, _, _ := unstructured.NestedString(addon.Object, "status", "namespace")
	if namespace == "" {
		namespace, _, _ = unstructured.NestedString(addon.Object, "spec", "installNamespace")
	}
	return render.PublicAgent{Namespace: namespace}, nil
}

// onlyNamespaces keeps of an addon what is read of it.
func onlyNamespaces(obj any) (any, error) {
	addon, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetGroupVersionKind(addon.GroupVersionKind())
	kept.SetName(addon.GetName())
	kept.SetNamespace(addon.GetNamespace())
	kept.SetUID(addon.GetUID())
	kept.SetResourceVersion(addon.GetResourceVersion())
	for _, path := range [][]string{{"status", "namespace"}, {"spec", "installNamespace"}} {
		if value, found, err := unstructured.NestedString(addon.Object, path...); err == nil && found {
			if err := unstructured.SetNestedField(kept.Object, value, path...); err != nil {
				return nil, err
			}
		}
	}
	return kept, nil
}
