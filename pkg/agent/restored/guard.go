// Package restored keeps objects on the managed cluster that a restored hub does not know.
//
// After a snapshot of the hub is restored, the hub lacks what was written since. The server marks such
// data with an annotation of every ManagedCluster. Until an administrator confirms the restore for the
// cluster, the agent removes only objects whose deletion it has observed: objects of ManifestWorks,
// manifests and ManagedServiceAccounts that it has seen on the restored hub.
package restored

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// ErrRestored is the error of a session that began before the hub was restored. A new session must list
// all objects of the hub again.
var ErrRestored = errors.New("the hub was restored from a snapshot; reading its objects again")

const (
	// Pause is the time after which the removal of a retained object is tried again.
	Pause = 20 * time.Second

	requestTimeout      = 30 * time.Second
	firstRetry, retries = 500 * time.Millisecond, 8
	// listed is the maximum number of objects in the message of the condition.
	listed = 50
)

var retainedGauge = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Subsystem: "agent", Name: "retained_objects", StabilityLevel: metrics.ALPHA,
	Help: "ManifestWorks and ManagedServiceAccounts whose objects stay although a restored hub does not know them, by resource.",
}, []string{"resource"})

func init() { legacyregistry.MustRegister(retainedGauge) }

// Config is the configuration of a Guard.
type Config struct {
	ClusterName string
	Clusters    clusterclient.ManagedClusterInterface
	// Latest returns the last known state of the own ManagedCluster, or nil. It may be nil.
	Latest func() *clusterv1.ManagedCluster
}

// Guard decides for one session with a hub whether objects that the hub does not know may be removed.
// A nil Guard allows it.
type Guard struct {
	config Config
	// changed is closed when the hub was restored after the session began.
	changed chan struct{}
	once    sync.Once
	// found is true if this process has read the ManagedCluster.
	found atomic.Bool

	mu sync.Mutex
	// restore is the restore of the hub's data when the session began.
	restore string
	// retained describes what stays, by resource and name.
	retained map[Ref]string
}

// The resources of objects that an agent retains.
const (
	ManifestWorks          = "manifestworks"
	ManagedServiceAccounts = "managedserviceaccounts"
)

// Ref is a ManifestWork or a ManagedServiceAccount.
type Ref struct{ Resource, Name string }

// New returns a Guard. It makes no request.
func New(config Config) *Guard {
	for _, resource := range []string{ManifestWorks, ManagedServiceAccounts} {
		retainedGauge.WithLabelValues(resource).Set(0)
	}
	return &Guard{config: config, changed: make(chan struct{}), retained: map[Ref]string{}}
}

// Expect makes Begin wait for the ManagedCluster, because an earlier session has read it.
func (g *Guard) Expect() { g.found.Store(true) }

// expected reports whether this process has read the ManagedCluster.
func (g *Guard) expected() bool {
	return g.found.Load() || g.config.Latest != nil && g.config.Latest() != nil
}

// Begin reads the ManagedCluster. The session must not list objects of the hub before. It returns an
// error only if ctx has ended. If this process has never read the ManagedCluster and the hub does not
// return it, nothing shows whether the hub was restored, so objects that the hub does not know are removed.
func (g *Guard) Begin(ctx context.Context) error {
	logger, logged := klog.FromContext(ctx), reconcile.Complaint{}
	backoff := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: retries, Cap: requestTimeout}
	delay := backoff.DelayFunc()
	return delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		cluster, err := g.read(ctx)
		switch {
		case unreadable(err) && !g.expected():
			logger.Info("The agent cannot read its ManagedCluster, so it does not keep objects that a restored hub does not know", "cluster", g.config.ClusterName, "err", err)
			return true, nil
		case err != nil:
			if logged.Differs(err) {
				logger.Info("Waiting for the ManagedCluster", "cluster", g.config.ClusterName, "err", err)
			}
			return false, nil
		}
		g.Expect()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.restore = cluster.Annotations[clusterv1.RestoredAnnotation]
		return true, nil
	})
}

// Run returns ErrRestored when the hub was restored since the session began, or nil when ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-g.changed:
		return ErrRestored
	}
}

// unreadable reports whether an error shows that the hub does not have the ManagedCluster or does not
// allow to read it.
func unreadable(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

func (g *Guard) read(ctx context.Context) (*clusterv1.ManagedCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return g.config.Clusters.Get(ctx, g.config.ClusterName, metav1.GetOptions{})
}

// Keeps reports whether objects that the hub does not know must stay. seen is true if the session has
// seen them on the hub; then they stay only if the hub was restored since. Call Keeps after the hub has
// answered that it does not know them: only then is the answer about the same data. It returns an error
// if this is not known.
func (g *Guard) Keeps(ctx context.Context, seen bool) (bool, error) {
	if g == nil {
		return false, nil
	}
	g.mu.Lock()
	restore := g.restore
	g.mu.Unlock()
	// The last known state may be older than the data, but it delays a removal at most.
	if g.config.Latest != nil && !seen {
		if latest := g.config.Latest(); latest != nil && latest.Annotations[clusterv1.RestoredAnnotation] == restore && latest.PendingRestore() != "" {
			return true, nil
		}
	}
	cluster, err := g.read(ctx)
	switch {
	case unreadable(err) && !g.expected():
		return false, nil
	case unreadable(err):
		return true, fmt.Errorf("the hub may have lost data, because it no longer returns the ManagedCluster: %w", err)
	case err != nil:
		return true, fmt.Errorf("reading the ManagedCluster to find out whether the hub was restored: %w", err)
	case cluster.Annotations[clusterv1.RestoredAnnotation] != restore:
		g.once.Do(func() { close(g.changed) })
		return true, ErrRestored
	}
	g.Expect()
	return !seen && cluster.PendingRestore() != "", nil
}

// Retain records that objects stay. The text describes them.
func (g *Guard) Retain(ref Ref, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.retained[ref]; !known {
		retainedGauge.WithLabelValues(ref.Resource).Inc()
	}
	g.retained[ref] = text
}

// Release records that no objects stay because of the Guard. It reports whether some did.
func (g *Guard) Release(ref Ref) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, retained := g.retained[ref]
	if retained {
		delete(g.retained, ref)
		retainedGauge.WithLabelValues(ref.Resource).Dec()
	}
	return retained
}

// Message lists what stays, one object per line, or returns an empty string.
func (g *Guard) Message() string {
	if g == nil {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.retained) == 0 {
		return ""
	}
	refs := slices.SortedFunc(maps.Keys(g.retained), func(a, b Ref) int {
		return strings.Compare(a.Resource+"/"+a.Name, b.Resource+"/"+b.Name)
	})
	out := &strings.Builder{}
	fmt.Fprintf(out, "The restored hub does not know these objects. They stay until \"clusteradm restore confirm %s\":", g.config.ClusterName)
	for i, ref := range refs {
		if i == listed {
			fmt.Fprintf(out, "\n%d more", len(refs)-listed)
			break
		}
		fmt.Fprintf(out, "\n%s/%s: %s", ref.Resource, ref.Name, g.retained[ref])
	}
	return out.String()
}
