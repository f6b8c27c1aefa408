package accountsync

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

// Collector deletes the Secrets of accounts that are gone. The hub's garbage
// collector does so too, where there is one; but an account that is deleted and
// made again while the collector's watch is interrupted, as by a restart of this
// server, is to it the same account still, and the Secret of the former one
// stays in the way of the new one's for ever.
type Collector struct {
	accounts accountclient.ManagedServiceAccountsGetter
	secrets  Secrets
	loop     reconcile.Loop
}

// NewCollector returns a Collector that is fed by the given informers, which the
// caller starts.
func NewCollector(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer, secrets Secrets) *Collector {
	c := &Collector{accounts: client, secrets: secrets}
	c.loop = reconcile.Loop{
		Name:      "managedserviceaccount-garbage",
		Reconcile: c.reconcile,
		Feeds: []reconcile.Feed{
			// That an account is gone, or another one, shows when one comes or goes.
			{Informer: accounts.Informer(), Keys: reconcile.Own, Ignore: sameUID},
			{Informer: secrets.Informer, Keys: reconcile.Own},
		},
	}
	return c
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (c *Collector) Run(ctx context.Context) { c.loop.Run(ctx) }

func sameUID(before, after any) bool {
	a, ok := before.(metav1.Object)
	b, also := after.(metav1.Object)
	return ok && also && a.GetUID() == b.GetUID()
}

func (c *Collector) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	secret, err := c.secrets.named(name)
	if err != nil || secret == nil || !isOfAccount(secret) {
		return 0, err
	}
	// A cache may not know yet of an account that was made a moment ago.
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
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("deleting the Secret of the former ManagedServiceAccount %s: %w", name, err)
	}
	return 0, nil
}

// isOfAccount tells whether a Secret is that of an account of its name, whichever
// one, and belongs to nobody else as well.
func isOfAccount(secret *metav1.PartialObjectMetadata) bool {
	return len(secret.OwnerReferences) > 0 && !slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool {
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		return err != nil || version.Group != authenticationv1beta1.GroupName || owner.Kind != "ManagedServiceAccount" || owner.Name != secret.Name
	})
}
