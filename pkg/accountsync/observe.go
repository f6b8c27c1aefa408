package accountsync

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	accountclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// settleTime is how long a Secret may differ from what its account says of it:
// the agent writes one after the other, and both come here by watches.
const settleTime = time.Second

// Observer tells agents of Secrets that somebody else deleted or changed. Agents
// cannot watch Secrets without seeing those of others, and five thousand
// watches of one Secret each would be no way to find out either.
type Observer struct {
	accounts accountclient.ManagedServiceAccountsGetter
	lister   accountlisters.ManagedServiceAccountLister
	secrets  Secrets
	clock    clock.PassiveClock
	loop     reconcile.Loop

	mu sync.Mutex
	// differing is since when accounts and their Secrets differ.
	differing map[types.UID]difference
}

// difference is a version of a Secret, empty for none, that an account does not know of.
type difference struct {
	version string
	since   time.Time
}

// NewObserver returns an Observer that is fed by the given informers, which the
// caller starts.
func NewObserver(client accountclient.ManagedServiceAccountsGetter, accounts accountinformers.ManagedServiceAccountInformer, secrets Secrets) *Observer {
	o := &Observer{
		accounts: client, lister: accounts.Lister(), secrets: secrets,
		clock: clock.RealClock{}, differing: map[types.UID]difference{},
	}
	o.loop = reconcile.Loop{
		Name:      "managedserviceaccount-secrets",
		Reconcile: o.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: accounts.Informer(), Keys: nameKeys},
			{Informer: secrets.Informer, Keys: nameKeys},
		},
	}
	return o
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (o *Observer) Run(ctx context.Context) { o.loop.Run(ctx) }

// nameKeys is the account of an object of the same name.
func nameKeys(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(object)}
}

func (o *Observer) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := o.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ref := account.Status.TokenSecretRef
	if account.DeletionTimestamp != nil || ref == nil || ref.ResourceVersion == "" {
		// Nothing is reported, or by an agent that watches Secrets itself.
		o.forget(account.UID)
		return 0, nil
	}
	secret, err := o.secrets.of(account)
	if err != nil {
		return 0, err
	}
	version := ""
	if secret != nil {
		version = secret.ResourceVersion
	}
	if version == ref.ResourceVersion || secret != nil && told(account) {
		o.forget(account.UID)
		return 0, nil
	}
	if left := settleTime - o.differs(account.UID, version); left > 0 {
		return left, nil
	}
	o.forget(account.UID)
	update := account.DeepCopy()
	if secret == nil {
		update.Status.TokenSecretRef, update.Status.ExpirationTimestamp = nil, nil
		for _, conditionType := range []string{authenticationv1beta1.ConditionSecretCreated, authenticationv1beta1.ConditionTokenReported} {
			meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
				Type: conditionType, Status: metav1.ConditionFalse, Reason: authenticationv1beta1.ReasonSecretMissing,
				ObservedGeneration: account.Generation, Message: "The Secret was deleted; the agent has yet to write it again.",
			})
		}
	} else {
		meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
			Type: authenticationv1beta1.ConditionSecretCreated, Status: metav1.ConditionFalse, Reason: authenticationv1beta1.ReasonSecretChanged,
			ObservedGeneration: account.Generation, Message: "The Secret was changed; the agent has yet to look at it.",
		})
	}
	return 0, writeStatus(ctx, o.accounts, update)
}

// told is whether the agent knows already that it has to look at the Secret.
func told(account *authenticationv1beta1.ManagedServiceAccount) bool {
	created := meta.FindStatusCondition(account.Status.Conditions, authenticationv1beta1.ConditionSecretCreated)
	return created != nil && created.Reason == authenticationv1beta1.ReasonSecretChanged
}

// differs returns for how long an account has differed from this version of its Secret.
func (o *Observer) differs(account types.UID, version string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.differing[account]
	if !ok || known.version != version {
		o.differing[account] = difference{version: version, since: o.clock.Now()}
		return 0
	}
	return o.clock.Since(known.since)
}

func (o *Observer) forget(account types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.differing, account)
}
