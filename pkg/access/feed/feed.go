package feed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
	// maxLag is the time after which a feed that does not reach the current version is behind.
	maxLag = 15 * time.Second
	// maxReads bounds the clusters that are read in parallel.
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
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// load reads all clusters, and returns the version after which changes must be followed.
func (f *Feed) load(ctx context.Context) (uint64, error) {
	start := time.Now()
	position, err := f.config.Engine.Version(ctx)
	if err != nil {
		return 0, err
	}
	if err := f.readStates(ctx); err != nil {
		return 0, err
	}
	names := slices.Collect(maps.Keys(f.clusters))
	if err := f.read(ctx, names); err != nil {
		return 0, err
	}
	f.reached = time.Now()
	klog.FromContext(ctx).Info("Read the roles and bindings of the fleet", "clusters", len(names), "duration", time.Since(start))
	return position, nil
}

// read reads clusters in parallel. Each is visible in the index as soon as it is read.
func (f *Feed) read(ctx context.Context, names []string) error {
	contents := make(chan *content)
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(min(maxReads, runtime.GOMAXPROCS(0)))
	go func() {
		defer close(contents)
		for _, name := range names {
			readers.Go(func() error {
				read, err := f.readOne(ctx, name)
				if err == nil {
					contents <- read
				}
				return err
			})
		}
		_ = readers.Wait()
	}()
	for read := range contents {
		f.replace(ctx, read)
		f.lag()
	}
	return readers.Wait()
}

// readOne reads one cluster.
func (f *Feed) readOne(ctx context.Context, name string) (*content, error) {
	start := time.Now()
	c := &content{cluster: name, update: access.NewUpdate(true)}
	var err error
	c.version, err = f.config.Engine.Internal(ctx, name, func(resource *search.Resource) error {
		c.add(f.decoder, resource, f.maxBytes)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", name, err)
	}
	reads.Inc()
	c.took = time.Since(start)
	return c, nil
}

// replace replaces the content of a cluster in the index.
func (f *Feed) replace(ctx context.Context, read *content) {
	c := f.clusters[read.cluster]
	c.version, c.problem = read.version, read.problem(f.maxBytes)
	c.next, c.due = time.Now().Add(min(pauseFactor*read.took, maxPause)), time.Time{}
	if read.exceeds {
		updates.WithLabelValues(resultRefused).Inc()
		klog.FromContext(ctx).Info("The roles and bindings of a cluster are refused", "cluster", read.cluster, "reason", c.problem)
	} else {
		updates.WithLabelValues(resultApplied).Inc()
	}
	if c.problem != "" {
		// The cluster is unknown before its content is gone.
		f.publish(read.cluster, c)
		f.config.Index.Update(read.cluster, access.NewUpdate(true))
		return
	}
	c.otherAuthorizers = read.report.OtherAuthorizers
	f.config.Index.Update(read.cluster, read.update)
	f.publish(read.cluster, c)
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
	version uint64
	err     error
}

// follow applies the changes after a version, until ctx ends or the engine returns an error.
func (f *Feed) follow(ctx context.Context, position uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	batches := make(chan batch)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() { f.fetch(ctx, position, batches) })
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
		case <-time.After(f.pause()):
		}
		if err := f.periodic(ctx); err != nil {
			return err
		}
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
		case out <- batch{changes, version, err}:
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

// apply schedules the reads that changes require.
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
			c.schedule(now)
		}
	}
}

// add adds a cluster, which may have reported before the version that is followed.
func (f *Feed) add(name string) *cluster {
	c := &cluster{problem: newReason, due: time.Now()}
	f.clusters[name] = c
	return c
}

// pause returns the time until the next read or tick.
func (f *Feed) pause() time.Duration {
	pause, now := f.timing.tick, time.Now()
	for _, c := range f.clusters {
		if !c.due.IsZero() {
			pause = min(pause, c.due.Sub(now))
		}
	}
	return pause
}

// periodic reads the states and the clusters that are due.
func (f *Feed) periodic(ctx context.Context) error {
	now := time.Now()
	if !now.Before(f.states) {
		if err := f.readStates(ctx); err != nil {
			return err
		}
	}
	var due []string
	for name, c := range f.clusters {
		if !c.due.IsZero() && !now.Before(c.due) {
			due = append(due, name)
		}
	}
	if len(due) > 0 {
		// Clusters that are not read because of an error stay due.
		if err := f.read(ctx, due); err != nil {
			return err
		}
	}
	f.lag()
	return nil
}

// lag makes all clusters unknown while the feed is behind.
func (f *Feed) lag() {
	behind := !f.reached.IsZero() && time.Since(f.reached) > maxLag
	if behind != f.behind {
		f.behind = behind
		for name, c := range f.clusters {
			f.publish(name, c)
		}
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
		return "the cluster does not exist any more"
	case s.Absent:
		return "the cluster has never reported"
	case s.Incomplete:
		return "the cluster must report all its resources again"
	case s.Silent:
		return "the cluster has not reported since " + s.LastReport.UTC().Format(time.RFC3339)
	}
	return ""
}
