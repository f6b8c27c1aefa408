package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/fence"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// keyHubEpoch is the key of the Secret with the epoch of the hub that may write to the cluster. It only increases.
const keyHubEpoch = "hub-epoch"

// errRaised is the error of a process whose hub another hub has replaced in the meantime.
var errRaised = errors.New("another process of the agent has moved the cluster to another hub")

// ReadEpoch returns a function that reads the epoch of the hub that may write to the cluster from the Secret with the
// identity of the cluster. Without a Secret, it is the zero epoch.
func ReadEpoch(secrets corev1client.SecretsGetter, namespace, name string) func(context.Context) (rehoming.Epoch, error) {
	return func(ctx context.Context) (rehoming.Epoch, error) {
		secret, err := secrets.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return rehoming.Epoch{}, nil
		}
		if err != nil {
			return rehoming.Epoch{}, err
		}
		return rehoming.ParseEpoch(string(secret.Data[keyHubEpoch]))
	}
}

// epochOf returns the epoch that an identity records, and an error if it cannot be parsed.
func epochOf(known *identity) (rehoming.Epoch, error) {
	epoch, err := rehoming.ParseEpoch(known.get(keyHubEpoch))
	if err != nil {
		return epoch, fmt.Errorf("%s in the Secret with the identity of the cluster: %w", keyHubEpoch, err)
	}
	return epoch, nil
}

// raised reports whether a stored identity records a higher epoch than the known one.
func raised(stored, known *identity) bool {
	now, err := epochOf(stored)
	if err != nil || known == nil {
		return false
	}
	before, err := epochOf(known)
	return err == nil && now.Follows(before)
}

// raise records a higher epoch, together with another change of the identity. It returns errRaised if the recorded epoch has
// changed or is not lower.
func (r *Registrar) raise(ctx context.Context, from, to rehoming.Epoch, change func(*identity)) (*identity, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var failed error
	known, err := r.store.write(ctx, func(i *identity) {
		var stored rehoming.Epoch
		if stored, failed = epochOf(i); failed != nil {
			return
		}
		// The hub may have answered before this process recorded a higher epoch.
		if stored != from || !to.Follows(stored) {
			failed = errRaised
			return
		}
		i.set(keyHubEpoch, to.String())
		change(i)
	})
	return known, errors.Join(failed, err)
}

// protectsEpoch reports whether the hub keeps others from writing the epoch of a ManagedCluster. A server does, and it
// alone stores status.acceptance. On a hub with CustomResourceDefinitions, everyone with permission to update the
// ManagedCluster could move the agent to an epoch that no hub has.
func protectsEpoch(cluster *clusterv1.ManagedCluster) bool { return cluster.Status.Acceptance != nil }

// obeys reports whether the agent may obey the hub that this ManagedCluster is on. If the hub has replaced the recorded
// one, obeys ends what the agent does for the former hub, and records the epoch first. If it may not, the note says why.
func (m *membership) obeys(ctx context.Context, cluster *clusterv1.ManagedCluster) (verdict, bool) {
	recorded, err := epochOf(m.known)
	var offered rehoming.Epoch
	if err == nil {
		if offered, err = rehoming.ParseEpoch(cluster.Annotations[rehoming.EpochAnnotation]); err != nil {
			err = fmt.Errorf("annotation %s of ManagedCluster %s: %w", rehoming.EpochAnnotation, cluster.Name, err)
		}
	}
	switch {
	case err != nil:
		m.idle()
		m.note(err.Error() + "; applied objects stay")
		return stopped, false
	case offered == recorded:
		return stopped, true
	case !offered.Follows(recorded):
		m.idle()
		m.note(fmt.Sprintf("the cluster belongs to the hub with epoch %q, and this hub has epoch %q: another hub has replaced it. Applied objects stay", recorded, offered))
		return stopped, false
	}
	m.idle()
	if !protectsEpoch(cluster) {
		m.note(fmt.Sprintf("annotation %s of ManagedCluster %s is %q, and the cluster belongs to the hub with epoch %q. The agent ignores a higher epoch until the hub has accepted the cluster, and always if CustomResourceDefinitions serve ManagedClusters. Applied objects stay",
			rehoming.EpochAnnotation, cluster.Name, offered, recorded))
		return stopped, false
	}
	known, err := m.raise(ctx, recorded, offered, func(*identity) {})
	if errors.Is(err, errRaised) {
		return superseded, false
	}
	if err != nil {
		m.note(fmt.Sprintf("cannot record the epoch of the hub: %v", err))
		time.AfterFunc(firstPause, m.lookAgain)
		return stopped, false
	}
	klog.FromContext(ctx).Info("This hub replaces the former one", "cluster", m.config.ClusterName, "epoch", offered, "formerEpoch", recorded)
	m.known, m.raisedAt = known, time.Now()
	return stopped, true
}

// awaitOthers waits until all other processes of the agent have noticed that this one has raised the epoch.
func (r *Registrar) awaitOthers(ctx context.Context) {
	reconcile.Pause(ctx, time.Until(r.raisedAt.Add(fence.Wait)), nil)
}

func (m *membership) openFence() {
	if epoch, err := epochOf(m.known); err == nil {
		m.config.Fence.Open(epoch)
	}
}
