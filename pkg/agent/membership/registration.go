package membership

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/agent/fence"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

const (
	// rejoinPause and maxRejoinPause bound the delay after the hub has rejected new credentials.
	rejoinPause    = 2 * time.Second
	maxRejoinPause = 10 * time.Minute
	// settledAfter is the age of credentials above which a rejection is handled without delay.
	settledAfter = 10 * time.Minute
)

// Registrar registers a cluster with its hub and keeps it registered.
type Registrar struct {
	config    Config
	bootstrap bootstrap
	store     *store
	driver    driver
	// lost is true while the hub does not respond. lostNow is signalled when it becomes true.
	lost    atomic.Bool
	lostNow chan struct{}
	// raisedAt is the time at which this process raised the epoch of the hub. Only Run and what it calls write it.
	raisedAt time.Time
	// waiting is the message of Waiting.
	waiting atomic.Pointer[string]
}

// New returns a registrar. It makes no request.
func New(config Config) (*Registrar, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	var err error
	if config.Dir, err = filepath.Abs(config.Dir); err != nil {
		return nil, fmt.Errorf("registration: --hub-kubeconfig-dir: %w", err)
	}
	if config.Identity == nil {
		config.Identity = config.Managed
	}
	if config.Fence == nil {
		config.Fence = fence.New(nil)
	}
	r := &Registrar{
		config: config, lostNow: make(chan struct{}, 1),
		store: &store{secrets: config.Identity.CoreV1().Secrets(config.Namespace), name: config.SecretName, clusterName: config.ClusterName},
	}
	r.bootstrap.file, r.bootstrap.known = config.BootstrapKubeconfig, r.store.last
	if r.driver, err = newDriver(&r.config, r.store); err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	r.note("starting")
	return r, nil
}

// Waiting returns the reason why the agent waits, or an empty string while it works.
func (r *Registrar) Waiting() string {
	return ptr.Deref(r.waiting.Load(), "")
}

func (r *Registrar) note(message string) {
	r.waiting.Store(&message)
	value := 0.0
	if message == "" {
		value = 1
	}
	joined.Set(value)
}

// verdict is the reason why a membership has ended.
type verdict int

const (
	// stopped means that ctx has ended.
	stopped verdict = iota
	// rejected means that the hub does not accept the credentials.
	rejected
	// moved means that the bootstrap kubeconfig contains another address of the hub.
	moved
	// afresh means that the Secret of a deleted cluster was deleted, so the cluster registers
	// again.
	afresh
	// superseded means that another process of the agent has moved the cluster to another hub.
	superseded
)

