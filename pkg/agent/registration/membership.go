package registration

import (
	"context"
	"errors"
	"fmt"
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
)

const (
	// forbiddenTries and unauthorizedTries are how many answers in a row it takes to be
	// believed: a hub that starts may not know its own RBAC, or its users, for a moment.
	forbiddenTries    = 3
	unauthorizedTries = 5
	// movePeriod is how often the bootstrap kubeconfig is looked at for another address.
	movePeriod = time.Minute
	// drainPatience is how long a hub may take to say by the condition Deleting that it deletes what
	// it delivered. One that does not say so leaves that to the agent.
	drainPatience = 5 * time.Second
	// releaseTries is how often a cluster that leaves tries to mark the namespaces that the hub
	// required as no longer required.
	releaseTries = 5
)

// mode is what an agent does at a time.
type mode int

const (
	idle mode = iota
	serving
	leaving
)

// membership is one time with one set of credentials.
type membership struct {
	*Registrar
	workload Workload
	known    *identity
	conn     *connection
	hub      Hub
	// again has the own ManagedCluster looked at at once.
	again chan struct{}
	// latest is the own ManagedCluster as the hub last told of it.
	latest atomic.Pointer[clusterv1.ManagedCluster]
	// retimed is signalled when the duration of the lease changes, relisted when the list of managed
	// namespaces or their reported conditions change on the hub.
	retimed, relisted chan struct{}

	// What follows belongs to run.
	mode mode
	task *task
	// accepted is whether the hub has accepted the cluster while this process runs.
	accepted bool
	// draining is the UID of the own ManagedCluster while the hub deletes what it delivered, before
	// it deletes that; nil otherwise. It is so since drainingSince.
	draining      *types.UID
	drainingSince time.Time
	// unauthorized and forbidden count answers in a row.
	unauthorized, forbidden int
	// secretGone is whether the Secret of a deleted cluster was deleted.
	secretGone bool
}

// task is what runs in a mode.
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

// stop ends a task and returns when it has ended.
func (t *task) stop() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// ended is closed when the task has ended by itself; nil, and so never, without a task.
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
		m.conn, m.hub = conn, Hub{Config: conn.config, Hash: known.get(keyHubHash)}
	case known.deleted != nil:
		// What is left to be done does not need the hub.
		m.hub = Hub{Hash: known.get(keyHubHash)}
	default:
		return nil, err
	}
	return m, nil
}

