package managedserviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	accountclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// settleTime is the time for which a Secret may differ from the status of its account. The agent
// writes them one after the other, and the watches of both may be delayed.
const settleTime = time.Second

// UpkeepController reports in the status of an account what its agent does not notice: that the token has expired, while
// the agent does not run, and that another client deleted or changed the Secret, so that the agent writes it again. Agents
// do not watch Secrets, because they would receive the Secrets of other accounts, or require one watch for each of
// thousands of Secrets.
//
// It also deletes the Secrets of deleted accounts. Not every hub runs the garbage collector of Kubernetes. In addition, that
// collector misses an account that is deleted and created again while its watch is interrupted, for example by a restart
// of this server. The Secret of the deleted account would then block the Secret of the new account.
type UpkeepController struct {
	reconcile.Loop
	accounts accountclient.ManagedServiceAccountsGetter
	lister   accountlisters.ManagedServiceAccountLister
	secrets  Secrets
	clock    clock.PassiveClock

	// differing contains a difference for each account whose status differs from its Secret.
	differing sync.Map
}

// difference is a resource version of a Secret that the status of its account does not contain. It
// is "" if the Secret does not exist.
type difference struct {
	version string
	since   time.Time
}

// NewUpkeepController returns an UpkeepController. The caller starts the informers.
func NewUpkeepController(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer, secrets Secrets) *UpkeepController {
	c := &UpkeepController{accounts: client, lister: accounts.Lister(), secrets: secrets, clock: clock.RealClock{}}
	c.Loop = reconcile.Loop{
		Name:      "managedserviceaccount-upkeep",
		Reconcile: c.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: accounts.Informer(), Keys: reconcile.Own},
			{Informer: secrets.Informer, Keys: reconcile.Own},
		},
	}
	return c
}

func (c *UpkeepController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := reconcile.OrNil(c.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name))
	if err != nil {
		return 0, err
	}
	secret, err := c.secrets.named(name)
	if err != nil {
		return 0, err
	}
	// A Secret that cannot be deleted does not keep the server from reporting that the token has expired.
	var uncollected error
	if secret != nil && (account == nil || !ownedBy(secret, account)) {
		uncollected, secret = c.collect(ctx, secret), nil
	}
	if account == nil || account.DeletionTimestamp != nil {
		c.differing.Delete(name)
		return 0, uncollected
	}
	again, err := c.check(ctx, account, secret)
	return again, errors.Join(uncollected, err)
}

// check reports an account whose token has expired, or whose Secret differs from its status. secret is nil if the account owns
// none.
func (c *UpkeepController) check(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, secret *metav1.PartialObjectMetadata) (time.Duration, error) {
	expiry, expires := tokenExpiry(account)
	valid := expiry.Sub(c.clock.Now())
	if expires && valid <= 0 {
		account = account.DeepCopy()
		account.Status.TokenSecretRef = nil
		return 0, c.report(ctx, account, authenticationv1beta1.ReasonTokenExpired,
			"The token has expired. The agent of the managed cluster has not reported a new one.", authenticationv1beta1.ConditionTokenReported)
	}
	again, err := c.compare(ctx, account, secret)
	if again == 0 && expires {
		again = valid
	}
	return again, err
}

// tokenExpiry returns the expiry of a reported token. An account of cluster sets has no token of
// its own: its status summarizes its replicas.
func tokenExpiry(account *authenticationv1beta1.ManagedServiceAccount) (time.Time, bool) {
	if account.Status.Clusters != nil || account.Status.ExpirationTimestamp == nil ||
		!meta.IsStatusConditionTrue(account.Status.Conditions, authenticationv1beta1.ConditionTokenReported) {
		return time.Time{}, false
	}
	return account.Status.ExpirationTimestamp.Time, true
}

