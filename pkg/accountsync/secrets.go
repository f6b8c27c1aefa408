package accountsync

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

// opaque selects the type of the accounts' Secrets. The hub itself fills in Secrets
// of other types: an agent that makes one of the type service-account-token must
// not get to read what comes of it.
var opaque = fields.OneTermEqualSelector("type", string(corev1.SecretTypeOpaque))

// Secrets are the Secrets that agents made for accounts: only what their
// metadata says, since nobody here needs to see a token.
type Secrets struct {
	// Informer has the metadata of the Opaque Secrets with the accounts' label.
	Informer cache.SharedIndexInformer
	hub      metadata.Interface
}

// NewSecrets returns the Secrets of a hub, and the informers that the caller
// starts to fill their cache.
func NewSecrets(hub metadata.Interface, transform cache.TransformFunc) (Secrets, metadatainformer.SharedInformerFactory, error) {
	factory := metadatainformer.NewFilteredSharedInformerFactory(hub, 0, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector = authenticationv1beta1.ManagedServiceAccountLabel + "=true"
		options.FieldSelector = opaque.String()
	})
	secrets := Secrets{Informer: factory.ForResource(secretResource).Informer(), hub: hub}
	if err := secrets.Informer.SetTransform(transform); err != nil {
		return Secrets{}, nil, fmt.Errorf("keeping the cache of Secrets small: %w", err)
	}
	return secrets, factory, nil
}

// of returns the Secret of an account, or nil if there is none that is its own.
func (s Secrets) of(account *authenticationv1beta1.ManagedServiceAccount) (*metav1.PartialObjectMetadata, error) {
	secret, err := s.named(cache.MetaObjectToName(account))
	if err != nil || secret == nil || !ownedBy(secret, account) {
		return nil, err
	}
	return secret, nil
}

// named returns the Secret of a name, or nil if there is none with the accounts' label.
func (s Secrets) named(name cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
	obj, exists, err := s.Informer.GetIndexer().GetByKey(name.String())
	if err != nil || !exists {
		return nil, err
	}
	secret, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("the cache of Secrets has a %T", obj)
	}
	return secret, nil
}

func ownedBy(secret *metav1.PartialObjectMetadata, account *authenticationv1beta1.ManagedServiceAccount) bool {
	return slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == account.UID })
}

// mend puts the label back on the Secret of an account that still says whose it
// is. It tells whether it did, and whether there is any Secret of the name.
func (s Secrets) mend(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) (mended, exists bool, err error) {
	secrets := s.hub.Resource(secretResource).Namespace(account.Namespace)
	secret, err := secrets.Get(ctx, account.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("looking up the Secret of ManagedServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	if !ownedBy(secret, account) || secret.Labels[authenticationv1beta1.ManagedServiceAccountLabel] == "true" {
		return false, true, nil
	}
	// The metadata does not have the type.
	named := fields.AndSelectors(opaque, fields.OneTermEqualSelector("metadata.name", account.Name))
	list, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: named.String()})
	if err != nil || len(list.Items) == 0 {
		return false, true, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": secret.UID, "resourceVersion": secret.ResourceVersion,
		"labels": map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"},
	}})
	if err != nil {
		return false, true, err
	}
	_, err = secrets.Patch(ctx, account.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, true, fmt.Errorf("marking the Secret of ManagedServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	return true, true, err
}