// run does what the hub says of the cluster, until that needs other credentials.
func (m *membership) run(ctx context.Context) (verdict, error) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer func() {
		m.task.stop()
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
		m.leave(ctx)
	} else {
		m.note(fmt.Sprintf("the hub has not said yet whether it accepts %s", m.config.ClusterName))
	}
	for {
		select {
		case <-ctx.Done():
			return stopped, nil
		case <-move:
			if m.mode != leaving {
				klog.FromContext(ctx).Info("The bootstrap kubeconfig has another address of the hub; connecting anew")
				return moved, nil
			}
			move = nil
		case seen := <-clusters:
			if m.see(ctx, seen) == rejected {
				return rejected, nil
			}
		case seen := <-secrets:
			m.seeSecret(ctx, seen)
		case <-m.task.ended():
			if err := m.task.err; err != nil {
				return stopped, err
			}
			m.task = nil
			if m.mode == leaving {
				m.note(m.removed())
			}
		}
		if m.secretGone && m.mode == leaving && m.task == nil {
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

// hasMoved returns true when the bootstrap kubeconfig has another address, or another CA,
// of the hub, and false when ctx ends.
func (m *membership) hasMoved(ctx context.Context) bool {
	before, err := knownEndpoint(m.known)
	if err != nil || m.bootstrap == "" {
		return false
	}
	for pause(ctx, wait.Jitter(movePeriod, 0.5), nil) {
		if now, err := m.bootstrap.endpoint(); err == nil && !now.equal(before) {
			return true
		}
	}
	return false
}

// see acts on what the hub says of the own ManagedCluster.
func (m *membership) see(ctx context.Context, seen sight[*clusterv1.ManagedCluster]) verdict {
	name := m.config.ClusterName
	switch {
	case apierrors.IsUnauthorized(seen.err):
		m.forbidden = 0
		if m.unauthorized++; m.unauthorized >= unauthorizedTries && m.mode != leaving {
			if m.draining != nil {
				m.deleted(ctx, *m.draining)
				return stopped
			}
			return rejected
		}
		return stopped
	case apierrors.IsForbidden(seen.err):
		m.unauthorized = 0
		if m.forbidden++; m.forbidden < forbiddenTries || m.mode == leaving {
			return stopped
		}
		if m.draining != nil {
			m.deleted(ctx, *m.draining)
			return stopped
		}
		m.idle()
		if m.accepted {
			m.note(fmt.Sprintf("the hub has thrown %s out: it may not even see its ManagedCluster", name))
		} else {
			m.note(fmt.Sprintf("waiting for the hub to accept %s: it has no access to the hub, or none any more", name))
		}
		return stopped
	case apierrors.IsNotFound(seen.err):
		m.unauthorized, m.forbidden = 0, 0
		if !aboutObject(seen.err, name) || m.mode == leaving {
			return stopped
		}
		if m.draining != nil {
			m.deleted(ctx, *m.draining)
			return stopped
		}
		// Nobody has seen it being deleted. A hub that has lost its data looks like this.
		m.idle()
		m.note(fmt.Sprintf("the hub has no ManagedCluster %s; what it had applied stays", name))
		return stopped
	case seen.err != nil:
		if m.mode == idle {
			m.note(fmt.Sprintf("the hub does not answer: %v", seen.err))
		}
		return stopped
	}
	m.unauthorized, m.forbidden = 0, 0
	cluster := seen.object
	m.hear(cluster)
	switch {
	case !seen.deleted && m.known.deleted == nil && m.drains(cluster):
		m.drain(ctx, cluster.UID)
	case seen.deleted || cluster.DeletionTimestamp != nil:
		m.deleted(ctx, cluster.UID)
	case m.known.deleted != nil && (*m.known.deleted == cluster.UID || !accepted(cluster)):
		// What was deleted is not accepted again by being seen late.
	case accepted(cluster):
		m.accepted, m.draining = true, nil
		m.serve(ctx)
	default:
		m.idle()
		m.note(m.denied(cluster))
	}
	return stopped
}

// deleted removes what the hub had applied, since it has deleted the own ManagedCluster.
func (m *membership) deleted(ctx context.Context, uid types.UID) {
	m.draining = nil
	if m.known.deleted != nil {
		return
	}
	m.known.deleted = &uid
	klog.FromContext(ctx).Info("The hub deletes this cluster; removing what it had applied", "cluster", m.config.ClusterName)
	m.leave(ctx)
}

// drains reports whether the hub deletes what it delivered to a deleted cluster, before it takes
// the cluster's access away, or may say so yet.
func (m *membership) drains(cluster *clusterv1.ManagedCluster) bool {
	draining, said := cluster.Draining()
	return draining && (said || m.draining == nil || time.Since(m.drainingSince) < drainPatience)
}

// drain serves on while the hub deletes its works, which removes what they applied as any other
// deletion of them does.
func (m *membership) drain(ctx context.Context, uid types.UID) {
	if m.draining == nil {
		klog.FromContext(ctx).Info("The hub deletes this cluster; serving until it has deleted what it delivered", "cluster", m.config.ClusterName)
		m.draining, m.drainingSince = &uid, time.Now()
		time.AfterFunc(drainPatience, m.lookAgain)
	}
	m.accepted = true
	m.serve(ctx)
}

// lookAgain has the own ManagedCluster looked at at once.
func (m *membership) lookAgain() { signal(m.again) }

// hear keeps what the hub has told of the own ManagedCluster.
func (m *membership) hear(cluster *clusterv1.ManagedCluster) {
	before := m.latest.Swap(cluster)
	if before == nil {
		return
	}
	if before.Spec.LeaseSeconds() != cluster.Spec.LeaseSeconds() {
		signal(m.retimed)
	}
	if before.UID != cluster.UID || !before.DeletionTimestamp.Equal(cluster.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(before.Status.ManagedNamespaces, cluster.Status.ManagedNamespaces) {
		signal(m.relisted)
	}
}

// signal wakes the reader of a channel that holds one signal.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// denied says why the hub does not accept a cluster.
func (m *membership) denied(cluster *clusterv1.ManagedCluster) string {
	decision := cluster.Status.Acceptance
	if decision == nil || decision.Accepted {
		if m.accepted {
			return fmt.Sprintf("the hub has denied %s; what it had applied stays", cluster.Name)
		}
		return "waiting for the hub to accept " + cluster.Name
	}
	message := "the hub has denied " + cluster.Name
	if decision.Reason != "" {
		message += ": " + decision.Reason
	}
	return message + "; what it had applied stays"
}

// aboutObject is whether an error is about an object, and not, say, about a resource
// that a hub which starts does not serve yet.
func aboutObject(err error, name string) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Details != nil && status.Status().Details.Name == name && status.Status().Details.Kind != ""
}

// become ends what runs and begins a mode.
func (m *membership) become(next mode) {
	m.task.stop()
	m.task, m.mode = nil, next
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
		if unmark && !m.mark(ctx, nil) {
			return nil
		}
		m.note("")
		return m.work(ctx)
	})
}

