package feed

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
)

const (
	// maxChanges is the number of changes that are read together. fetchTimeout bounds the wait for a change.
	maxChanges   = 1000
	fetchTimeout = 10 * time.Second
	// idle is the pause after a read without changes.
	idle = 20 * time.Millisecond
	// maxLag is the time after which a feed that does not reach the current version is behind, and a cluster is unknown whose
	// change is not read.
	maxLag = 15 * time.Second
	// maxReads bounds the clusters that are read in parallel. With fewer processors, there are fewer, but at least two.
	maxReads = 4
)

// startBackoff is the delay before the feed starts again after an error of the engine.
var startBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4, Cap: time.Second}

// timing contains the intervals of a Feed: tick between checks of what depends on the time, and states between reads of
// the states of the clusters.
type timing struct{ tick, states time.Duration }

var defaultTiming = timing{tick: time.Second, states: 5 * time.Second}

const (
	behindReason = "the server has not read the latest reports yet"
	// newReason is the reason until the state of a cluster and its content have been read.
	newReason = "the server is reading the roles and bindings of the cluster"
)

// Engine is the part of a search.Engine that the feed requires.
type Engine interface {
	Version(ctx context.Context) (uint64, error)
	search.ChangeLog
	Internal(ctx context.Context, cluster string, visit func(*search.Resource) error) (uint64, error)
}

// Config contains the dependencies of a Feed. All fields are required.
type Config struct {
	Engine Engine
	// Index receives the roles and bindings.
	Index *access.Index
	// HubCluster is the name of the cluster that is the hub itself. Its reports are ignored.
	HubCluster string
	// States returns the states of all clusters that exist or have reported.
	States func(context.Context) ([]ingest.State, error)
}

// Feed fills the index from the reports of clusters.
type Feed struct {
	config  Config
	timing  timing
	decoder *decoder
	// maxBytes bounds the content of one cluster.
	maxBytes int

	// The goroutine of Run owns the following fields.
	clusters map[string]*cluster
	// states is the time of the next read of the states, and statesRead that of the last one.
	states, statesRead time.Time
	// reached is the last time at which the feed reached the current version of the engine. behind is true if that was
	// long ago.
	reached time.Time
	behind  bool
	ages    map[string]time.Time
}

// New returns a Feed.
func New(config Config) *Feed {
	registerMetrics()
	return &Feed{config: config, timing: defaultTiming, decoder: newDecoder(), maxBytes: access.MaxBytes, clusters: map[string]*cluster{}}
}

// Run fills the index until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("access-feed"))
	backoff := startBackoff
	for ctx.Err() == nil {
		position, err := f.load(ctx)
		if err == nil {
			backoff = startBackoff
			err = f.follow(ctx, position)
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, search.ErrExpired) {
			klog.FromContext(ctx).Info("The feed is too far behind; reading the roles and bindings of all clusters again")
		} else {
			klog.FromContext(ctx).V(2).Info("Cannot read roles and bindings from the search engine yet", "err", err)
		}
		f.lag()
		pause(ctx, backoff.Step())
	}
}

// load makes all clusters due, and returns the version after which changes must be followed.
func (f *Feed) load(ctx context.Context) (uint64, error) {
	start := time.Now()
	position, err := f.config.Engine.Version(ctx)
	if err != nil {
		return 0, err
	}
	if err := f.readStates(ctx); err != nil {
		return 0, err
	}
	for _, c := range f.clusters {
		c.latest = 0
		if c.since.IsZero() {
			// Later changes may be lost.
			c.since = f.reached
		}
	}
	f.reached = start
	return position, nil
}

// read reads one cluster. If its content can be used, it is in the index before read sends it.
func (f *Feed) read(ctx context.Context, name string, owner *cluster, out chan<- *content) {
	c := &content{cluster: name, owner: owner, start: time.Now(), update: access.NewUpdate(true)}
	c.version, c.err = f.config.Engine.Internal(ctx, name, func(resource *search.Resource) error {
		c.add(f.decoder, resource, f.maxBytes)
		return nil
	})
	if c.err == nil {
		reads.Inc()
		if c.problem(f.maxBytes) == "" {
			f.config.Index.Update(name, c.update)
		}
	}
	c.took = time.Since(c.start)
	select {
	case out <- c:
	case <-ctx.Done():
	}
}

// replace makes the state of a cluster that of its content.
func (f *Feed) replace(ctx context.Context, read *content) {
	c := f.clusters[read.cluster]
	switch {
	case c == nil:
		// The cluster was removed while it was read.
		f.config.Index.Remove(read.cluster)
		return
	case c != read.owner:
		return
	case read.err != nil:
		klog.FromContext(ctx).V(2).Info("Cannot read the roles and bindings of a cluster yet", "cluster", read.cluster, "err", read.err)
		c.next = time.Now().Add(f.timing.tick)
		return
	}
	c.finish(read, f.maxBytes)
	if read.exceeds {
		updates.WithLabelValues(resultRefused).Inc()
		klog.FromContext(ctx).Info("The roles and bindings of a cluster are refused", "cluster", read.cluster, "reason", c.problem)
	} else {
		updates.WithLabelValues(resultApplied).Inc()
	}
	f.publish(read.cluster, c)
	if c.problem != "" {
		// The cluster is unknown before its content is gone.
		f.config.Index.Update(read.cluster, access.NewUpdate(true))
	}
}

