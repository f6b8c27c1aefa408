package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const (
	// runLabel is the label of the objects of a run. generationLabel is the label of the objects of one
	// generation of keys.
	runLabel        = "history.example.com/run"
	generationLabel = "history.example.com/generation"

	numberOfClients  = 8
	numberOfWatchers = 4
	// numberOfKeys is the number of objects that the clients write at the same time.
	numberOfKeys = 16
	// requestTimeout limits each call of a client, including the retries of client-go.
	requestTimeout = 10 * time.Second

	dialTimeout = 5 * time.Second
	// pollLimit bounds waiting if the context does not: that of a run of all tests.
	pollLimit = time.Hour
	// checkTimeout limits the check of one object.
	checkTimeout = 30 * time.Second
)

// Config configures a [Run]. Targets and Namespace are required.
type Config struct {
	// Targets are the servers: client and watcher number i use Targets[i % len(Targets)]. All must
	// serve the same etcd, through a hub or directly. The user needs every verb on ManifestWorks.
	Targets []*rest.Config
	// Namespace contains the ManifestWorks. It must be that of a ManagedCluster without an agent.
	Namespace string
	// Seed makes the choices of the clients repeatable; their interleaving is not.
	Seed uint64
	// Pause is the mean pause of a client between two calls; 20 ms if zero.
	Pause time.Duration
	// KeyLifetime is the time after which the clients continue on new objects; a minute if zero. It
	// bounds the history of one object, and thereby the cost of the check.
	KeyLifetime time.Duration
	// Dir receives an HTML file for each object that is not linearizable. Without it, there are no files.
	Dir string
}

// Run is a load of clients and watchers, with its history. Its methods are safe for concurrent use.
type Run struct {
	config Config
	// id is the value of runLabel, and the prefix of all names.
	id       string
	begin    time.Time
	clients  []*client
	watchers []*watcher

	cancelClients, cancelWatchers  context.CancelFunc
	runningClients, runningWatches sync.WaitGroup

	mu      sync.Mutex
	marks   []mark
	stopped time.Duration // 0 while the clients run
	// fence is the resource version that every watcher must reach.
	fence    int64
	restored *restoration
	done     bool
}

// restoration is the replacement of the data by those of a snapshot.
type restoration struct {
	at time.Duration
	// revision is that of the snapshot. All later changes have larger revisions than from. Changes in between are lost.
	revision, from int64
}

type mark struct {
	name string
	at   time.Duration
}

// Start starts the clients and the watchers, and returns when each watcher watches. They run until
// Stop, or until ctx ends.
func Start(ctx context.Context, config Config) (*Run, error) {
	config.Pause = cmp.Or(config.Pause, 20*time.Millisecond)
	config.KeyLifetime = cmp.Or(config.KeyLifetime, time.Minute)
	if len(config.Targets) == 0 || config.Namespace == "" {
		return nil, errors.New("Targets and Namespace are required")
	}
	r := &Run{config: config, id: "history-" + utilrand.String(6), begin: time.Now()}
	for i := range numberOfClients {
		c, err := newClient(r, i)
		if err != nil {
			return nil, err
		}
		r.clients = append(r.clients, c)
	}
	for i := range numberOfWatchers {
		w, err := newWatcher(r, i)
		if err != nil {
			return nil, err
		}
		r.watchers = append(r.watchers, w)
	}
	watching, cancelWatchers := context.WithCancel(ctx)
	writing, cancelClients := context.WithCancel(ctx)
	r.cancelWatchers, r.cancelClients = cancelWatchers, cancelClients
	for _, w := range r.watchers {
		r.runningWatches.Go(func() { w.work(watching) })
	}
	// The history of the watchers begins before the first write.
	err := await.Within(ctx, pollLimit, func() error {
		for _, w := range r.watchers {
			if !w.listed() {
				return fmt.Errorf("watcher %d has no list: %w", w.number, w.failure())
			}
		}
		return nil
	})
	if err != nil {
		cancelClients()
		cancelWatchers()
		r.runningWatches.Wait()
		return nil, err
	}
	for _, c := range r.clients {
		r.runningClients.Go(func() { c.work(writing) })
	}
	return r, nil
}

// since returns the time in the history.
func (r *Run) since() time.Duration { return time.Since(r.begin) }

