package managedserviceaccount

import (
	"context"
	"sync"
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

// settleTime is the time for which a Secret may differ from the status of its account. The agent
// writes them one after the other, and the watches of both may be delayed.
const settleTime = time.Second

// SecretController reports in the status of an account that another client deleted or changed its
// Secret, so that the agent writes it again. Agents do not watch Secrets, because they would
// receive the Secrets of other accounts, or require one watch for each of thousands of Secrets.
type SecretController struct {
	accounts accountclient.ManagedServiceAccountsGetter
	lister   accountlisters.ManagedServiceAccountLister
	secrets  Secrets
	clock    clock.PassiveClock
	loop     reconcile.Loop

	mu sync.Mutex
	// differing contains the accounts whose status differs from their Secret.
	differing map[cache.ObjectName]difference
}

// difference is a resource version of a Secret that the status of its account does not contain. It
// is "" if the Secret does not exist.
type difference struct {
	version string
	since   time.Time
}

// NewSecretController returns a SecretController. The caller starts the informers.
func NewSecretController(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer, secrets Secrets) *SecretController {
	c := &SecretController{
		accounts: client, lister: accounts.Lister(), secrets: secrets,
		clock: clock.RealClock{}, differing: map[cache.ObjectName]difference{},
	}
	c.loop = reconcile.Loop{
		Name:      "managedserviceaccount-secrets",
		Reconcile: c.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: accounts.Informer(), Keys: reconcile.Own},
			{Informer: secrets.Informer, Keys: reconcile.Own},
		},
	}
	return c
}

// Run reconciles until ctx ends, and returns when every worker has stopped.
func (c *SecretController) Run(ctx context.Context) { c.loop.Run(ctx) }

func (c *SecretController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := c.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ref := account.Status.TokenSecretRef
	if account.DeletionTimestamp != nil || ref == nil || ref.ResourceVersion == "" {
		// No token is reported, or the report is from an agent that watches Secrets itself.
		c.forget(name)
		return 0, nil
	}
	secret, err := c.secrets.of(account)
	if err != nil {
		return 0, err
	}
	version := ""
	if secret != nil {
		version = secret.ResourceVersion
	}
	if version == ref.ResourceVersion || secret != nil && isReported(account) {
		c.forget(name)
		return 0, nil
	}
	if left := settleTime - c.differs(name, version); left > 0 {
		return left, nil
	}
	c.forget(name)
	if secret != nil {
		return 0, c.report(ctx, account, authenticationv1beta1.ReasonSecretChanged, "Another client changed the Secret. The agent has not checked it yet.")
	}
	restored, exists, err := c.secrets.restoreLabel(ctx, account)
	switch {
	case err != nil || restored:
		return 0, err
	case exists:
		account = account.DeepCopy()
		account.Status.TokenSecretRef, account.Status.ExpirationTimestamp = nil, nil
		return 0, c.report(ctx, account, authenticationv1beta1.ReasonSecretChanged,
			"The Secret with this name no longer has the labels and the owner of the account. The agent has not checked it yet.")
	}
	account = account.DeepCopy()
	account.Status.TokenSecretRef, account.Status.ExpirationTimestamp = nil, nil
	return 0, c.report(ctx, account, authenticationv1beta1.ReasonSecretMissing, "Another client deleted the Secret. The agent has not written it again yet.")
}

// report sets the conditions of an account whose Secret differs from its status.
func (c *SecretController) report(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, reason, message string) error {
	update := account.DeepCopy()
	reported := metav1.ConditionFalse
	if update.Status.TokenSecretRef != nil {
		reported = metav1.ConditionUnknown
	}
	for conditionType, status := range map[string]metav1.ConditionStatus{
		authenticationv1beta1.ConditionSecretCreated: metav1.ConditionFalse,
		authenticationv1beta1.ConditionTokenReported: reported,
	} {
		meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
			Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: account.Generation,
		})
	}
	return writeStatus(ctx, c.accounts, update)
}

// isReported reports whether the status already requests that the agent checks the Secret.
func isReported(account *authenticationv1beta1.ManagedServiceAccount) bool {
	created := meta.FindStatusCondition(account.Status.Conditions, authenticationv1beta1.ConditionSecretCreated)
	return created != nil && created.Reason == authenticationv1beta1.ReasonSecretChanged
}

// differs returns the time for which an account has differed from this version of its Secret.
func (c *SecretController) differs(account cache.ObjectName, version string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.differing[account]
	if !ok || known.version != version {
		c.differing[account] = difference{version: version, since: c.clock.Now()}
		return 0
	}
	return c.clock.Since(known.since)
}

func (c *SecretController) forget(account cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.differing, account)
}
