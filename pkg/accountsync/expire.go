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

// NewTTL returns what deletes the accounts whose spec.ttlSecondsAfterCreation has
// passed. It is fed by the given informer, which the caller starts.
func NewTTL(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer) *reconcile.Deadline[*authenticationv1beta1.ManagedServiceAccount] {
	return &reconcile.Deadline[*authenticationv1beta1.ManagedServiceAccount]{
		Name:     "managedserviceaccount-ttl",
		Informer: accounts.Informer(),
		Due:      deletionDue,
		Delete: func(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
			return client.ManagedServiceAccounts(namespace).Delete(ctx, name, options)
		},
		Clock: clock.RealClock{},
	}
}

// TokenExpirer says of tokens that they have expired, which an agent that is gone cannot.
type TokenExpirer struct {
	accounts accountclient.ManagedServiceAccountsGetter
	lister   accountlisters.ManagedServiceAccountLister
	clock    clock.PassiveClock
	loop     reconcile.Loop
}

// NewTokenExpirer returns a TokenExpirer that is fed by the given informer, which
// the caller starts.
func NewTokenExpirer(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer) *TokenExpirer {
	e := &TokenExpirer{accounts: client, lister: accounts.Lister(), clock: clock.RealClock{}}
	e.loop = reconcile.Loop{
		Name:      "managedserviceaccount-token-expiry",
		Reconcile: e.reconcile,
		Feeds:     []reconcile.Feed{{Informer: accounts.Informer(), Keys: expiringKeys}},
	}
	return e
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (e *TokenExpirer) Run(ctx context.Context) { e.loop.Run(ctx) }

func expiringKeys(obj any) []cache.ObjectName {
	account, ok := obj.(*authenticationv1beta1.ManagedServiceAccount)
	if !ok {
		return nil
	}
	if _, expires := tokenExpiry(account); !expires {
		return nil
	}
	return reconcile.Own(obj)
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

func (e *TokenExpirer) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := e.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	expiry, expires := tokenExpiry(account)
	if !expires {
		return 0, nil
	}
	if left := expiry.Sub(e.clock.Now()); left > 0 {
		return left, nil
	}
	return 0, e.expire(ctx, account)
}

func (e *TokenExpirer) expire(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) error {
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
