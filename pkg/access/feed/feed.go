package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
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
	// maxLag is the time after which a feed that does not reach the current version is behind.
	maxLag = 15 * time.Second
	// maxReads bounds the clusters that are read in parallel.
	maxReads = 4
)

// startBackoff is the delay before the feed starts again after an error of the engine.
var startBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4, Cap: time.Second}

// timing contains the intervals of a Feed.
type timing struct {
	// tick is the interval between checks of what depends on the time. states is the interval at which the states of
	// the clusters are read. reread is the delay before a cluster is read again.
	tick, states time.Duration
	reread       wait.Backoff
}

var defaultTiming = timing{
	tick: time.Second, states: 5 * time.Second,
	reread: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 7, Cap: time.Minute},
}

const behindReason = "the server has not read the latest reports yet"

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
	Index access.Writer
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
	// loaded is true once all clusters have been read.
	loaded atomic.Bool

	// The goroutine of Run owns the following fields.
	clusters map[string]*cluster
	// states is the time of the next read of the states, and statesRead that of the last one.
	states, statesRead time.Time
	// due is the time of the next read of a cluster, or zero.
	due time.Time
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

// Loaded reports whether the clusters have been read since the start. Before that, clusters that are not read yet are
// unknown.
func (f *Feed) Loaded() bool { return f.loaded.Load() }

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
	var names []string
	for name := range f.clusters {
		names = append(names, name)
	}
	if err := f.read(ctx, names); err != nil {
		return 0, err
	}
	f.reached = time.Now()
	if !f.loaded.Swap(true) {
		klog.FromContext(ctx).Info("Read the roles and bindings of the fleet", "clusters", len(names), "duration", time.Since(start))
	}
	return position, nil
}

