package membership

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/managednamespaces"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// forbiddenTries and unauthorizedTries are the numbers of consecutive responses that take
	// effect. A starting hub may not have its RBAC rules or authenticators yet.
	forbiddenTries    = 4
	unauthorizedTries = 6
	// movePeriod is the interval of checks whether the bootstrap kubeconfig contains another
	// address.
	movePeriod = time.Minute
	// drainPatience bounds the wait for the condition Deleting, by which a hub shows that it
	// deletes the objects that it delivered. Without the condition, the agent removes the applied
	// objects.
	drainPatience = 5 * time.Second
	// releaseTries is the number of attempts of the agent of a deleted cluster to mark namespaces
	// as no longer required.
	releaseTries = 5
)

type mode int

const (
	idle mode = iota
	serving
	removing
)

// membership is the membership with one set of credentials.
type membership struct {
	*Registrar
	workload Workload
	known    *identity
	conn     *connection
	hub      Hub
	// again is signalled to read the own ManagedCluster immediately.
	again chan struct{}
	// latest is the last known state of the own ManagedCluster.
	latest atomic.Pointer[clusterv1.ManagedCluster]
	// retimed is signalled when the duration of the lease changes. relisted is signalled when the
	// list of managed namespaces or their reported conditions change on the hub.
	retimed, relisted chan struct{}

	// Only run uses the fields below.
	mode mode
	task *task
	// restore is the restore of the hub's data when the current mode began.
	restore string
	// accepted is true if the hub has accepted the cluster since this process started.
	accepted bool
	// draining is the UID of the own ManagedCluster while the hub deletes the objects that it
	// delivered. Otherwise it is nil. drainingSince is the start of that time.
	draining      *types.UID
	drainingSince time.Time
	// unauthorized and forbidden are the numbers of consecutive responses.
	unauthorized, forbidden int
	// secretGone is true if the Secret of a deleted cluster was deleted.
	secretGone bool
}

// task is the goroutine of a mode.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func startTask(ctx context.Context, run func(context.Context) error) *task {
	ctx, cancel := context.WithCancel(ctx)
	t := &task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.err = run(ctx)
	}()
	return t
}

func (t *task) stop() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// ended returns a channel that is closed when the task has ended, or nil if no task exists.
func (t *task) ended() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.done
}

func (r *Registrar) newMembership(known *identity, workload Workload) (*membership, error) {
	m := &membership{Registrar: r, workload: workload, known: known, again: make(chan struct{}, 1), retimed: make(chan struct{}, 1), relisted: make(chan struct{}, 1)}
	conn, err := r.connect()
	switch {
	case err == nil:
		m.conn, m.hub = conn, Hub{Config: conn.config, Hash: known.get(keyHubHash), Latest: m.latest.Load}
	case known.deleted != nil:
		// The remaining tasks do not require the hub.
		m.hub = Hub{Hash: known.get(keyHubHash)}
	default:
		return nil, err
	}
	return m, nil
}

// run follows the ManagedCluster until other credentials are required.
func (m *membership) run(ctx context.Context) (verdict, error) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer func() {
		m.become(idle)
		cancel()
		following.Wait()
		if m.conn != nil {
			m.conn.close()
		}
	}()
	clusters, secrets := make(chan sight[*clusterv1.ManagedCluster]), make(chan sight[*corev1.Secret])
	move := make(chan struct{})
	if m.conn != nil {
		following.Go(func() { ownCluster(m.conn.hub.ocm, m.config.ClusterName, m.again).follow(ctx, sender(ctx, clusters)) })
		following.Go(func() {
			if m.hasMoved(ctx) {
				close(move)
			}
		})
	}
	following.Go(func() { m.store.followSecret().follow(ctx, sender(ctx, secrets)) })

	if m.known.deleted != nil {
		m.remove(ctx)
	} else {
		m.note(fmt.Sprintf("waiting for the hub to report whether it accepts %s", m.config.ClusterName))
	}
	for {
		select {
		case <-ctx.Done():
			return stopped, nil
		case <-move:
			if m.mode != removing {
				klog.FromContext(ctx).Info("The bootstrap kubeconfig contains another address of the hub; reconnecting")
				return moved, nil
			}
			move = nil
		case seen := <-clusters:
			if end := m.see(ctx, seen); end != stopped {
				return end, nil
			}
		case seen := <-secrets:
			if end := m.seeSecret(ctx, seen); end == superseded {
				return end, nil
			}
		case <-m.task.ended():
			if err := m.task.err; err != nil {
				return stopped, err
			}
			m.task = nil
			if m.mode == removing {
				m.note(m.removed())
			}
		}
		if m.secretGone && m.mode == removing && m.task == nil {
			return afresh, nil
		}
	}
}

func sender[T any](ctx context.Context, to chan<- T) func(T) {
	return func(value T) {
		select {
		case to <- value:
		case <-ctx.Done():
		}
	}
}

