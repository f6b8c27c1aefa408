package accountsync

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
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// byParent indexes replicas by namespace and name of the account that they replicate.
	byParent = "parent"

	// writers is how many replicas of one account are written at the same time.
	writers = 16
	// retryPause is how long it takes until a cluster is tried again that lacks its
	// namespace, which acceptance makes within moments, or where the name is taken.
	retryPause = 3 * time.Second
	// shownFailures bounds the failing clusters that a status names.
	shownFailures = 100
	// shownMessage bounds what of an agent's message is repeated there, in bytes.
	shownMessage = 1024
	// summaryDelay is how long reports of agents are gathered before they are summed
	// up: a change of the spec brings one of every cluster.
	summaryDelay = 250 * time.Millisecond
)

// Replicator keeps the accounts of cluster sets on every cluster of the sets: a
// replica of the same name in the cluster's namespace, from which the cluster's
// agent goes on as from any other account. It sums the replicas up in the status
// of the account, and says of accounts whose namespace has no clusters (any more)
// that it is so.
//
// Replicas are not owned by reference, which cannot cross namespaces, but by marks
// that only the server can set.
type Replicator struct {
	accounts accountclient.ManagedServiceAccountsGetter
	lister   accountlisters.ManagedServiceAccountLister
	index    cache.Indexer
	clusters clusterlisters.ManagedClusterLister
	sets     Sets
	loop     reconcile.Loop
}

// ReplicatorInformers feed a Replicator. The caller starts them.
type ReplicatorInformers struct {
	Accounts accountinformers.ManagedServiceAccountInformer
	// Clusters lists what Membership may be about.
	Clusters clusterlisters.ManagedClusterLister
	// Membership are changes after which the clusters of some namespaces may be
	// others: the Keys of these feeds are namespaces, without names.
	Membership []reconcile.Feed
}

// NewReplicator returns a Replicator.
func NewReplicator(client accountclient.ManagedServiceAccountsGetter, sets Sets, informers ReplicatorInformers) (*Replicator, error) {
	r := &Replicator{
		accounts: client,
		lister:   informers.Accounts.Lister(),
		index:    informers.Accounts.Informer().GetIndexer(),
		clusters: informers.Clusters,
		sets:     sets,
	}
	if err := informers.Accounts.Informer().AddIndexers(cache.Indexers{byParent: func(obj any) ([]string, error) {
		if account, ok := obj.(*authenticationv1beta1.ManagedServiceAccount); ok && isReplica(account) {
			return []string{parentOf(account).String()}, nil
		}
		return nil, nil
	}}); err != nil {
		return nil, fmt.Errorf("indexing ManagedServiceAccounts: %w", err)
	}
	r.loop = reconcile.Loop{
		Name:      "managedserviceaccount-replicas",
		Reconcile: r.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: informers.Accounts.Informer(), Keys: accountKeys},
			{Informer: informers.Accounts.Informer(), Keys: parentKeys, Ignore: sameState, Delay: summaryDelay},
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
		r.loop.Feeds = append(r.loop.Feeds, feed)
	}
	return r, nil
}

// Run acts until ctx ends, and returns once every worker has stopped.
func (r *Replicator) Run(ctx context.Context) { r.loop.Run(ctx) }

func isReplica(account *authenticationv1beta1.ManagedServiceAccount) bool {
	return account.Labels[authenticationv1beta1.ParentNamespaceLabel] != ""
}

func parentOf(replica *authenticationv1beta1.ManagedServiceAccount) cache.ObjectName {
	return cache.NewObjectName(replica.Labels[authenticationv1beta1.ParentNamespaceLabel], replica.Name)
}

// accountKeys is an account that is no replica.
func accountKeys(obj any) []cache.ObjectName {
	account, ok := obj.(*authenticationv1beta1.ManagedServiceAccount)
	if !ok || isReplica(account) {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(account)}
}

// parentKeys is the account that a replica replicates.
func parentKeys(obj any) []cache.ObjectName {
	account, ok := obj.(*authenticationv1beta1.ManagedServiceAccount)
	if !ok || !isReplica(account) {
		return nil
	}
	return []cache.ObjectName{parentOf(account)}
}

// sameState tells that an update of a replica changes neither what the account
// sums up nor what has to be put back.
func sameState(before, after any) bool {
	a, ok := before.(*authenticationv1beta1.ManagedServiceAccount)
	b, also := after.(*authenticationv1beta1.ManagedServiceAccount)
	return ok && also && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && judge(a) == judge(b)
}

