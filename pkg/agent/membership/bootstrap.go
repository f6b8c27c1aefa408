package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// bootstrapTimeout bounds one attempt to register; the actual timeout is a random time of up to
	// twice this value. The next attempt continues with the same request, possibly with another
	// bootstrap kubeconfig.
	bootstrapTimeout = 10 * time.Minute
	// deniedPause and maxDeniedPause bound the delay of a new request after a denial.
	deniedPause    = 30 * time.Second
	maxDeniedPause = 15 * time.Minute
	// formerPeriod is like bootstrapTimeout, for an agent that tries its previous credentials after each attempt. It is
	// also the interval of trials between two attempts. A hub that does not respond fails an attempt earlier, by
	// requestTimeout.
	formerPeriod = time.Minute
	// bootstrapPeriod is the interval at which an agent that registers reads the bootstrap kubeconfig.
	bootstrapPeriod = 2 * time.Second
)

// missingError is the error of a cluster that had joined and no longer exists on the hub.
type missingError struct{ cluster, namespace, secret string }

func (e *missingError) Error() string {
	return fmt.Sprintf("the cluster had joined, but the hub has no ManagedCluster %s; applied objects stay. "+
		"To register it again, delete the Secret %s/%s, or create and accept a ManagedCluster %s on the hub", e.cluster, e.namespace, e.secret, e.cluster)
}

// errSecretDeleted is the error of a missing cluster whose Secret was deleted or replaced.
var errSecretDeleted = errors.New("the Secret with the identity of the cluster was deleted")

func knownEndpoint(known *identity) (*endpoint, error) {
	config, err := clientcmd.Load(known.data[keyKubeconfig])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyKubeconfig, err)
	}
	return endpointOf(config)
}

// former returns the previous identity if the hub accepts its credentials, or nil.
func (r *Registrar) former(ctx context.Context) *identity {
	known := r.store.last()
	if known == nil || r.driver.usable(known) != nil {
		return nil
	}
	conn, err := r.connect()
	if err != nil {
		return nil
	}
	defer conn.close()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = conn.hub.ocm.ClusterV1().ManagedClusters().Get(ctx, r.config.ClusterName, metav1.GetOptions{})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil
	}
	return known
}