// Run registers the cluster and runs the workload while the hub accepts the cluster, until ctx
// ends. It returns only errors that waiting cannot resolve.
func (r *Registrar) Run(ctx context.Context, workload Workload) error {
	logger := klog.FromContext(ctx)
	rejoins := backoff(rejoinPause, maxRejoinPause)
	last, delay := afresh, time.Duration(0)
	for ctx.Err() == nil {
		if last == afresh || last == superseded {
			r.store.held.Store(nil)
		}
		began := time.Now()
		var err error
		last, err = r.guarded(ctx, func(ctx context.Context) (verdict, error) {
			if !reconcile.Pause(ctx, delay, nil) {
				return stopped, nil
			}
			known, err := r.join(ctx, last == rejected)
			if errors.Is(err, errSecretDeleted) {
				logger.Info("The Secret of a cluster that does not exist on the hub was deleted; registering the cluster again", "cluster", r.config.ClusterName)
				return afresh, nil
			}
			if errors.Is(err, errRaised) {
				return superseded, nil
			}
			if err != nil {
				return stopped, ignoreEnd(ctx, err)
			}
			began = time.Now()
			m, err := r.newMembership(known, workload)
			if err != nil {
				return stopped, err
			}
			return m.run(ctx)
		})
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		if last == superseded {
			logger.Info("Another process of the agent has moved the cluster to another hub", "cluster", r.config.ClusterName)
		}
		if delay = 0; last != rejected {
			continue
		}
		logger.Info("The hub rejects the credentials of this cluster; registering again", "cluster", r.config.ClusterName)
		if time.Since(began) > settledAfter {
			rejoins = backoff(rejoinPause, maxRejoinPause)
		}
		delay = rejoins.Step()
	}
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// join returns an identity with credentials. It returns the identity in the Secret, unless the
// Secret has no credentials or the hub has rejected them, and the cluster registers again.
func (r *Registrar) join(ctx context.Context, again bool) (*identity, error) {
	known := r.store.last()
	if known == nil {
		err := r.insist(ctx, "cannot read the identity of "+r.config.ClusterName, func(ctx context.Context) (err error) {
			known, err = r.store.read(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if again {
		return r.register(ctx, true, ", because the hub rejects its credentials")
	}
	why := ""
	// Removing the applied objects of a deleted cluster does not require credentials.
	reason := r.driver.usable(known)
	if reason == nil || known.deleted != nil && known.get(keyKubeconfig) != "" {
		settled, err := r.settle(ctx, known)
		if err != nil || settled != nil {
			return settled, err
		}
	} else if known.get(keyKubeconfig) != "" {
		klog.FromContext(ctx).Info("The credentials in the Secret are not usable; registering again", "cluster", r.config.ClusterName, "reason", reason.Error())
		why = ", because " + reason.Error()
	}
	return r.register(ctx, false, why)
}

// settle updates the Secret and the files with the address of the hub. It returns neither an
// identity nor an error if the address is unknown.
func (r *Registrar) settle(ctx context.Context, known *identity) (*identity, error) {
	logger := klog.FromContext(ctx)
	_, _ = r.readBootstrap(ctx) // the file may be out of date
	hub, err := r.bootstrap.endpoint()
	if err != nil {
		if !errors.Is(err, errNoBootstrap) && !errors.Is(err, fs.ErrNotExist) {
			logger.Info("Failed to read the bootstrap kubeconfig; using the previous address of the hub", "err", err)
		}
		if hub, err = knownEndpoint(known); err != nil {
			logger.Info("The kubeconfig in the Secret is not usable; registering again", "err", err)
			return nil, nil
		}
	}
	var settled *identity
	err = r.insist(ctx, "cannot store the identity of "+r.config.ClusterName, func(ctx context.Context) (err error) {
		settled, err = r.save(ctx, hub, func(*identity) {})
		return err
	})
	return settled, err
}

func (r *Registrar) save(ctx context.Context, hub *endpoint, change func(*identity)) (*identity, error) {
	var failed error
	known, err := r.store.write(ctx, func(i *identity) {
		change(i)
		if i.get(keyHubHash) == "" {
			i.set(keyHubHash, firstHash(i, hub))
		}
		if i.get(keyRehomingKey) == "" {
			key, err := rehoming.NewKey()
			if err != nil {
				failed = err
				return
			}
			i.data[keyRehomingKey] = key
		}
		if i.get(keyAgentName) == "" {
			i.set(keyAgentName, agentOf(i, r.config.ClusterName))
		}
		kubeconfig, err := hub.kubeconfig(r.driver.user())
		if err != nil {
			failed = err
			return
		}
		i.data[keyKubeconfig] = kubeconfig
	})
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	if err := mirror(r.config.Dir, known); err != nil {
		return nil, err
	}
	return known, nil
}

// firstHash returns the hash for a new hub. If this agent replaces another agent, it is the hash of
// the hub's previous address.
func firstHash(known *identity, hub *endpoint) string {
	if before, err := knownEndpoint(known); err == nil {
		return before.hash()
	}
	return hub.hash()
}

// agentOf returns the name of the agent in the certificate, or an empty string if there is none.
func agentOf(known *identity, cluster string) string {
	certificates, err := cert.ParseCertsPEM(known.data[keyCertificate])
	if err != nil {
		return ""
	}
	if name, found := strings.CutPrefix(certificates[0].Subject.CommonName, clusterv1.AgentGroups(cluster)[0]+":"); found {
		return name
	}
	return ""
}