// collect deletes a Secret whose account does not exist.
func (c *UpkeepController) collect(ctx context.Context, secret *metav1.PartialObjectMetadata) error {
	if !isOfAccount(secret) {
		return nil
	}
	// The cache may not contain a new account yet.
	account, err := reconcile.OrNil(c.accounts.ManagedServiceAccounts(secret.Namespace).Get(ctx, secret.Name, metav1.GetOptions{}))
	if err != nil || account != nil && ownedBy(secret, account) {
		return err
	}
	err = c.secrets.hub.Resource(secretResource).Namespace(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err != nil && !reconcile.Outdated(err) {
		return fmt.Errorf("deleting the Secret of the deleted ManagedServiceAccount %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// isOfAccount reports whether accounts with the name of the Secret are its only owners.
func isOfAccount(secret *metav1.PartialObjectMetadata) bool {
	return len(secret.OwnerReferences) > 0 && !slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool {
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		return err != nil || version.Group != authenticationv1beta1.GroupName || owner.Kind != "ManagedServiceAccount" || owner.Name != secret.Name
	})
}

// compare reports an account whose Secret differs from its status for settleTime. secret is nil if the account owns none.
func (c *UpkeepController) compare(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, secret *metav1.PartialObjectMetadata) (time.Duration, error) {
	name, ref, version := cache.MetaObjectToName(account), account.Status.TokenSecretRef, ""
	if secret != nil {
		version = secret.ResourceVersion
	}
	// Without a reference, no token is reported. Without a version, the agent watches Secrets itself.
	if ref == nil || ref.ResourceVersion == "" || version == ref.ResourceVersion || secret != nil && isReported(account) {
		c.differing.Delete(name)
		return 0, nil
	}
	known, _ := c.differing.Load(name)
	seen, _ := known.(difference)
	if seen.since.IsZero() || seen.version != version {
		c.differing.Store(name, difference{version: version, since: c.clock.Now()})
		return settleTime, nil
	}
	if left := settleTime - c.clock.Since(seen.since); left > 0 {
		return left, nil
	}
	c.differing.Delete(name)
	reason, message := authenticationv1beta1.ReasonSecretChanged, "Another client changed the Secret. The agent has not checked it yet."
	if secret == nil {
		restored, exists, err := c.secrets.restoreLabel(ctx, account)
		if err != nil || restored {
			return 0, err
		}
		account = account.DeepCopy()
		account.Status.TokenSecretRef, account.Status.ExpirationTimestamp = nil, nil
		message = "The Secret with this name no longer has the labels and the owner of the account. The agent has not checked it yet."
		if !exists {
			reason, message = authenticationv1beta1.ReasonSecretMissing, "Another client deleted the Secret. The agent has not written it again yet."
		}
	}
	return 0, c.report(ctx, account, reason, message, authenticationv1beta1.ConditionSecretCreated, authenticationv1beta1.ConditionTokenReported)
}

// isReported reports whether the status already requests that the agent checks the Secret.
func isReported(account *authenticationv1beta1.ManagedServiceAccount) bool {
	created := meta.FindStatusCondition(account.Status.Conditions, authenticationv1beta1.ConditionSecretCreated)
	return created != nil && created.Reason == authenticationv1beta1.ReasonSecretChanged
}

// report sets conditions of an account. Whether its token is valid is unknown while the status refers to a Secret.
func (c *UpkeepController) report(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, reason, message string, conditions ...string) error {
	update := account.DeepCopy()
	for _, conditionType := range conditions {
		status := metav1.ConditionFalse
		if conditionType == authenticationv1beta1.ConditionTokenReported && update.Status.TokenSecretRef != nil {
			status = metav1.ConditionUnknown
		}
		meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
			Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: account.Generation,
		})
	}
	return writeStatus(ctx, c.accounts, update)
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

// deletionDue returns the time at which an account must be deleted, if it has a TTL.
func deletionDue(account *authenticationv1beta1.ManagedServiceAccount) (time.Time, bool) {
	ttl := account.Spec.TTLSecondsAfterCreation
	if account.DeletionTimestamp != nil || ttl == nil || *ttl < 1 {
		return time.Time{}, false
	}
	return account.CreationTimestamp.Add(time.Duration(*ttl) * time.Second), true
}
