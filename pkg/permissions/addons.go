package permissions

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	addoninformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/addon/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// accountAddon is the name of the upstream add-on whose agents manage ManagedServiceAccounts.
const accountAddon = "managed-serviceaccount"

var noAddon = render.PublicAgent{Absent: "the cluster does not have the add-on " + accountAddon}

// AccountAddons reads the ManagedClusterAddOns with the name managed-serviceaccount. A hub may not have
// their CustomResourceDefinition.
type AccountAddons struct {
	client versioned.Interface
	shared cache.SharedIndexInformer
	served func() bool
	absent render.PublicAgent
}

// NewAccountAddons returns AccountAddons. served reports whether the hub serves ManagedClusterAddOns; if
// it does, the caller runs the informer. If add-ons are optional, a cluster without the add-on may still
// have an upstream agent.
func NewAccountAddons(client versioned.Interface, served func() bool, optional bool) (*AccountAddons, error) {
	informer := addoninformers.NewFilteredManagedClusterAddOnInformer(client, metav1.NamespaceAll, 0,
		cache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, accountAddon).String()
		})
	if err := informer.SetTransform(onlyNamespaces); err != nil {
		return nil, fmt.Errorf("informer of ManagedClusterAddOns: %w", err)
	}
	addons := &AccountAddons{client: client, shared: informer, served: served, absent: noAddon}
	if optional {
		addons.absent = render.PublicAgent{}
	}
	return addons, nil
}

// Informer returns the informer of the add-ons.
func (a *AccountAddons) Informer() cache.SharedIndexInformer { return a.shared }

// PublicAgent implements Addons.
func (a *AccountAddons) PublicAgent(ctx context.Context, cluster string) (render.PublicAgent, error) {
	if !a.served() {
		return render.PublicAgent{}, nil
	}
	obj, known, err := a.shared.GetStore().GetByKey(cache.NewObjectName(cluster, accountAddon).String())
	if err != nil {
		return render.PublicAgent{}, err
	}
	addon, ok := obj.(*addonv1alpha1.ManagedClusterAddOn)
	if !known && a.shared.HasSynced() {
		return a.absent, nil
	}
	if !ok {
		addon, err = a.client.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(ctx, accountAddon, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return a.absent, nil
		}
		if err != nil {
			return render.PublicAgent{}, err
		}
	}
	namespace := addon.Status.Namespace
	if namespace == "" {
		namespace = addon.Spec.InstallNamespace
	}
	return render.PublicAgent{Namespace: namespace}, nil
}

// onlyNamespaces removes the fields of an add-on that PublicAgent does not read.
func onlyNamespaces(obj any) (any, error) {
	addon, ok := obj.(*addonv1alpha1.ManagedClusterAddOn)
	if !ok {
		return obj, nil
	}
	return &addonv1alpha1.ManagedClusterAddOn{
		ObjectMeta: metav1.ObjectMeta{
			Name: addon.Name, Namespace: addon.Namespace, UID: addon.UID, ResourceVersion: addon.ResourceVersion,
		},
		Spec:   addonv1alpha1.ManagedClusterAddOnSpec{InstallNamespace: addon.Spec.InstallNamespace},
		Status: addonv1alpha1.ManagedClusterAddOnStatus{Namespace: addon.Status.Namespace},
	}, nil
}