// hasMoved waits until the bootstrap kubeconfig contains another address or CA of the hub. It
// returns false if ctx ends.
func (m *membership) hasMoved(ctx context.Context) bool {
	before, err := knownEndpoint(m.known)
	if _, none := m.bootstrap.load(); err != nil || errors.Is(none, errNoBootstrap) {
		return false
	}
	for reconcile.Pause(ctx, wait.Jitter(movePeriod, 0.5), nil) {
		_, _ = m.readBootstrap(ctx) // endpoint is then the previous one, or that of the file
		if now, err := m.bootstrap.endpoint(); err == nil && *now != *before {
			return true
		}
	}
	return false
}

// see handles the state of the own ManagedCluster, or the error of reading it.
func (m *membership) see(ctx context.Context, seen sight[*clusterv1.ManagedCluster]) verdict {
	name := m.config.ClusterName
	m.responded(seen.err)
	switch {
	case apierrors.IsUnauthorized(seen.err):
		m.unauthorized, m.forbidden = m.unauthorized+1, 0
	case apierrors.IsForbidden(seen.err):
		m.unauthorized, m.forbidden = 0, m.forbidden+1
	case seen.err == nil:
		m.unauthorized, m.forbidden = 0, 0
	}
	unauthorized := apierrors.IsUnauthorized(seen.err) && m.unauthorized >= unauthorizedTries
	forbidden := apierrors.IsForbidden(seen.err) && m.forbidden >= forbiddenTries
	if seen.err == nil && !seen.absent {
		return m.follow(ctx, seen.object, seen.deleted)
	}
	if m.mode == removing {
		return stopped
	}
	switch {
	case m.draining != nil && (unauthorized || forbidden || seen.absent):
		m.deleted(ctx, *m.draining)
	case unauthorized:
		return rejected
	case forbidden && m.accepted:
		m.idle()
		m.note(fmt.Sprintf("%s has lost access to the hub: it is not allowed to get its ManagedCluster", name))
	case forbidden:
		m.idle()
		m.note(fmt.Sprintf("waiting for the hub to accept %s: it has no access to the hub", name))
	case seen.absent:
		// The agent has not observed a deletion, so the hub may have lost its data.
		m.idle()
		m.note(fmt.Sprintf("the hub has no ManagedCluster %s; applied objects stay", name))
	case m.mode == idle && temporary(seen.err):
		m.note(fmt.Sprintf("the hub does not respond: %v", seen.err))
	}
	return stopped
}

// follow does what the hub says about the own ManagedCluster.
func (m *membership) follow(ctx context.Context, cluster *clusterv1.ManagedCluster, deleted bool) verdict {
	// A hub that another hub has replaced must not delete anything either.
	if end, obeys := m.obeys(ctx, cluster); !obeys {
		return end
	}
	m.setLatest(cluster)
	switch {
	case !deleted && m.known.deleted == nil && m.drains(cluster):
		m.drain(ctx, cluster.UID)
	case deleted || cluster.DeletionTimestamp != nil:
		m.deleted(ctx, cluster.UID)
	case m.known.deleted != nil && (*m.known.deleted == cluster.UID || !accepted(cluster)):
		return stopped // a delayed event must not accept a deleted cluster again
	case accepted(cluster):
		m.accepted, m.draining = true, nil
		if restore := cluster.Annotations[clusterv1.RestoredAnnotation]; restore != m.restore {
			// A new session reads all objects of the restored hub.
			m.idle()
			m.restore = restore
		}
		m.serve(ctx)
	default:
		m.idle()
		m.note(m.denied(cluster))
	}
	return stopped
}

// deleted removes the applied objects after the hub has deleted the own ManagedCluster.
func (m *membership) deleted(ctx context.Context, uid types.UID) {
	m.draining = nil
	if m.known.deleted != nil {
		return
	}
	m.known.deleted = &uid
	klog.FromContext(ctx).Info("The hub has deleted this cluster; removing the applied objects", "cluster", m.config.ClusterName)
	m.remove(ctx)
}

// drains reports whether the hub deletes the objects that it delivered before it revokes the access
// of the deleted cluster, or may still report that.
func (m *membership) drains(cluster *clusterv1.ManagedCluster) bool {
	draining, said := cluster.Draining()
	return draining && (said || m.draining == nil || time.Since(m.drainingSince) < drainPatience)
}

// drain continues to serve while the hub deletes its ManifestWorks. Each deletion removes the
// applied objects in the same way as a deletion by a user.
func (m *membership) drain(ctx context.Context, uid types.UID) {
	if m.draining == nil {
		klog.FromContext(ctx).Info("The hub is deleting this cluster; serving until it has deleted what it delivered", "cluster", m.config.ClusterName)
		m.draining, m.drainingSince = &uid, time.Now()
		time.AfterFunc(drainPatience, m.lookAgain)
	}
	m.accepted = true
	m.serve(ctx)
}

func (m *membership) lookAgain() { reconcile.Signal(m.again) }

