package managedserviceaccount

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	accountclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// SecretGarbageCollector deletes the Secrets of deleted accounts. Not every hub runs the garbage
// collector of Kubernetes. In addition, that collector misses an account that is deleted and
// created again while its watch is interrupted, for example by a restart of this server. The Secret
// of the deleted account would then block the Secret of the new account.
type SecretGarbageCollector struct {
	accounts accountclient.ManagedServiceAccountsGetter
	secrets  Secrets
	loop     reconcile.Loop
}

// NewSecretGarbageCollector returns a SecretGarbageCollector. The caller starts the informers.
func NewSecretGarbageCollector(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer, secrets Secrets) *SecretGarbageCollector {
	c := &SecretGarbageCollector{accounts: client, secrets: secrets}
	c.loop = reconcile.Loop{
		Name:      "managedserviceaccount-garbage",
		Reconcile: c.reconcile,
		Feeds: []reconcile.Feed{
			// Only the creation and the deletion of accounts are relevant.
			{Informer: accounts.Informer(), Keys: reconcile.Own, Ignore: reconcile.Same(sameUID)},
			{Informer: secrets.Informer, Keys: reconcile.Own},
		},
	}
	return c
}

// Run reconciles until ctx ends, and returns when every worker has stopped.
func (c *SecretGarbageCollector) Run(ctx context.Context) { c.loop.Run(ctx) }

func sameUID(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID()
}

func (c *SecretGarbageCollector) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	secret, err := c.secrets.named(name)
	if err != nil || secret == nil || !isOfAccount(secret) {
		return 0, err
	}
	// The cache may not contain a new account yet.
	account, err := c.accounts.ManagedServiceAccounts(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err == nil && ownedBy(secret, account) {
		return 0, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	err = c.secrets.hub.Resource(secretResource).Namespace(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err != nil && !reconcile.Outdated(err) {
		return 0, fmt.Errorf("deleting the Secret of the deleted ManagedServiceAccount %s: %w", name, err)
	}
	return 0, nil
}

// isOfAccount reports whether accounts with the name of the Secret are its only owners.
func isOfAccount(secret *metav1.PartialObjectMetadata) bool {
	return len(secret.OwnerReferences) > 0 && !slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool {
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		return err != nil || version.Group != authenticationv1beta1.GroupName || owner.Kind != "ManagedServiceAccount" || owner.Name != secret.Name
	})
}
