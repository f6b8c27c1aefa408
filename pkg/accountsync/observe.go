package accountsync

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
	differing map[cache.ObjectName]difference
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
		clock: clock.RealClock{}, differing: map[cache.ObjectName]difference{},
	}
	o.loop = reconcile.Loop{
		Name:      "managedserviceaccount-secrets",
		Reconcile: o.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: accounts.Informer(), Keys: reconcile.Own},
			{Informer: secrets.Informer, Keys: reconcile.Own},
		},
	}
	return o
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (o *Observer) Run(ctx context.Context) { o.loop.Run(ctx) }

func (o *Observer) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := o.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		o.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ref := account.Status.TokenSecretRef
	if account.DeletionTimestamp != nil || ref == nil || ref.ResourceVersion == "" {
		// Nothing is reported, or by an agent that watches Secrets itself.
		o.forget(name)
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
		o.forget(name)
		return 0, nil
	}
	if left := settleTime - o.differs(name, version); left > 0 {
		return left, nil
	}
	o.forget(name)
	if secret != nil {
		return 0, o.tell(ctx, account, authenticationv1beta1.ReasonSecretChanged, "The Secret was changed; the agent has yet to look at it.")
	}
	mended, exists, err := o.secrets.mend(ctx, account)
	switch {
	case err != nil || mended:
		return 0, err
	case exists:
		account = account.DeepCopy()
		account.Status.TokenSecretRef, account.Status.ExpirationTimestamp = nil, nil
		return 0, o.tell(ctx, account, authenticationv1beta1.ReasonSecretChanged,
			"The Secret of this name cannot be seen to be that of the account any more; the agent has yet to look at it.")
	}
	account = account.DeepCopy()
	account.Status.TokenSecretRef, account.Status.ExpirationTimestamp = nil, nil
	return 0, o.tell(ctx, account, authenticationv1beta1.ReasonSecretMissing, "The Secret was deleted; the agent has yet to write it again.")
}

// tell reports why what an account says of its Secret is open.
func (o *Observer) tell(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, reason, message string) error {
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
	return writeStatus(ctx, o.accounts, update)
}

// told is whether the agent knows already that it has to look at the Secret.
func told(account *authenticationv1beta1.ManagedServiceAccount) bool {
	created := meta.FindStatusCondition(account.Status.Conditions, authenticationv1beta1.ConditionSecretCreated)
	return created != nil && created.Reason == authenticationv1beta1.ReasonSecretChanged
}

// differs returns for how long an account has differed from this version of its Secret.
func (o *Observer) differs(account cache.ObjectName, version string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.differing[account]
	if !ok || known.version != version {
		o.differing[account] = difference{version: version, since: o.clock.Now()}
		return 0
	}
	return o.clock.Since(known.since)
}

func (o *Observer) forget(account cache.ObjectName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.differing, account)
}