// setLatest stores the state of the own ManagedCluster and signals relevant changes.
func (m *membership) setLatest(cluster *clusterv1.ManagedCluster) {
	before := m.latest.Swap(cluster)
	if before == nil {
		return
	}
	if before.Spec.LeaseSeconds() != cluster.Spec.LeaseSeconds() {
		reconcile.Signal(m.retimed)
	}
	if before.UID != cluster.UID || !before.DeletionTimestamp.Equal(cluster.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(before.Status.ManagedNamespaces, cluster.Status.ManagedNamespaces) {
		reconcile.Signal(m.relisted)
	}
}

// denied returns the reason why the hub does not accept a cluster.
func (m *membership) denied(cluster *clusterv1.ManagedCluster) string {
	decision := cluster.Status.Acceptance
	if decision == nil || decision.Accepted {
		if m.accepted {
			return fmt.Sprintf("the hub has denied %s; applied objects stay", cluster.Name)
		}
		return "waiting for the hub to accept " + cluster.Name
	}
	message := "the hub has denied " + cluster.Name
	if decision.Reason != "" {
		message += ": " + decision.Reason
	}
	return message + "; applied objects stay"
}

func (m *membership) become(next mode) {
	m.task.stop()
	m.task, m.mode = nil, next
	if next == idle {
		m.config.Fence.Close()
	} else {
		m.openFence()
	}
}

func (m *membership) idle() {
	if m.mode != idle {
		m.become(idle)
	}
}

func (m *membership) serve(ctx context.Context) {
	if m.mode == serving {
		return
	}
	m.become(serving)
	unmark := m.known.deleted != nil
	m.known.deleted = nil
	klog.FromContext(ctx).Info("The hub accepts this cluster", "cluster", m.config.ClusterName, "agent", m.known.get(keyAgentName))
	m.task = startTask(ctx, func(ctx context.Context) error {
		m.awaitOthers(ctx)
		if unmark && m.mark(ctx, nil) != nil {
			return nil
		}
		m.note("")
		return m.work(ctx)
	})
}

// work runs the tasks of an accepted cluster until ctx ends.
func (m *membership) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { m.renewLease(ctx) })
	running.Go(func() { m.dropBootstrap(ctx) })
	reporter, err := newReporter(m)
	if err != nil {
		return err
	}
	running.Go(func() { reporter.run(ctx) })
	running.Go(func() {
		m.driver.renew(ctx, m.conn.hub, func(ctx context.Context, known *identity) error { return m.renewed(ctx, m.conn, known) })
	})
	return m.workload.Serve(ctx, m.hub)
}

// remove removes the applied objects. It does not require the hub, and continues after a restart.
func (m *membership) remove(ctx context.Context) {
	m.become(removing)
	removal := fmt.Sprintf("the hub has deleted %s; removing the applied objects", m.config.ClusterName)
	uid := m.known.deleted
	m.task = startTask(ctx, func(ctx context.Context) error {
		if m.mark(ctx, uid) != nil {
			return nil
		}
		m.note(removal)
		logger := klog.FromContext(ctx)
		tries := 0
		err := m.insist(ctx, removal, func(ctx context.Context) error {
			tries++
			err := m.workload.Remove(ctx, m.hub)
			if released := managednamespaces.Release(ctx, m.config.Managed, m.hub.Hash); released != nil && ctx.Err() == nil {
				logger.Error(released, "Failed to mark namespaces as no longer required by the hub", "tries", tries)
				// Admission on the managed cluster may reject the label permanently.
				if tries < releaseTries {
					err = errors.Join(err, released)
				}
			}
			return err
		})
		if err == nil {
			logger.Info("Removed the applied objects", "cluster", m.config.ClusterName)
		}
		return ignoreEnd(ctx, err)
	})
}

func (m *membership) removed() string {
	message := fmt.Sprintf("the hub has deleted %s; to register it again, delete the Secret %s/%s", m.config.ClusterName, m.config.Namespace, m.config.SecretName)
	if _, err := m.bootstrap.load(); errors.Is(err, fs.ErrNotExist) {
		message += ", and " + joinAgain
	}
	return message
}

// mark stores in the Secret the UID of the ManagedCluster that the hub has deleted, or nil. It
// returns an error only if ctx ends.
func (m *membership) mark(ctx context.Context, deleted *types.UID) error {
	return m.insist(ctx, "cannot store in the Secret whether the hub has deleted "+m.config.ClusterName, func(ctx context.Context) error {
		if err := m.store.setDeleted(ctx, deleted); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// seeSecret restores the Secret after its deletion. The Secret of a deleted cluster is not
// restored: the user deletes it to register the cluster again. If the Secret contains a higher epoch
// of the hub, seeSecret returns superseded.
func (m *membership) seeSecret(ctx context.Context, seen sight[*corev1.Secret]) verdict {
	switch gone := seen.deleted || seen.absent; {
	case !gone && seen.err == nil:
		m.secretGone = false
		if raised(identityOf(seen.object), m.known) {
			return superseded
		}
	case gone && m.known.deleted != nil:
		m.secretGone = true
	case gone:
		restoreCtx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		if err := m.store.restore(restoreCtx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to restore the deleted Secret with the identity of the cluster")
		}
	}
	return stopped
}

// suspect triggers a read of the own ManagedCluster after an error that indicates a loss of access.
func (m *membership) suspect(err error) {
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		m.lookAgain()
	}
}
