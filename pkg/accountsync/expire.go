package accountsync

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	accountclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// Expirer deletes the accounts whose spec.ttlSecondsAfterCreation has passed, and
// says of tokens that they have expired, which an agent that is gone cannot.
type Expirer struct {
	accounts accountclient.ManagedServiceAccountsGetter
	lister   accountlisters.ManagedServiceAccountLister
	clock    clock.PassiveClock
	loop     reconcile.Loop
}

// NewExpirer returns an Expirer that is fed by the given informer, which the
// caller starts.
func NewExpirer(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer) *Expirer {
	e := &Expirer{accounts: client, lister: accounts.Lister(), clock: clock.RealClock{}}
	e.loop = reconcile.Loop{
		Name:      "managedserviceaccount-expiry",
		Reconcile: e.reconcile,
		Feeds:     []reconcile.Feed{{Informer: accounts.Informer(), Keys: expiringKeys}},
	}
	return e
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (e *Expirer) Run(ctx context.Context) { e.loop.Run(ctx) }

func expiringKeys(obj any) []cache.ObjectName {
	account, ok := obj.(*authenticationv1beta1.ManagedServiceAccount)
	if !ok {
		return nil
	}
	_, deleted := deletionDue(account)
	_, expires := tokenExpiry(account)
	if !deleted && !expires {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(account)}
}

// deletionDue is when an account is due to be deleted.
func deletionDue(account *authenticationv1beta1.ManagedServiceAccount) (time.Time, bool) {
	ttl := account.Spec.TTLSecondsAfterCreation
	if account.DeletionTimestamp != nil || ttl == nil || *ttl < 1 {
		return time.Time{}, false
	}
	return account.CreationTimestamp.Add(time.Duration(*ttl) * time.Second), true
}

// tokenExpiry is when a token that counts as reported stops being valid. The
// summary of a cluster set follows its clusters.
func tokenExpiry(account *authenticationv1beta1.ManagedServiceAccount) (time.Time, bool) {
	if account.DeletionTimestamp != nil || account.Status.Clusters != nil || account.Status.ExpirationTimestamp == nil ||
		!meta.IsStatusConditionTrue(account.Status.Conditions, authenticationv1beta1.ConditionTokenReported) {
		return time.Time{}, false
	}
	return account.Status.ExpirationTimestamp.Time, true
}

func (e *Expirer) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := e.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var wait time.Duration
	if due, deleted := deletionDue(account); deleted {
		if wait = due.Sub(e.clock.Now()); wait <= 0 {
			return 0, e.delete(ctx, account)
		}
	}
	if expiry, expires := tokenExpiry(account); expires {
		left := expiry.Sub(e.clock.Now())
		if left <= 0 {
			return wait, e.expireToken(ctx, account)
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return wait, nil
}

func (e *Expirer) delete(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) error {
	// The account as it was read is what is due; one that was changed since is looked at again.
	err := e.accounts.ManagedServiceAccounts(account.Namespace).Delete(ctx, account.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &account.UID, ResourceVersion: &account.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting a ManagedServiceAccount that is due: %w", err)
	}
	return nil
}

func (e *Expirer) expireToken(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) error {
	update := account.DeepCopy()
	update.Status.TokenSecretRef = nil
	meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
		Type: authenticationv1beta1.ConditionTokenReported, Status: metav1.ConditionFalse,
		Reason: authenticationv1beta1.ReasonTokenExpired, ObservedGeneration: account.Generation,
		Message: "The token has expired, and the agent of the managed cluster has not reported another one.",
	})
	return writeStatus(ctx, e.accounts, update)
}

// writeStatus writes the status of an account as it was read. An account that has
// changed since, or is gone, brings an event and is looked at again.
func writeStatus(ctx context.Context, accounts accountclient.ManagedServiceAccountsGetter, account *authenticationv1beta1.ManagedServiceAccount) error {
	_, err := accounts.ManagedServiceAccounts(account.Namespace).UpdateStatus(ctx, account, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("reporting the status of ManagedServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	return nil
}