// work does all that an accepted cluster does on its hub, until ctx ends.
func (m *membership) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { (&heartbeat{membership: m}).run(ctx) })
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

// leave removes what the hub had applied. It needs no hub, and goes on after a restart.
func (m *membership) leave(ctx context.Context) {
	m.become(leaving)
	m.note(fmt.Sprintf("the hub has deleted %s; what it had applied is being removed", m.config.ClusterName))
	uid := m.known.deleted
	m.task = startTask(ctx, func(ctx context.Context) error {
		if !m.mark(ctx, uid) {
			return nil
		}
		logger := klog.FromContext(ctx)
		waits := pauses{first: firstPause, most: mostPause}
		for tries := 1; ; tries++ {
			err := m.workload.Remove(ctx, m.hub)
			if released := managednamespaces.Release(ctx, m.config.Managed, m.hub.Hash); released != nil && ctx.Err() == nil {
				logger.Error(released, "Namespaces keep the label of the hub that required them", "tries", tries)
				// A cluster whose admission refuses to change a label still leaves.
				if tries < releaseTries {
					err = errors.Join(err, released)
				}
			}
			if err == nil {
				logger.Info("Removed what the hub had applied", "cluster", m.config.ClusterName)
				return nil
			}
			if ctx.Err() != nil {
				return nil
			}
			delay := waits.step()
			m.note(fmt.Sprintf("the hub has deleted %s; what it had applied is being removed: %v", m.config.ClusterName, err))
			logger.Error(err, "What the hub had applied is not removed yet", "retryAfter", delay)
			if !pause(ctx, delay, nil) {
				return nil
			}
		}
	})
}

// removed is what a deleted cluster waits for.
func (m *membership) removed() string {
	return fmt.Sprintf("the hub has deleted %s; to register it again, delete the Secret %s/%s", m.config.ClusterName, m.config.Namespace, m.config.SecretName)
}

// mark writes into the Secret that the hub has deleted the ManagedCluster with this UID, or
// that it has not. It returns false when ctx ends.
func (m *membership) mark(ctx context.Context, deleted *types.UID) bool {
	waits := pauses{first: firstPause, most: mostPause}
	for {
		err := m.store.setDeleted(ctx, deleted)
		if err == nil || apierrors.IsNotFound(err) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		delay := waits.step()
		klog.FromContext(ctx).Error(err, "Whether the hub has deleted the cluster cannot be kept", "retryAfter", delay)
		if !pause(ctx, delay, nil) {
			return false
		}
	}
}

// seeSecret makes the Secret again if somebody has deleted it, unless that is how a
// deleted cluster is told to register again.
func (m *membership) seeSecret(ctx context.Context, seen sight[*corev1.Secret]) {
	switch gone := seen.deleted || apierrors.IsNotFound(seen.err); {
	case !gone && seen.err == nil:
		m.secretGone = false
	case gone && m.known.deleted != nil:
		m.secretGone = true
	case gone:
		restoreCtx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		if err := m.store.restore(restoreCtx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The Secret with the identity of the cluster was deleted, and cannot be made again yet")
		}
	}
}

// suspect has the hub asked whether it still knows the cluster, after an error that says
// that it may not.
func (m *membership) suspect(err error) {
	if !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
		return
	}
	m.lookAgain()
}