func (r *Replicator) accountsIn(namespace string) []cache.ObjectName {
	accounts, err := r.lister.ManagedServiceAccounts(namespace).List(labels.Everything())
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

func (r *Replicator) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	account, err := r.lister.ManagedServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && account.DeletionTimestamp != nil {
		return 0, r.remove(ctx, name, nil)
	}
	if err != nil {
		return 0, err
	}
	_, err = r.clusters.Get(account.Namespace)
	if err == nil {
		if err := r.remove(ctx, name, nil); err != nil {
			return 0, err
		}
		return 0, r.report(ctx, account, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
			meta.RemoveStatusCondition(&status.Conditions, authenticationv1beta1.ConditionNamespaceManaged)
			// The agent of the cluster reports the rest.
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
	err = r.report(ctx, account, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
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

// remove deletes the replicas of an account, but for those that keep wants.
func (r *Replicator) remove(ctx context.Context, parent cache.ObjectName, keep func(*authenticationv1beta1.ManagedServiceAccount) bool) error {
	objects, err := r.index.ByIndex(byParent, parent.String())
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(writers)
	for _, obj := range objects {
		replica := obj.(*authenticationv1beta1.ManagedServiceAccount)
		if replica.DeletionTimestamp != nil || keep != nil && keep(replica) {
			continue
		}
		group.Go(func() error {
			err := r.accounts.ManagedServiceAccounts(replica.Namespace).Delete(ctx, replica.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &replica.UID},
			})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("deleting the replica of ManagedServiceAccount %s on cluster %s: %w", parent, replica.Namespace, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// judgement is how an account is doing on one cluster.
type judgement struct {
	ready           bool
	reason, message string
	// expires is when the token of one that is ready does.
	expires time.Time
}

// replicaState is what is known of an account on one cluster.
type replicaState struct {
	judgement
	cluster string
	// again is for what is worth another try without any event.
	again bool
}

// replicate makes the replicas on the given clusters what they should be.
func (r *Replicator) replicate(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, clusters []string) ([]replicaState, error) {
	states := make([]replicaState, len(clusters))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, cluster := range clusters {
		replica, err := r.lister.ManagedServiceAccounts(cluster).Get(account.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			states[i] = replicaState{cluster: cluster, judgement: judgement{reason: "ReadFailed", message: err.Error()}, again: true}
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
	// One cluster that cannot be served is no reason to leave the others alone:
	// the group goes on, and returns the first error.
	return states, group.Wait()
}

// replicates tells whether an account is the replica of another one.
func replicates(replica, account *authenticationv1beta1.ManagedServiceAccount) bool {
	return replica.Labels[authenticationv1beta1.ParentNamespaceLabel] == account.Namespace &&
		replica.Annotations[authenticationv1beta1.ParentUIDAnnotation] == string(account.UID)
}

// replicaSpec is the spec of every replica. When the account is due, it is
// deleted with its replicas.
func replicaSpec(account *authenticationv1beta1.ManagedServiceAccount) authenticationv1beta1.ManagedServiceAccountSpec {
	spec := *account.Spec.DeepCopy()
	spec.TTLSecondsAfterCreation = nil
	return spec
}

func upToDate(replica, account *authenticationv1beta1.ManagedServiceAccount) bool {
	return equality.Semantic.DeepEqual(replica.Spec, replicaSpec(account))
}

func (r *Replicator) write(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, cluster string, replica *authenticationv1beta1.ManagedServiceAccount) (replicaState, error) {
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
		return replicaState{cluster: cluster, again: true, judgement: judgement{
			reason: "NamespaceMissing", message: "The hub namespace of the cluster does not exist or is being deleted.",
		}}, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		// The cache is behind; what it gets to know brings an event.
		return replicaState{cluster: cluster, judgement: judgement{
			reason: authenticationv1beta1.ReasonPending, message: "The account has just been changed.",
		}}, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		// An admission policy of the hub, or an account from before validation.
		return replicaState{cluster: cluster, judgement: judgement{reason: "Refused", message: err.Error()}, again: true}, nil
	}
	return replicaState{cluster: cluster, judgement: judgement{reason: "WriteFailed", message: err.Error()}},
		fmt.Errorf("replicating ManagedServiceAccount %s/%s to cluster %s: %w", account.Namespace, account.Name, cluster, err)
}

// stateOf judges what is in the place of a replica.
func stateOf(cluster string, found, account *authenticationv1beta1.ManagedServiceAccount) replicaState {
	state := replicaState{cluster: cluster}
	if !replicates(found, account) {
		state.reason = "NameTaken"
		state.message = "Another ManagedServiceAccount of that name is in the namespace of the cluster."
		state.again = true // nothing leads from that account to this one
		return state
	}
	state.judgement = judge(found)
	return state
}

// judge sums up what an agent reports on a replica.
func judge(replica *authenticationv1beta1.ManagedServiceAccount) judgement {
	reported := meta.FindStatusCondition(replica.Status.Conditions, authenticationv1beta1.ConditionTokenReported)
	switch {
	case replica.DeletionTimestamp != nil:
		return judgement{reason: "Deleting", message: "The account is being deleted on the cluster."}
	case reported == nil:
		return judgement{reason: authenticationv1beta1.ReasonPending}
	// Agents of today do not say which generation they report on.
	case reported.ObservedGeneration > 0 && reported.ObservedGeneration < replica.Generation:
		return judgement{reason: authenticationv1beta1.ReasonPending, message: "The agent of the managed cluster has not reported on the present spec yet."}
	case reported.Status == metav1.ConditionTrue:
		judgement := judgement{ready: true}
		if replica.Status.ExpirationTimestamp != nil {
			judgement.expires = replica.Status.ExpirationTimestamp.Time
		}
		return judgement
	}
	message := reported.Message
	if len(message) > shownMessage {
		message = strings.ToValidUTF8(message[:shownMessage], "")
	}
	return judgement{reason: reported.Reason, message: message}
}

// report writes what has become of the status of an account, if that is news.
func (r *Replicator) report(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, change func(*authenticationv1beta1.ManagedServiceAccountStatus)) error {
	update := account.DeepCopy()
	change(&update.Status)
	if equality.Semantic.DeepEqual(account.Status, update.Status) {
		return nil
	}
	return writeStatus(ctx, r.accounts, update)
}

// reportUnmanaged says of an account that its namespace has no clusters any more.
func (r *Replicator) reportUnmanaged(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) error {
	missing, err := r.sets.Missing(account.Namespace)
	if err != nil {
		return err
	}
	verdict := metav1.Condition{
		Type: authenticationv1beta1.ConditionNamespaceManaged, Status: metav1.ConditionFalse,
		Reason: authenticationv1beta1.ReasonNotManaged, ObservedGeneration: account.Generation,
		Message: "The namespace " + unmanaged(missing) + ".",
	}
	if ref := account.Status.ServiceAccountRef; ref != nil {
		verdict.Message += fmt.Sprintf(" What was on the cluster, ServiceAccount %s/%s and its token, is looked after only while its agent still runs.", ref.Namespace, ref.Name)
	}
	return r.report(ctx, account, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		meta.SetStatusCondition(&status.Conditions, verdict)
		if status.Clusters != nil {
			status.Clusters, status.ExpirationTimestamp = &authenticationv1beta1.ClusterSummary{}, nil
			setVerdict(status, verdict)
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

	verdict := metav1.Condition{
		Status: metav1.ConditionTrue, Reason: authenticationv1beta1.ReasonAllClustersReady, ObservedGeneration: generation,
		Message: fmt.Sprintf("The token of each of %d clusters is reported.", summary.Total),
	}
	switch {
	case summary.Total == 0:
		verdict.Status, verdict.Reason = metav1.ConditionFalse, authenticationv1beta1.ReasonNoClusters
		verdict.Message = "The sets that are bound to the namespace have no clusters."
	case summary.Ready < summary.Total:
		verdict.Status, verdict.Reason = metav1.ConditionFalse, authenticationv1beta1.ReasonClustersNotReady
		verdict.Message = fmt.Sprintf("%d of %d clusters are not ready: %s.", summary.Total-summary.Ready, summary.Total,
			strings.Join(slices.Sorted(maps.Keys(reasons)), ", "))
	}
	setVerdict(status, verdict)
}

// setVerdict says the same of everything that an account on many clusters has there.
func setVerdict(status *authenticationv1beta1.ManagedServiceAccountStatus, verdict metav1.Condition) {
	for _, conditionType := range []string{
		authenticationv1beta1.ConditionAllServiceAccountPresent,
		authenticationv1beta1.ConditionSecretCreated,
		authenticationv1beta1.ConditionTokenReported,
	} {
		verdict.Type = conditionType
		meta.SetStatusCondition(&status.Conditions, verdict)
	}
}