// connect returns a client of the target of client or watcher number i, with connections of its own.
func (r *Run) connect(i int, timeout time.Duration) (versioned.Interface, error) {
	config := rest.CopyConfig(r.config.Targets[i%len(r.config.Targets)])
	config.QPS, config.Timeout = -1, timeout
	// client-go shares connections between configurations with the same dialer.
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}
	config.Wrap(r.recordAttempts)
	return versioned.NewForConfig(config)
}

// Mark records the begin or the end of a fault. [Result.Marks] contains the time from each mark until
// all clients succeed.
func (r *Run) Mark(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, mark{name, r.since()})
}

// Restored records that the data are those of a snapshot from now on: changes after revision are lost, and new ones
// have larger resource versions than from. No server and no etcd may run during the call. A run can be restored once.
func (r *Run) Restored(revision, from int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restored = &restoration{r.since(), revision, from}
}

// Succeeded returns the number of calls that succeeded so far.
func (r *Run) Succeeded() int {
	n := 0
	for _, c := range r.clients {
		n += c.succeeded()
	}
	return n
}

// Recovered waits until each client has completed a call that it began after the call of Recovered, and
// returns the time that this took. It returns an error when ctx ends first.
func (r *Run) Recovered(ctx context.Context) (time.Duration, error) {
	from := r.since()
	err := await.Within(ctx, pollLimit, func() error {
		for _, c := range r.clients {
			if !c.succeededSince(from) {
				return fmt.Errorf("client %d has not succeeded since; its last error: %w", c.number, c.failure())
			}
		}
		return nil
	})
	return r.since() - from, err
}

// Stop stops the clients, reads each object a last time, waits until each watcher has received everything,
// stops the watchers and deletes the objects of the run. The server must be available. If ctx ends, Stop
// returns an error; the run has then stopped all the same, and Check reports the watchers that are late.
func (r *Run) Stop(ctx context.Context) error {
	r.cancelClients()
	r.runningClients.Wait()
	r.mu.Lock()
	r.stopped = r.since()
	r.mu.Unlock()
	err := r.finish(ctx)
	r.cancelWatchers()
	r.runningWatches.Wait()
	r.mu.Lock()
	r.done = true
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("stop the history: %w", err)
	}
	return r.clients[0].works.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: runLabel + "=" + r.id})
}

// finish records the last reads, and waits until the watchers have received the change after them.
func (r *Run) finish(ctx context.Context) error {
	last := r.clients[0]
	for generation := range r.generation(r.stopped) + 1 {
		for slot := range numberOfKeys {
			key := r.key(generation, slot)
			if err := await.Within(ctx, pollLimit, func() error { return last.get(ctx, key, "") }); err != nil {
				return fmt.Errorf("last read of %s: %w", key, err)
			}
		}
	}
	fence := r.id + "-fence"
	if err := await.Within(ctx, pollLimit, func() error { return last.create(ctx, fence) }); err != nil {
		return fmt.Errorf("create %s: %w", fence, err)
	}
	if err := await.Within(ctx, pollLimit, func() error { return last.get(ctx, fence, "") }); err != nil {
		return fmt.Errorf("get %s: %w", fence, err)
	}
	r.mu.Lock()
	r.fence = last.seen[fence].rv
	r.mu.Unlock()
	return await.Within(ctx, pollLimit, func() error {
		for _, w := range r.watchers {
			if at := w.position(); at < r.fence {
				return fmt.Errorf("watcher %d has received resource version %d of %d: %w", w.number, at, r.fence, w.failure())
			}
		}
		return nil
	})
}

// generation returns the number of the keys that are in use at a time.
func (r *Run) generation(at time.Duration) int { return int(at / r.config.KeyLifetime) }

func (r *Run) key(generation, slot int) string {
	return fmt.Sprintf("%s-%d-%02d", r.id, generation, slot)
}

// labels returns the labels of an object.
func (r *Run) labels(key string) map[string]string {
	labels := map[string]string{runLabel: r.id}
	if generation, _, ok := strings.Cut(strings.TrimPrefix(key, r.id+"-"), "-"); ok {
		labels[generationLabel] = generation
	}
	return labels
}

// random returns the source of the choices of client number i.
func (r *Run) random(i int) *rand.Rand { return rand.New(rand.NewPCG(r.config.Seed, uint64(i))) }

// Outcome is what a client knows about one operation.
type Outcome string

