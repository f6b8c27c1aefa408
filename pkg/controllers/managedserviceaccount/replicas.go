package managedserviceaccount

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	accountclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
	accountinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// byParent indexes replicas by namespace/name of their account.
	byParent = "parent"

	// writers is the number of concurrent writes for one account.
	writers = 16
	// retryPause is the interval of retries for a cluster that has another account with the same
	// name, or that has no namespace yet. The namespace is created soon after the cluster is
	// accepted.
	retryPause = 3 * time.Second
	// shownFailures is the maximum number of failing clusters in a status.
	shownFailures = 100
	// shownMessage is the maximum size in bytes of their messages.
	shownMessage = 1024
	// summaryDelay batches the reports of agents: after a change of the spec, every cluster reports.
	summaryDelay = 250 * time.Millisecond
)

// ReplicaController replicates accounts of cluster sets to every cluster of the sets. A replica has the
// same name in the namespace of the cluster, and the agent of the cluster treats it like any other
// account. The controller summarizes the replicas in the status of the account, and reports accounts
// whose namespace has no clusters.
//
// A label and an annotation that only the server can set mark a replica, because owner references
// cannot cross namespaces.
type ReplicaController struct {
	reconcile.Loop
	ReplicaInformers
	accounts accountclient.ManagedServiceAccountsGetter
	sets     Sets
}

// ReplicaInformers are the informers of a ReplicaController. The caller starts them.
type ReplicaInformers struct {
	Accounts accountinformers.ManagedServiceAccountInformer
	Clusters clusterlisters.ManagedClusterLister
	// Membership are the feeds that may change the clusters of namespaces. Their keys are namespaces
	// without names.
	Membership []reconcile.Feed
}

// NewReplicaController returns a ReplicaController.
func NewReplicaController(client accountclient.ManagedServiceAccountsGetter, sets Sets, informers ReplicaInformers) (*ReplicaController, error) {
	r := &ReplicaController{ReplicaInformers: informers, accounts: client, sets: sets}
	if err := informers.Accounts.Informer().AddIndexers(cache.Indexers{byParent: reconcile.IndexNames(parentKeys)}); err != nil {
		return nil, fmt.Errorf("indexing ManagedServiceAccounts: %w", err)
	}
	r.Loop = reconcile.Loop{
		Name:      "managedserviceaccount-replicas",
		Reconcile: r.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: informers.Accounts.Informer(), Keys: reconcile.Keys(accountKeys)},
			{Informer: informers.Accounts.Informer(), Keys: reconcile.Keys(parentKeys), Ignore: reconcile.Same(sameState), Delay: summaryDelay},
		},
	}
	for _, feed := range informers.Membership {
		namespaces := feed.Keys
		feed.Keys = func(obj any) []cache.ObjectName {
			var keys []cache.ObjectName
			for _, namespace := range namespaces(obj) {
				keys = append(keys, r.accountsIn(namespace.Namespace)...)
			}
			return keys
		}
		r.Loop.Feeds = append(r.Loop.Feeds, feed)
	}
	return r, nil
}

func isReplica(account *authenticationv1beta1.ManagedServiceAccount) bool {
	return account.Labels[authenticationv1beta1.ParentNamespaceLabel] != ""
}

// accountKeys returns an account that is not a replica.
func accountKeys(account *authenticationv1beta1.ManagedServiceAccount) []cache.ObjectName {
	if isReplica(account) {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(account)}
}

// parentKeys returns the account of a replica.
func parentKeys(account *authenticationv1beta1.ManagedServiceAccount) []cache.ObjectName {
	if !isReplica(account) {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName(account.Labels[authenticationv1beta1.ParentNamespaceLabel], account.Name)}
}

// sameState reports whether an update of a replica keeps the fields that the controller writes or
// summarizes.
func sameState(a, b *authenticationv1beta1.ManagedServiceAccount) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && healthOf(a) == healthOf(b)
}

