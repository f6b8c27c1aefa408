package managedserviceaccount

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
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

// opaque selects the type of the Secrets of accounts. The hub fills in Secrets of other types: an
// agent that creates a Secret of type service-account-token must not be able to read its token.
var opaque = fields.OneTermEqualSelector("type", string(corev1.SecretTypeOpaque))

// Secrets reads the metadata of the Secrets that agents create for accounts. It never reads tokens.
type Secrets struct {
	// Informer contains the metadata of the Opaque Secrets with the label of accounts.
	Informer cache.SharedIndexInformer
	hub      metadata.Interface
}

// NewSecrets returns the Secrets of a hub, and the informers that the caller starts.
func NewSecrets(hub metadata.Interface, transform cache.TransformFunc) (Secrets, metadatainformer.SharedInformerFactory, error) {
	factory := metadatainformer.NewFilteredSharedInformerFactory(hub, 0, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector = authenticationv1beta1.ManagedServiceAccountLabel + "=true"
		options.FieldSelector = opaque.String()
	})
	secrets := Secrets{Informer: factory.ForResource(secretResource).Informer(), hub: hub}
	if err := secrets.Informer.SetTransform(transform); err != nil {
		return Secrets{}, nil, fmt.Errorf("setting the transform of the informer of Secrets: %w", err)
	}
	return secrets, factory, nil
}

// named returns the Secret with the given name, or nil if no Secret with that name has the label of
// accounts.
func (s Secrets) named(name cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
	obj, exists, err := s.Informer.GetIndexer().GetByKey(name.String())
	if err != nil || !exists {
		return nil, err
	}
	secret, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T in the cache of Secrets", obj)
	}
	return secret, nil
}

func ownedBy(secret *metav1.PartialObjectMetadata, account *authenticationv1beta1.ManagedServiceAccount) bool {
	return slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == account.UID })
}

// restoreLabel restores the label on the Secret that an account owns. It reports whether it
// restored the label, and whether a Secret with the name exists.
func (s Secrets) restoreLabel(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) (restored, exists bool, err error) {
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
	// The metadata does not contain the type of the Secret.
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
	if err != nil && !reconcile.Outdated(err) {
		return false, true, fmt.Errorf("labeling the Secret of ManagedServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	return true, true, err
}
