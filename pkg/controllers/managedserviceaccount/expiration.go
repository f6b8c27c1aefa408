package managedserviceaccount

import (
	"context"
	"fmt"
	"time"

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

// NewTTLController returns a controller that deletes accounts after spec.ttlSecondsAfterCreation. The
// caller starts the informer.
func NewTTLController(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer) *reconcile.Deadline[*authenticationv1beta1.ManagedServiceAccount] {
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

// TokenExpirationController reports expired tokens in the status of accounts, even if the agent
// does not run.
type TokenExpirationController struct {
	accounts accountclient.ManagedServiceAccountsGetter
	lister   accountlisters.ManagedServiceAccountLister
	clock    clock.PassiveClock
	loop     reconcile.Loop
}

// NewTokenExpirationController returns a TokenExpirationController. The caller starts the informer.
func NewTokenExpirationController(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer) *TokenExpirationController {
	e := &TokenExpirationController{accounts: client, lister: accounts.Lister(), clock: clock.RealClock{}}
	e.loop = reconcile.Loop{
		Name:      "managedserviceaccount-token-expiry",
		Reconcile: e.reconcile,
		Feeds:     []reconcile.Feed{{Informer: accounts.Informer(), Keys: reconcile.Keys(expiringKeys)}},
	}
	return e
}

// Run reconciles until ctx ends, and returns when every worker has stopped.
func (e *TokenExpirationController) Run(ctx context.Context) { e.loop.Run(ctx) }

// expiringKeys returns the key of an account whose token expires.
func expiringKeys(account *authenticationv1beta1.ManagedServiceAccount) []cache.ObjectName {
	if _, expires := tokenExpiry(account); !expires {
		return nil
	}
	return reconcile.Own(account)
}

// deletionDue returns the time at which an account must be deleted, if it has a TTL.
func deletionDue(account *authenticationv1beta1.ManagedServiceAccount) (time.Time, bool) {
	ttl := account.Spec.TTLSecondsAfterCreation
	if account.DeletionTimestamp != nil || ttl == nil || *ttl < 1 {
		return time.Time{}, false
	}
	return account.CreationTimestamp.Add(time.Duration(*ttl) * time.Second), true
}

// tokenExpiry returns the expiry of a reported token. An account of cluster sets has no token of
// its own: its status summarizes its replicas.
func tokenExpiry(account *authenticationv1beta1.ManagedServiceAccount) (time.Time, bool) {
	if account.DeletionTimestamp != nil || account.Status.Clusters != nil || account.Status.ExpirationTimestamp == nil ||
		!meta.IsStatusConditionTrue(account.Status.Conditions, authenticationv1beta1.ConditionTokenReported) {
		return time.Time{}, false
	}
	return account.Status.ExpirationTimestamp.Time, true
}

func (e *TokenExpirationController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := reconcile.OrNil(e.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name))
	if account == nil || err != nil {
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

func (e *TokenExpirationController) expire(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) error {
	update := account.DeepCopy()
	update.Status.TokenSecretRef = nil
	meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
		Type: authenticationv1beta1.ConditionTokenReported, Status: metav1.ConditionFalse,
		Reason: authenticationv1beta1.ReasonTokenExpired, ObservedGeneration: account.Generation,
		Message: "The token has expired. The agent of the managed cluster has not reported a new one.",
	})
	return writeStatus(ctx, e.accounts, update)
}

// writeStatus writes the status of an account. If the account was changed or deleted after it was
// read, an event triggers the next attempt.
func writeStatus(ctx context.Context, accounts accountclient.ManagedServiceAccountsGetter, account *authenticationv1beta1.ManagedServiceAccount) error {
	_, err := accounts.ManagedServiceAccounts(account.Namespace).UpdateStatus(ctx, account, metav1.UpdateOptions{})
	if err != nil && !reconcile.Outdated(err) {
		return fmt.Errorf("reporting the status of ManagedServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	return nil
}