func (r *ReplicaController) accountsIn(namespace string) []cache.ObjectName {
	accounts, err := r.Accounts.Lister().ManagedServiceAccounts(namespace).List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(err)
		return nil
	}
	var keys []cache.ObjectName
	for _, account := range accounts {
		keys = append(keys, accountKeys(account)...)
		keys = append(keys, parentKeys(account)...)
	}
	return keys
}

func (r *ReplicaController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := r.Accounts.Lister().ManagedServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && account.DeletionTimestamp != nil {
		return 0, r.remove(ctx, name, nil)
	}
	if err != nil {
		return 0, err
	}
	_, err = r.Clusters.Get(account.Namespace)
	if err == nil {
		if err := r.remove(ctx, name, nil); err != nil {
			return 0, err
		}
		return 0, r.updateStatus(ctx, account, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
			meta.RemoveStatusCondition(&status.Conditions, authenticationv1beta1.ConditionNamespaceManaged)
			// The agent of the cluster reports the other fields of a replica.
			status.Clusters = nil
		})
	}
	if !apierrors.IsNotFound(err) {
		return 0, err
	}
	members, bound, err := r.sets.Clusters(account.Namespace)
	if err != nil {
		return 0, err
	}
	wanted := make(map[string]bool, len(members))
	for _, cluster := range members {
		wanted[cluster] = true
	}
	if err := r.remove(ctx, name, func(replica *authenticationv1beta1.ManagedServiceAccount) bool {
		return wanted[replica.Namespace] && replica.Annotations[authenticationv1beta1.ParentUIDAnnotation] == string(account.UID)
	}); err != nil {
		return 0, err
	}
	if !bound {
		return 0, r.reportUnmanaged(ctx, account)
	}
	states, failed := r.replicate(ctx, account, members)
	err = r.updateStatus(ctx, account, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		meta.RemoveStatusCondition(&status.Conditions, authenticationv1beta1.ConditionNamespaceManaged)
		summarize(status, account.Generation, states)
	})
	if err := errors.Join(failed, err); err != nil {
		return 0, err
	}
	if slices.ContainsFunc(states, func(s replicaState) bool { return s.again }) {
		return retryPause, nil
	}
	return 0, nil
}

