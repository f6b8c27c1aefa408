package registration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	// rejoinPause to maxRejoinPause is between two times that the hub rejects the
	// credentials which it has just given.
	rejoinPause    = 2 * time.Second
	maxRejoinPause = 10 * time.Minute
	// settledAfter is how long credentials must have held for the next rejection to be
	// handled at once.
	settledAfter = 10 * time.Minute
)

// Registrar makes a cluster a member of its hub and keeps it one.
type Registrar struct {
	config    Config
	bootstrap bootstrapFile
	store     *store
	driver    driver
	// waiting is what keeps the agent from its work; nil while nothing does.
	waiting atomic.Pointer[string]
}

// New returns a registrar. It makes no request.
func New(config Config) (*Registrar, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	var err error
	if config.Dir, err = filepath.Abs(config.Dir); err != nil {
		return nil, fmt.Errorf("registration: --hub-kubeconfig-dir: %w", err)
	}
	r := &Registrar{
		config: config, bootstrap: bootstrapFile(config.BootstrapKubeconfig),
		store: &store{secrets: config.Managed.CoreV1().Secrets(config.Namespace), name: config.SecretName, clusterName: config.ClusterName},
	}
	if r.driver, err = newDriver(&r.config, r.store); err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	r.note("starting")
	return r, nil
}

// Waiting says what keeps the agent from its work; empty if nothing does.
func (r *Registrar) Waiting() string {
	if message := r.waiting.Load(); message != nil {
		return *message
	}
	return ""
}

func (r *Registrar) note(message string) {
	if message == "" {
		r.waiting.Store(nil)
		joined.Set(1)
		return
	}
	r.waiting.Store(&message)
	joined.Set(0)
}

// verdict is why a membership has ended.
type verdict int

const (
	// stopped is that ctx has ended.
	stopped verdict = iota
	// rejected is that the hub does not know the credentials.
	rejected
	// moved is that the bootstrap kubeconfig tells of another address of the hub.
	moved
	// afresh is that the Secret of a deleted cluster was deleted, so that it registers anew.
	afresh
)

// Run registers the cluster and has the workload run while the hub accepts it, until ctx
// ends. An error is one that no waiting helps against.
func (r *Registrar) Run(ctx context.Context, workload Workload) error {
	logger := klog.FromContext(ctx)
	rejoins := pauses{first: rejoinPause, most: maxRejoinPause}
	came := afresh
	for ctx.Err() == nil {
		if came == afresh {
			r.store.hold(nil)
		}
		known, err := r.join(ctx, came)
		if errors.Is(err, errSecretDeleted) {
			logger.Info("The Secret of a cluster that the hub does not have was deleted; registering anew", "cluster", r.config.ClusterName)
			came = afresh
			continue
		}
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		began := time.Now()
		m, err := r.newMembership(known, workload)
		if err != nil {
			return err
		}
		if came, err = m.run(ctx); err != nil {
			return ignoreEnd(ctx, err)
		}
		if came != rejected {
			continue
		}
		logger.Info("The hub does not know the credentials of this cluster any more; registering again", "cluster", r.config.ClusterName)
		if time.Since(began) > settledAfter {
			rejoins.reset()
		}
		if !pause(ctx, rejoins.step(), nil) {
			return nil
		}
	}
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// join returns an identity with credentials. It is that of the Secret, unless that has
// none or the hub has rejected them.
func (r *Registrar) join(ctx context.Context, came verdict) (*identity, error) {
	logger := klog.FromContext(ctx)
	known := r.store.last()
	waits := pauses{first: firstPause, most: mostPause}
	for known == nil {
		var err error
		if known, err = r.store.read(ctx); err == nil {
			break
		}
		if foreign := (*foreignError)(nil); errors.As(err, &foreign) {
			return nil, err
		}
		r.note(fmt.Sprintf("the identity of %s is not known: %v", r.config.ClusterName, err))
		delay := waits.step()
		logger.Error(err, "The identity of the cluster cannot be read", "retryAfter", delay)
		if !pause(ctx, delay, nil) {
			return nil, ctx.Err()
		}
	}
	if came != rejected {
		// A deleted cluster removes what it has, whatever its credentials are worth.
		reason := r.driver.usable(known)
		if reason == nil || known.deleted != nil && known.get(keyKubeconfig) != "" {
			settled, err := r.settle(ctx, known)
			if err != nil || settled != nil {
				return settled, err
			}
		} else if known.get(keyKubeconfig) != "" {
			logger.Info("The credentials in the Secret cannot be used; registering again", "cluster", r.config.ClusterName, "reason", reason.Error())
		}
	}
	return r.register(ctx, came == rejected)
}

// settle brings Secret and files up to date with the address of the hub. It returns
// neither an identity nor an error if nothing says where the hub is.
func (r *Registrar) settle(ctx context.Context, known *identity) (*identity, error) {
	logger := klog.FromContext(ctx)
	hub, err := r.bootstrap.endpoint()
	if err != nil {
		if r.bootstrap != "" {
			logger.Info("The bootstrap kubeconfig cannot be read; the hub is where it was", "err", err)
		}
		if hub, err = knownEndpoint(known); err != nil {
			logger.Info("The kubeconfig in the Secret cannot be used; registering again", "err", err)
			return nil, nil
		}
	}
	waits := pauses{first: firstPause, most: mostPause}
	for {
		settled, err := r.save(ctx, hub, func(*identity) {})
		if err == nil {
			return settled, nil
		}
		if foreign := (*foreignError)(nil); errors.As(err, &foreign) {
			return nil, err
		}
		r.note(fmt.Sprintf("the identity of %s cannot be kept: %v", r.config.ClusterName, err))
		delay := waits.step()
		logger.Error(err, "The identity of the cluster cannot be kept", "retryAfter", delay)
		if !pause(ctx, delay, nil) {
			return nil, ctx.Err()
		}
	}
}

// save writes the Secret with a kubeconfig for the hub, and its files.
func (r *Registrar) save(ctx context.Context, hub *endpoint, change func(*identity)) (*identity, error) {
	var failed error
	known, err := r.store.write(ctx, func(i *identity) {
		change(i)
		if i.get(keyHubHash) == "" {
			i.set(keyHubHash, firstHash(i, hub))
		}
		if i.get(keyAgentName) == "" {
			i.set(keyAgentName, agentOf(i, r.config.ClusterName))
		}
		user, err := r.driver.user(i)
		if err != nil {
			failed = err
			return
		}
		kubeconfig, err := hub.kubeconfig(user)
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

// firstHash is what the hub is called from now on: by the address that it had, if this
// agent replaces another one.
func firstHash(known *identity, hub *endpoint) string {
	if before, err := knownEndpoint(known); err == nil {
		return before.hash()
	}
	return hub.hash()
}

// agentOf is the name of the agent that a certificate is for; empty if it is for none.
func agentOf(known *identity, cluster string) string {
	certificates, err := cert.ParseCertsPEM(known.data[keyCertificate])
	if err != nil {
		return ""
	}
	prefix := clusterv1.AgentGroups(cluster)[0] + ":"
	if name := certificates[0].Subject.CommonName; len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return name[len(prefix):]
	}
	return ""
}