// publish sets the state of a cluster in the index if it has changed.
func (f *Feed) publish(name string, c *cluster) {
	state := c.current()
	if f.behind {
		state = access.State{Reason: behindReason}
	}
	if state != c.state {
		c.state = state
		f.config.Index.SetState(name, state)
	}
}

// batch is the result of Engine.Changes.
type batch struct {
	changes []search.Change
	err     error
}

// follow applies the changes after a version, and reads the clusters that they concern, until ctx ends or the engine returns
// an error.
func (f *Feed) follow(ctx context.Context, position uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	batches, contents := make(chan batch), make(chan *content)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { f.fetch(ctx, position, batches) })
	reading, maxReading := sets.New[string](), max(2, min(maxReads, runtime.GOMAXPROCS(0)))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-batches:
			if b.err != nil {
				return b.err
			}
			f.apply(b.changes)
			if len(b.changes) < maxChanges {
				f.reached = time.Now()
			}
		case read := <-contents:
			reading.Delete(read.cluster)
			f.replace(ctx, read)
		case <-timer.C:
		}
		if !time.Now().Before(f.states) {
			if err := f.readStates(ctx); err != nil {
				return err
			}
		}
		f.lag()
		wait := f.timing.tick
		for len(reading) < maxReading {
			var name string
			if name, wait = f.due(reading); name == "" {
				break
			}
			reading.Insert(name)
			owner := f.clusters[name]
			running.Go(func() { f.read(ctx, name, owner, contents) })
		}
		timer.Reset(wait)
	}
}

// fetch reads changes until ctx ends or the engine returns an error.
func (f *Feed) fetch(ctx context.Context, after uint64, out chan<- batch) {
	for ctx.Err() == nil {
		reading, cancel := context.WithTimeout(ctx, fetchTimeout)
		changes, version, err := search.WholeChanges(reading, f.config.Engine, after, maxChanges)
		cancel()
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		select {
		case out <- batch{changes, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		if version <= after {
			// An engine may wait for less time than requested.
			pause(ctx, idle)
		}
		after = version
	}
}

// apply notes the reads that changes require.
func (f *Feed) apply(changes []search.Change) {
	now := time.Now()
	for i := range changes {
		change := &changes[i]
		if change.Hub || change.Cluster == f.config.HubCluster || !concerns(change) {
			continue
		}
		c := f.clusters[change.Cluster]
		if c == nil {
			// The cluster has reported for the first time.
			c = f.add(change.Cluster)
			c.stale = newReason
		}
		if c.stale != "" {
			// Earlier, States returns the same states. With many clusters that join, each read takes time.
			if soon := f.statesRead.Add(f.timing.tick); soon.Before(f.states) {
				f.states = soon
			}
		}
		if change.Version > c.version {
			c.latest = change.Version
			if c.since.IsZero() {
				c.since = now
			}
		}
	}
}

// add adds a cluster, which may have reported before the version that is followed.
func (f *Feed) add(name string) *cluster {
	c := &cluster{problem: newReason, since: time.Now()}
	f.clusters[name] = c
	return c
}

// due returns the next cluster to read, or "" and the time until there may be one. Clusters that take little time come
// first, so that large ones delay them by no more than the reads that have begun.
func (f *Feed) due(reading sets.Set[string]) (name string, wait time.Duration) {
	now := time.Now()
	wait = f.timing.tick
	var first *cluster
	for other, c := range f.clusters {
		switch {
		case c.since.IsZero() || reading.Has(other):
		case now.Before(c.next):
			wait = min(wait, c.next.Sub(now))
		case first == nil || c.took < first.took:
			name, first = other, c
		}
	}
	return name, wait
}

// lag makes clusters unknown whose changes have not been read for maxLag: all clusters if the feed is behind.
func (f *Feed) lag() {
	f.behind = !f.reached.IsZero() && time.Since(f.reached) > maxLag
	for name, c := range f.clusters {
		f.publish(name, c)
	}
}

// readStates reads which clusters exist, and which of them are silent.
func (f *Feed) readStates(ctx context.Context) error {
	states, err := f.config.States(ctx)
	if err != nil {
		return err
	}
	exist := sets.New[string]()
	f.ages = make(map[string]time.Time, len(states))
	for i := range states {
		s := &states[i]
		if s.Hub || s.Name == f.config.HubCluster {
			continue
		}
		exist.Insert(s.Name)
		f.ages[s.Name] = s.LastReport
		c := f.clusters[s.Name]
		if c == nil {
			c = f.add(s.Name)
		}
		c.stale = stale(s)
		f.publish(s.Name, c)
	}
	for name := range f.clusters {
		if !exist.Has(name) {
			delete(f.clusters, name)
			f.config.Index.Remove(name)
		}
	}
	f.measure()
	f.statesRead = time.Now()
	f.states = f.statesRead.Add(f.timing.states)
	return nil
}

// stale returns the reason why the reports of a cluster are out of date, or "".
func stale(s *ingest.State) string {
	switch {
	case s.Removed:
		return "the cluster no longer exists"
	case s.Absent:
		return "the cluster has never reported"
	case s.Incomplete:
		return "the cluster must report all its resources again"
	case s.Silent:
		return "the cluster has not reported since " + s.LastReport.UTC().Format(time.RFC3339)
	}
	return ""
}

// pause waits until the delay is over or ctx ends.
func pause(ctx context.Context, delay time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(delay):
	}
}