// awaitFormer waits for the given time. Meanwhile, it calls try at once and after each formerPeriod, and returns the
// first identity. It returns an error only if ctx ends.
func awaitFormer(ctx context.Context, delay time.Duration, try func(context.Context) *identity) (*identity, error) {
	for ; delay > 0; delay -= formerPeriod {
		if former := try(ctx); former != nil {
			return former, nil
		}
		if !reconcile.Pause(ctx, min(delay, formerPeriod), nil) {
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

// register obtains credentials with the bootstrap identity, without a time limit. A new bootstrap
// kubeconfig takes effect at once. If the hub has rejected the previous credentials, register tries
// them between its attempts, because the rejection may have been a temporary failure. why completes
// the message that the cluster is not registered.
func (r *Registrar) register(ctx context.Context, again bool, why string) (*identity, error) {
	var missing bool
	denied := backoff(deniedPause, maxDeniedPause)
	for {
		current, cancel := r.whileCurrent(ctx)
		known, err := r.registerWith(current, again, why, &missing, &denied)
		replaced := current.Err() != nil && ctx.Err() == nil
		cancel()
		if known != nil || !replaced {
			return known, err
		}
	}
}

// whileCurrent returns a context that ends when the bootstrap kubeconfig changes.
func (r *Registrar) whileCurrent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	read := func() []byte {
		_, _ = r.readBootstrap(ctx) // content is then the previous one, or that of the file
		content, _ := r.bootstrap.content()
		return content
	}
	before := read()
	go func() {
		defer cancel()
		for reconcile.Pause(ctx, bootstrapPeriod, nil) && bytes.Equal(before, read()) {
			continue
		}
	}()
	return ctx, cancel
}

// readBootstrap reads the Secret of the bootstrap kubeconfig. It returns nil if there is none.
func (r *Registrar) readBootstrap(ctx context.Context) (*corev1.Secret, error) {
	if r.config.BootstrapSecret == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := r.store.secrets.Get(ctx, r.config.BootstrapSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.bootstrap.secret.Store(nil)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content := secret.Data[filepath.Base(r.config.BootstrapKubeconfig)]
	r.bootstrap.secret.Store(&content)
	return secret, nil
}

// registerWith registers with one bootstrap kubeconfig. It sets missing if the cluster no longer exists on the hub. denied is
// the delay after a denied request.
func (r *Registrar) registerWith(ctx context.Context, again bool, why string, missing *bool, denied *wait.Backoff) (*identity, error) {
	limit, most, try := bootstrapTimeout, mostPause, func(context.Context) *identity { return nil }
	if again {
		limit, most, try = formerPeriod, formerPeriod, r.former
	}
	logger := klog.FromContext(ctx)
	waits := backoff(firstPause, most)
	var logged reconcile.Complaint
	for {
		began := time.Now()
		known, err := r.bootstrapOnce(ctx, limit, *missing)
		undecided := err != nil && time.Since(began) >= limit // the hub responds, but has not decided yet
		if ctx.Err() == nil && !undecided {
			r.responded(err)
		}
		if err == nil {
			return known, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if final(err) {
			return nil, err
		}
		// The message that asks the user to delete the Secret remains valid after other errors.
		*missing = *missing || errors.As(err, new(*missingError))
		delay := waits.Step()
		if undecided {
			waits = backoff(firstPause, most)
			delay = firstPause
			logger.V(2).Info("The cluster is not registered yet", "err", err)
		} else {
			if errors.As(err, new(*deniedError)) {
				delay = denied.Step()
			}
			if asked, ok := apierrors.SuggestsClientDelay(err); ok {
				delay = max(delay, time.Duration(asked)*time.Second)
			}
			if apierrors.IsUnauthorized(err) {
				err = fmt.Errorf("the hub rejects the bootstrap kubeconfig: %w; %s", err, joinAgain)
			}
			r.note(fmt.Sprintf("%s is not registered%s: %v", r.config.ClusterName, why, err))
			if logged.Differs(err) {
				logger.Error(err, "The cluster is not registered yet", "cluster", r.config.ClusterName, "retryAfter", delay)
			}
		}
		former, err := awaitFormer(ctx, delay, try)
		if err != nil {
			return nil, err
		}
		if former != nil {
			logger.Info("The hub accepts the previous credentials again")
			return former, mirror(r.config.Dir, former)
		}
	}
}

// bootstrapOnce makes one attempt of at most twice the limit. missing reports whether an earlier attempt
// found that the cluster no longer exists on the hub.
func (r *Registrar) bootstrapOnce(ctx context.Context, limit time.Duration, missing bool) (*identity, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+rand.N(limit))
	defer cancel()
	endpoint, err := r.bootstrap.endpoint()
	if err != nil {
		return nil, err
	}
	config, err := r.bootstrap.config()
	if err != nil {
		return nil, err
	}
	r.tune(config)
	hub, err := clientsFor(config)
	if err != nil {
		return nil, err
	}
	known, err := r.named(ctx, missing)
	if err != nil {
		return nil, err
	}
	cluster, err := r.ensureCluster(ctx, hub, known)
	if err != nil {
		return nil, err
	}
	change, err := r.driver.obtain(ctx, hub, cluster, known, r.note)
	if err != nil {
		return nil, err
	}
	if known, err = r.save(ctx, endpoint, change); err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Registered", "cluster", r.config.ClusterName, "agent", known.get(keyAgentName), "hub", endpoint.server)
	r.note("waiting for a response of the hub")
	return known, nil
}

// named returns the identity with the name of the agent. If the cluster no longer exists on the
// hub, the user deletes the Secret to register the cluster again.
func (r *Registrar) named(ctx context.Context, missing bool) (*identity, error) {
	if missing {
		known, err := r.store.read(ctx)
		if err != nil {
			return nil, err
		}
		if r.store.last() == nil {
			return nil, errSecretDeleted
		}
		if known.get(keyAgentName) != "" {
			return known, nil
		}
	}
	// The name is stored before it is sent to the hub, so that a restart does not change it.
	return r.store.write(ctx, func(i *identity) {
		if i.get(keyAgentName) == "" {
			i.set(keyAgentName, agentOf(i, r.config.ClusterName))
		}
		if i.get(keyAgentName) == "" {
			i.set(keyAgentName, string(uuid.NewUUID()))
		}
	})
}

func (r *Registrar) tune(config *rest.Config) {
	if r.config.Tune != nil {
		r.config.Tune(config)
	}
}

// ensureCluster returns the ManagedCluster. It creates the ManagedCluster if the cluster has not
// joined before. If a joined cluster has no ManagedCluster, the hub has deleted or lost it, and a
// user has to decide.
func (r *Registrar) ensureCluster(ctx context.Context, hub *hubClients, known *identity) (*clusterv1.ManagedCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	clusters := hub.ocm.ClusterV1().ManagedClusters()
	cluster, err := clusters.Get(ctx, r.config.ClusterName, metav1.GetOptions{})
	joined := known.get(keyKubeconfig) != ""
	if joined && reconcile.Gone(err, r.config.ClusterName) {
		return nil, &missingError{cluster: r.config.ClusterName, namespace: r.config.Namespace, secret: r.config.SecretName}
	}
	if !joined && apierrors.IsNotFound(err) {
		wanted := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: r.config.ClusterName, Annotations: r.driver.annotations()}}
		if r.config.Endpoint != "" {
			own := clusterv1.ClientConfig{URL: r.config.Endpoint}
			if r.config.CA != nil {
				if own.CABundle, err = r.config.CA(); err != nil {
					return nil, fmt.Errorf("CA of the managed cluster: %w", err)
				}
			}
			wanted.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{own}
		}
		cluster, err = clusters.Create(ctx, wanted, metav1.CreateOptions{})
		if err == nil {
			klog.FromContext(ctx).Info("Created the ManagedCluster", "cluster", r.config.ClusterName)
		}
		if apierrors.IsAlreadyExists(err) {
			cluster, err = clusters.Get(ctx, r.config.ClusterName, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ManagedCluster %s: %w", r.config.ClusterName, err)
	}
	if cluster.DeletionTimestamp != nil {
		return nil, fmt.Errorf("ManagedCluster %s is being deleted on the hub", r.config.ClusterName)
	}
	return cluster, nil
}

// dropBootstrap deletes the Secret of the bootstrap kubeconfig until ctx ends, since the cluster has its own identity. It
// deletes it again if the cluster is joined again.
func (m *membership) dropBootstrap(ctx context.Context) {
	period := func() time.Duration { return wait.Jitter(movePeriod, 0.5) }
	repeat(ctx, "Failed to delete the Secret with the bootstrap kubeconfig", period, mostPause, nil, m.deleteBootstrap)
}

// deleteBootstrap deletes the Secret of the bootstrap kubeconfig. It keeps a Secret that is not the one in the file, to which
// the agent would return, and one with another address of the hub, to which it has yet to move.
func (r *Registrar) deleteBootstrap(ctx context.Context) error {
	if r.config.BootstrapSecret == "" {
		return nil
	}
	mounted, err := os.ReadFile(r.config.BootstrapKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	secret, err := r.readBootstrap(ctx)
	if secret == nil || err != nil {
		return err
	}
	known := r.store.last()
	if known == nil || !bytes.Equal(mounted, secret.Data[filepath.Base(r.config.BootstrapKubeconfig)]) {
		return nil
	}
	config, err := r.bootstrap.loadFile()
	if err != nil {
		return err
	}
	offered, err := endpointOf(config)
	if err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	if current, err := knownEndpoint(known); err != nil || *offered != *current {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = r.store.secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err == nil {
		r.bootstrap.secret.Store(nil)
		klog.FromContext(ctx).Info("Deleted the Secret with the bootstrap kubeconfig: the cluster has its own identity", "secret", secret.Name)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
