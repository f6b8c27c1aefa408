package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

const (
	// StandbySecret is the name of the Secret with a bootstrap kubeconfig of the hub that replaces the current one when that
	// is lost, in the namespace of the identity.
	StandbySecret = "standby-hub-kubeconfig"

	// standbyPeriod is the interval at which an agent asks the standby hub whether it has adopted the cluster, with a jitter
	// of up to 50 %. lostPeriod and maxLostPeriod bound it while the current hub does not respond.
	standbyPeriod = 30 * time.Second
	lostPeriod    = 2 * time.Second
	maxLostPeriod = 10 * time.Second
)

// Keys of the Secret of a cluster that has moved to a standby hub.
const (
	// keyStandbyKubeconfig is the bootstrap kubeconfig of the current hub. It replaces --bootstrap-kubeconfig as long as
	// that contains the address in keyStandbyFor.
	keyStandbyKubeconfig = "standby-kubeconfig"
	keyStandbyFor        = "standby-for"
	// keyRehomingKey is the private key by which a cluster proves its identity to a hub that adopts it.
	keyRehomingKey = "rehoming.key"
)

type standbyHub struct {
	kubeconfig []byte
	server     string
	epoch      rehoming.Epoch
}

// guarded runs run, until the standby hub has adopted the cluster. Then the agent moves to that hub.
func (r *Registrar) guarded(ctx context.Context, run func(context.Context) (verdict, error)) (verdict, error) {
	if r.config.Driver != registerv1alpha1.DriverCSR {
		// The identities of the driver aws-irsa belong to one hub.
		return run(ctx)
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	adopted := make(chan *standbyHub, 1)
	go func() {
		found := r.followStandby(within)
		if found != nil {
			cancel()
		}
		adopted <- found
	}()
	end, err := run(within)
	cancel()
	hub := <-adopted
	if hub == nil || ctx.Err() != nil {
		return end, err
	}
	return r.moveTo(ctx, hub)
}

// followStandby waits until the standby hub has adopted the cluster. It returns nil if ctx ends.
func (r *Registrar) followStandby(ctx context.Context) *standbyHub {
	waits := backoff(lostPeriod, maxLostPeriod)
	var logged reconcile.Complaint
	period := waits.Step()
	for {
		if !reconcile.Pause(ctx, period, r.lostNow) {
			return nil
		}
		if r.lost.Load() {
			period = waits.Step()
		} else {
			period = wait.Jitter(standbyPeriod, 0.5)
			waits = backoff(lostPeriod, maxLostPeriod)
		}
		found, err := r.askStandby(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case found != nil:
			return found
		case logged.Differs(err):
			klog.FromContext(ctx).Info("Failed to ask the standby hub whether it has adopted the cluster", "err", err)
		}
	}
}

// askStandby returns the standby hub if it has adopted the cluster, and nil if there is none or it has not.
func (r *Registrar) askStandby(ctx context.Context) (*standbyHub, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := r.store.secrets.Get(ctx, StandbySecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", StandbySecret, err)
	}
	found := &standbyHub{kubeconfig: secret.Data[keyKubeconfig]}
	config, err := loadStandby(found.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", StandbySecret, err)
	}
	known := r.store.last()
	if known == nil || known.deleted != nil || known.get(keyKubeconfig) == "" {
		return nil, nil
	}
	recorded, err := epochOf(known)
	if err != nil {
		return nil, err
	}
	if own, err := r.ownHub(ctx, known, config, found.kubeconfig); own || err != nil {
		return nil, err
	}
	client, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", StandbySecret, err)
	}
	r.tune(client)
	found.server = client.Host
	hub, err := clientsFor(client)
	if err != nil {
		return nil, err
	}
	cluster, err := hub.ocm.ClusterV1().ManagedClusters().Get(ctx, r.config.ClusterName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("hub %s: %w", found.server, err)
	}
	if found.epoch, err = rehoming.ParseEpoch(cluster.Annotations[rehoming.EpochAnnotation]); err != nil {
		return nil, fmt.Errorf("hub %s: %w", found.server, err)
	}
	if !found.epoch.Follows(recorded) || !accepted(cluster) || !protectsEpoch(cluster) {
		return nil, nil
	}
	return found, nil
}

// ownHub reports whether a kubeconfig is for the current hub, to which the cluster has moved before. The identity then gets
// its token, which may be newer.
func (r *Registrar) ownHub(ctx context.Context, known *identity, config *clientcmdapi.Config, kubeconfig []byte) (bool, error) {
	standby, err := endpointOf(config)
	if err != nil {
		return false, err
	}
	current, err := knownEndpoint(known)
	if err != nil || *current != *standby {
		return false, nil
	}
	if before := known.data[keyStandbyKubeconfig]; len(before) > 0 && !bytes.Equal(before, kubeconfig) {
		_, err = r.store.write(ctx, func(i *identity) { i.data[keyStandbyKubeconfig] = kubeconfig })
	}
	return true, err
}

// loadStandby parses a kubeconfig that does not come from the administrator of this process: it must not name files or
// programs.
func loadStandby(kubeconfig []byte) (*clientcmdapi.Config, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyKubeconfig, err)
	}
	for name, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return nil, fmt.Errorf("%s: cluster %q names a file", keyKubeconfig, name)
		}
	}
	for name, user := range config.AuthInfos {
		if user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "" || user.Exec != nil || user.AuthProvider != nil {
			return nil, fmt.Errorf("%s: user %q names a file or a program", keyKubeconfig, name)
		}
	}
	if _, err := endpointOf(config); err != nil {
		return nil, fmt.Errorf("%s: %w", keyKubeconfig, err)
	}
	return config, nil
}

// moveTo records that the cluster belongs to another hub, before anything is done for that hub. It repeats failed writes
// until ctx ends. If another process has moved the cluster, it does nothing and returns superseded.
func (r *Registrar) moveTo(ctx context.Context, hub *standbyHub) (verdict, error) {
	problem := fmt.Sprintf("cannot record that %s belongs to hub %s", r.config.ClusterName, hub.server)
	err := r.insist(ctx, problem, func(ctx context.Context) error {
		known := r.store.last()
		if known == nil {
			return errRaised
		}
		from, err := epochOf(known)
		if err != nil {
			return err
		}
		_, err = r.raise(ctx, from, hub.epoch, func(i *identity) {
			i.data[keyStandbyKubeconfig] = hub.kubeconfig
			i.set(keyStandbyFor, r.bootstrap.fileServer())
			// They are not valid on the other hub.
			for _, key := range []string{keyCertificate, keyPrivateKey, keyPendingKey} {
				delete(i.data, key)
			}
		})
		return err
	})
	switch {
	case err == nil:
		r.raisedAt = time.Now()
		r.lost.Store(false)
		klog.FromContext(ctx).Info("Moving to the hub that has adopted the cluster", "cluster", r.config.ClusterName, "hub", hub.server, "epoch", hub.epoch)
		return moved, nil
	case errors.Is(err, errRaised):
		return superseded, nil
	}
	return stopped, ignoreEnd(ctx, err)
}

// responded records whether the hub responds, by the error of a request to it.
func (r *Registrar) responded(err error) {
	var status apierrors.APIStatus
	lost := err != nil && (!errors.As(err, &status) || status.Status().Code >= 500)
	if before := r.lost.Swap(lost); lost && !before {
		reconcile.Signal(r.lostNow)
	}
}