const (
	// OK is the outcome of an operation that the server confirmed.
	OK Outcome = "ok"
	// Refused is the outcome of an operation without effect whose error states something about the
	// object: AlreadyExists, Conflict or NotFound.
	Refused Outcome = "refused"
	// Failed is the outcome of an operation that certainly had no effect.
	Failed Outcome = "failed"
	// Unknown is the outcome of an operation that may take effect at any later time, or never.
	Unknown Outcome = "unknown"
)

// Kind is the promise that a [Violation] breaks.
type Kind string

const (
	// Linearizability is the kind of an object whose operations have no possible order.
	Linearizability Kind = "linearizability"
	// Revision is the kind of two changes with one resource version.
	Revision Kind = "revision"
	// List is the kind of a list or read that does not show the state at its resource version.
	List Kind = "list"
	// WatchOrder is the kind of an event that is late, repeated or does not fit the previous one.
	WatchOrder Kind = "watch order"
	// WatchMissing is the kind of a change that a watcher did not receive.
	WatchMissing Kind = "watch missing"
	// Unexplained is the kind of a change that no operation made.
	Unexplained Kind = "unexplained"
	// Undecided is the kind of a check without a result.
	Undecided Kind = "undecided"
)

// Violation is an observation that no correct server can cause.
type Violation struct {
	Kind Kind
	// Key is the name of the ManifestWork, or "" if the violation is not about one object.
	Key string
	// Text describes the observation.
	Text string
}

// String returns the violation in one line.
func (v Violation) String() string {
	if v.Key == "" {
		return fmt.Sprintf("%s: %s", v.Kind, v.Text)
	}
	return fmt.Sprintf("%s: %s: %s", v.Kind, v.Key, v.Text)
}

// Result is the result of [Run.Check].
type Result struct {
	// Violations are the broken promises; none if the server is correct.
	Violations []Violation
	// Operations is the number of operations by outcome. A list is one operation.
	Operations map[Outcome]int
	// Acknowledged is the number of writes that the server confirmed.
	Acknowledged int
	// Failures is the number of failed calls by error. A call can be several operations.
	Failures map[string]int
	// Unavailable is the longest time that a client needed until a call succeeded, repetitions included.
	Unavailable time.Duration
	// Marks are the marks in their order.
	Marks []Recovery
	// Events, Resumes and Relists count what the watchers received, and how often they continued at
	// their resource version or had to list again.
	Events, Resumes, Relists int
}

// Recovery is a mark and what followed.
type Recovery struct {
	// Name is the name of the mark.
	Name string
	// Failed is the number of failed calls that ended between this mark and the next one.
	Failed int
	// Recovered is the time from the mark until the last call, before the next mark, that succeeded after
	// a failed call of its client or took longer than a second. The failed call can be before the mark. It is
	// 0 if there is none.
	Recovered time.Duration
	// Incomplete is true if a client was failing when the next mark or the end came.
	Incomplete bool
}

// Check judges the history of a stopped run. It returns an error if the run is not stopped, or if a file
// cannot be written.
func (r *Run) Check(ctx context.Context) (*Result, error) {
	r.mu.Lock()
	done, marks := r.done, r.marks
	r.mu.Unlock()
	if !done {
		return nil, errors.New("the history is not stopped")
	}
	h := r.recording()
	result := &Result{Operations: map[Outcome]int{}, Failures: map[string]int{}}
	for _, c := range r.clients {
		add(result.Operations, c.outcomes)
		add(result.Failures, c.failures)
	}
	for _, o := range h.operations {
		if o.outcome == OK && o.kind.writes() {
			result.Acknowledged++
		}
	}
	for _, w := range r.watchers {
		result.Resumes += w.resumes
		result.Relists += max(len(w.segments)-1, 0)
	}
	for _, s := range h.watches {
		result.Events += len(s.events)
	}
	result.Unavailable = unavailable(r.clients, r.stopped)
	result.Marks = recoveries(r.clients, marks)
	var err error
	result.Violations, err = h.check(ctx)
	return result, err
}

// recording returns what the clients and the watchers of a stopped run have seen.
func (r *Run) recording() *recording {
	h := &recording{dir: r.config.Dir, fence: r.fence, restored: r.restored}
	for _, c := range r.clients {
		h.operations = append(h.operations, c.operations...)
		h.lists = append(h.lists, c.lists...)
	}
	for _, w := range r.watchers {
		h.watches = append(h.watches, w.segments...)
	}
	return h
}

func add[K comparable](to, counts map[K]int) {
	for k, n := range counts {
		to[k] += n
	}
}