// read reads clusters in parallel. Each is visible in the index as soon as it is read.
func (f *Feed) read(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan string)
	type result struct {
		*content
		err error
	}
	results := make(chan result)
	var readers sync.WaitGroup
	for range min(maxReads, runtime.GOMAXPROCS(0), len(names)) {
		readers.Go(func() {
			for name := range queue {
				found, err := f.readOne(ctx, name)
				results <- result{found, err}
			}
		})
	}
	go func() {
		defer close(queue)
		for _, name := range names {
			select {
			case queue <- name:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		readers.Wait()
		close(results)
	}()
	var first error
	for r := range results {
		switch {
		case r.err == nil:
			f.replaced(ctx, r.content)
			f.lag()
		case first == nil:
			first = r.err
			cancel()
		}
	}
	if first == nil {
		first = ctx.Err()
	}
	return first
}

// readOne reads one cluster and replaces its entry in the index, but not its state.
func (f *Feed) readOne(ctx context.Context, name string) (*content, error) {
	c := &content{cluster: name, update: newUpdate(true)}
	var err error
	c.version, err = f.config.Engine.Internal(ctx, name, func(resource *search.Resource) error {
		c.add(f.decoder, resource, f.maxBytes)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", name, err)
	}
	reads.Inc()
	if c.report == nil {
		// Without an AccessReport, the content is never used.
		c.update, c.objects, c.bytes = newUpdate(true), 0, 0
	}
	if c.report == nil || c.refused != "" || !c.report.Complete || c.objects != c.report.Objects {
		// The index must not take the content for complete until the state is set.
		c.hidden = true
		f.config.Index.SetState(name, reading)
	}
	if err := f.config.Index.Update(name, c.update); err != nil {
		c.refused, c.hidden = err.Error(), true
		f.config.Index.SetState(name, reading)
		if err := f.config.Index.Update(name, newUpdate(true)); err != nil {
			return nil, err
		}
	}
	c.update = nil
	return c, nil
}

// replaced takes over the result of readOne.
func (f *Feed) replaced(ctx context.Context, read *content) {
	c := f.clusters[read.cluster]
	c.version, c.report, c.objects, c.bytes, c.refused = read.version, read.report, read.objects, read.bytes, read.refused
	c.read, c.reread = time.Now(), time.Time{}
	if read.hidden {
		c.state = reading
	}
	if c.refused != "" {
		updates.WithLabelValues(resultRefused).Inc()
		klog.FromContext(ctx).Info("The roles and bindings of a cluster are refused", "cluster", read.cluster, "reason", c.refused)
	} else {
		updates.WithLabelValues(resultApplied).Inc()
	}
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
	ticker := time.NewTicker(f.timing.tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-batches:
			if b.err != nil {
				return b.err
			}
			f.apply(ctx, b.changes)
			if len(b.changes) < maxChanges {
				f.reached = time.Now()
			}
		case <-ticker.C:
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

// apply applies changes to the index.
func (f *Feed) apply(ctx context.Context, changes []search.Change) {
	byReport(changes, func(report []search.Change) {
		name := report[0].Cluster
		if report[0].Hub || name == f.config.HubCluster {
			return
		}
		c := f.clusters[name]
		if c == nil {
			// The cluster has reported for the first time.
			c = &cluster{}
			c.stale = "the state of the cluster is not known yet"
			f.clusters[name] = c
		}
		if c.stale != "" {
			// Earlier, States returns the same states. With many clusters that join, each read takes time.
			if soon := f.statesRead.Add(f.timing.tick); soon.Before(f.states) {
				f.states = soon
			}
		}
		if report[0].Version <= c.version {
			return
		}
		if d := newDelta(f.decoder, name, report); d != nil {
			f.applyDelta(ctx, name, c, d)
		}
		c.version = report[0].Version
	})
}

func (f *Feed) applyDelta(ctx context.Context, name string, c *cluster, d *delta) {
	if c.report == nil {
		if d.report != nil {
			// The changes contain only the objects that the cluster has not reported before.
			f.schedule(c)
		}
		return
	}
	if d.reported {
		c.report = d.report
	}
	c.objects, c.bytes = c.objects+d.objects, c.bytes+d.bytes
	if c.report == nil {
		// The cluster was removed, or another collector reports.
		f.publish(name, c)
		d.update = newUpdate(true)
		c.objects, c.bytes, c.refused = 0, 0, ""
	} else if c.refused != "" {
		f.schedule(c)
		return
	} else if !c.current().Known {
		f.publish(name, c)
	}
	if c.bytes > f.maxBytes {
		// It includes replaced content, so only a read shows the size. The index has a bound of its own.
		f.schedule(c)
	}
	if err := f.config.Index.Update(name, d.update); err != nil {
		updates.WithLabelValues(resultRefused).Inc()
		klog.FromContext(ctx).Info("A change of the roles and bindings of a cluster is refused", "cluster", name, "err", err)
		c.refused = err.Error()
	} else {
		updates.WithLabelValues(resultApplied).Inc()
	}
	if c.disagrees() {
		f.schedule(c)
	}
	f.publish(name, c)
}

// periodic reads the states and the clusters that are due.
func (f *Feed) periodic(ctx context.Context) error {
	now := time.Now()
	if !now.Before(f.states) {
		if err := f.readStates(ctx); err != nil {
			return err
		}
	}
	if !f.due.IsZero() && !now.Before(f.due) {
		if err := f.readDue(ctx, now); err != nil {
			return err
		}
	}
	f.lag()
	return nil
}

// schedule makes the feed read a cluster again.
func (f *Feed) schedule(c *cluster) {
	c.schedule(time.Now(), f.timing.reread)
	if f.due.IsZero() || c.reread.Before(f.due) {
		f.due = c.reread
	}
}

// readDue reads the clusters that are due.
func (f *Feed) readDue(ctx context.Context, now time.Time) error {
	f.due = time.Time{}
	var due []string
	for name, c := range f.clusters {
		switch {
		case c.reread.IsZero():
		case !now.Before(c.reread):
			due = append(due, name)
		case f.due.IsZero() || c.reread.Before(f.due):
			f.due = c.reread
		}
	}
	if err := f.read(ctx, due); err != nil {
		f.due = now // the clusters that are not read stay due
		return err
	}
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
			c = &cluster{}
			f.clusters[s.Name] = c
			// The cluster may have reported before the version that is followed.
			f.schedule(c)
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