// remove deletes the replicas of an account, except those for which keep returns true.
func (r *ReplicaController) remove(ctx context.Context, parent cache.ObjectName, keep func(*authenticationv1beta1.ManagedServiceAccount) bool) error {
	var group errgroup.Group
	group.SetLimit(writers)
	for _, replica := range reconcile.Indexed[*authenticationv1beta1.ManagedServiceAccount](r.Accounts.Informer().GetIndexer(), byParent, parent.String()) {
		if replica.DeletionTimestamp != nil || keep != nil && keep(replica) {
			continue
		}
		group.Go(func() error {
			err := r.accounts.ManagedServiceAccounts(replica.Namespace).Delete(ctx, replica.Name, *metav1.NewPreconditionDeleteOptions(string(replica.UID)))
			if err = reconcile.IgnoreOutdated(err); err != nil {
				return fmt.Errorf("deleting the replica of ManagedServiceAccount %s on cluster %s: %w", parent, replica.Namespace, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// health is the state of an account on one cluster.
type health struct {
	ready           bool
	reason, message string
	// expires is the expiry of the token of a ready account, if it is known.
	expires time.Time
}

// replicaState is the health of an account on a cluster.
type replicaState struct {
	health
	cluster string
	// again is true for an error that requires a retry, because no event follows.
	again bool
}

// replicate creates and updates the replicas on the given clusters.
func (r *ReplicaController) replicate(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, clusters []string) ([]replicaState, error) {
	states := make([]replicaState, len(clusters))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, cluster := range clusters {
		replica, err := r.Accounts.Lister().ManagedServiceAccounts(cluster).Get(account.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			states[i] = replicaState{cluster: cluster, health: health{reason: "ReadFailed", message: err.Error()}, again: true}
			continue
		}
		if err == nil && (!replicates(replica, account) || upToDate(replica, account)) {
			states[i] = stateOf(cluster, replica, account)
			continue
		}
		group.Go(func() error {
			state, err := r.write(ctx, account, cluster, replica)
			states[i] = state
			return err
		})
	}
	// An error for one cluster must not stop the writes to the others.
	return states, group.Wait()
}

// replicates reports whether an account is a replica of another one.
func replicates(replica, account *authenticationv1beta1.ManagedServiceAccount) bool {
	return replica.Labels[authenticationv1beta1.ParentNamespaceLabel] == account.Namespace &&
		replica.Annotations[authenticationv1beta1.ParentUIDAnnotation] == string(account.UID)
}

// replicaSpec returns the spec of the replicas. It has no TTL: the replicas are deleted with the account.
func replicaSpec(account *authenticationv1beta1.ManagedServiceAccount) authenticationv1beta1.ManagedServiceAccountSpec {
	spec := *account.Spec.DeepCopy()
	spec.TTLSecondsAfterCreation = nil
	return spec
}

func upToDate(replica, account *authenticationv1beta1.ManagedServiceAccount) bool {
	return equality.Semantic.DeepEqual(replica.Spec, replicaSpec(account))
}

func (r *ReplicaController) write(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, cluster string, replica *authenticationv1beta1.ManagedServiceAccount) (replicaState, error) {
	client := r.accounts.ManagedServiceAccounts(cluster)
	var err error
	if replica == nil {
		replica, err = client.Create(ctx, &authenticationv1beta1.ManagedServiceAccount{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: cluster, Name: account.Name,
				Labels:      map[string]string{authenticationv1beta1.ParentNamespaceLabel: account.Namespace},
				Annotations: map[string]string{authenticationv1beta1.ParentUIDAnnotation: string(account.UID)},
			},
			Spec: replicaSpec(account),
		}, metav1.CreateOptions{})
	} else {
		update := replica.DeepCopy()
		update.Spec = replicaSpec(account)
		replica, err = client.Update(ctx, update, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		return stateOf(cluster, replica, account), nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return replicaState{cluster: cluster, again: true, health: health{
			reason: "NamespaceMissing", message: "The namespace of the cluster on the hub does not exist or is being deleted.",
		}}, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		// The cache is outdated. The event of the change triggers the next attempt.
		return replicaState{cluster: cluster, health: health{
			reason: authenticationv1beta1.ReasonPending, message: "The account was changed at the same time; the server tries again.",
		}}, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		// The cause is an admission policy, or an account that was stored before validation.
		return replicaState{cluster: cluster, health: health{reason: "Refused", message: err.Error()}, again: true}, nil
	}
	return replicaState{cluster: cluster, health: health{reason: "WriteFailed", message: err.Error()}},
		fmt.Errorf("replicating ManagedServiceAccount %s/%s to cluster %s: %w", account.Namespace, account.Name, cluster, err)
}

// stateOf returns the state of the account that has the name of a replica.
func stateOf(cluster string, found, account *authenticationv1beta1.ManagedServiceAccount) replicaState {
	state := replicaState{cluster: cluster}
	if !replicates(found, account) {
		state.reason = "NameTaken"
		state.message = "The namespace of the cluster contains another ManagedServiceAccount with the same name."
		state.again = true // events of the other account do not trigger a pass over this one
		return state
	}
	state.health = healthOf(found)
	return state
}

// healthOf returns the health of a replica from the report of its agent.
func healthOf(replica *authenticationv1beta1.ManagedServiceAccount) health {
	reported := meta.FindStatusCondition(replica.Status.Conditions, authenticationv1beta1.ConditionTokenReported)
	switch {
	case replica.DeletionTimestamp != nil:
		return health{reason: "Deleting", message: "The account is being deleted on the cluster."}
	case reported == nil:
		return health{reason: authenticationv1beta1.ReasonPending}
	// Upstream agents do not report an observed generation.
	case reported.ObservedGeneration > 0 && reported.ObservedGeneration < replica.Generation:
		return health{reason: authenticationv1beta1.ReasonPending, message: "The agent of the managed cluster has not reported on the current spec yet."}
	case reported.Status == metav1.ConditionTrue:
		health := health{ready: true}
		if replica.Status.ExpirationTimestamp != nil {
			health.expires = replica.Status.ExpirationTimestamp.Time
		}
		return health
	}
	message := reported.Message
	if len(message) > shownMessage {
		message = strings.ToValidUTF8(message[:shownMessage], "")
	}
	return health{reason: reported.Reason, message: message}
}

// updateStatus changes the status of an account, and writes it if it differs.
func (r *ReplicaController) updateStatus(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, change func(*authenticationv1beta1.ManagedServiceAccountStatus)) error {
	update := account.DeepCopy()
	change(&update.Status)
	if equality.Semantic.DeepEqual(account.Status, update.Status) {
		return nil
	}
	return writeStatus(ctx, r.accounts, update)
}

// reportUnmanaged reports that the namespace of an account has no clusters.
func (r *ReplicaController) reportUnmanaged(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) error {
	condition := metav1.Condition{
		Type: authenticationv1beta1.ConditionNamespaceManaged, Status: metav1.ConditionFalse,
		Reason: authenticationv1beta1.ReasonNotManaged, ObservedGeneration: account.Generation,
		Message: "The namespace " + unmanaged + ".",
	}
	if ref := account.Status.ServiceAccountRef; ref == nil {
		condition.Message += " The account waits until it has one."
	} else {
		condition.Message += fmt.Sprintf(" ServiceAccount %s/%s and its token may remain on the managed cluster; its agent manages them only while it runs.", ref.Namespace, ref.Name)
	}
	return r.updateStatus(ctx, account, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		meta.SetStatusCondition(&status.Conditions, condition)
		if status.Clusters != nil {
			status.Clusters, status.ExpirationTimestamp = &authenticationv1beta1.ClusterSummary{}, nil
			setAllConditions(status, condition)
		}
	})
}

// summarize sets the status of an account from its replicas.
func summarize(status *authenticationv1beta1.ManagedServiceAccountStatus, generation int64, states []replicaState) {
	summary := &authenticationv1beta1.ClusterSummary{Total: int32(len(states))}
	status.ExpirationTimestamp = nil
	reasons := map[string]bool{}
	for _, state := range states {
		if !state.ready {
			reasons[state.reason] = true
			if len(summary.Failing) < shownFailures {
				summary.Failing = append(summary.Failing, authenticationv1beta1.ClusterFailure{
					Name: state.cluster, Reason: state.reason, Message: state.message,
				})
			}
			continue
		}
		summary.Ready++
		if first := status.ExpirationTimestamp; !state.expires.IsZero() && (first == nil || state.expires.Before(first.Time)) {
			status.ExpirationTimestamp = &metav1.Time{Time: state.expires}
		}
	}
	status.Clusters = summary

	condition := metav1.Condition{
		Status: metav1.ConditionTrue, Reason: authenticationv1beta1.ReasonAllClustersReady, ObservedGeneration: generation,
		Message: fmt.Sprintf("The tokens of all %d clusters are reported.", summary.Total),
	}
	switch {
	case summary.Total == 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, authenticationv1beta1.ReasonNoClusters
		condition.Message = "The ManagedClusterSets that are bound to the namespace have no clusters."
	case summary.Ready < summary.Total:
		condition.Status, condition.Reason = metav1.ConditionFalse, authenticationv1beta1.ReasonClustersNotReady
		condition.Message = fmt.Sprintf("%d of %d clusters are not ready: %s.", summary.Total-summary.Ready, summary.Total,
			strings.Join(slices.Sorted(maps.Keys(reasons)), ", "))
	}
	setAllConditions(status, condition)
}

// setAllConditions sets all conditions of an account of cluster sets to the same status.
func setAllConditions(status *authenticationv1beta1.ManagedServiceAccountStatus, condition metav1.Condition) {
	for _, conditionType := range []string{
		authenticationv1beta1.ConditionAllServiceAccountPresent,
		authenticationv1beta1.ConditionSecretCreated,
		authenticationv1beta1.ConditionTokenReported,
	} {
		condition.Type = conditionType
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}
