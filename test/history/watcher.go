package history

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
)

const (
	// watchSeconds is the maximum time of one watch. Each end is a resumption that the check covers.
	watchSeconds = 20
	// firstPause and longestPause are the pauses of a watcher after consecutive failures.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// event is one event of a watch.
type event struct {
	kind watch.EventType
	key  string
	// version is the object of the event. Its rv is that of the change.
	version version
	// resumed is the resource version from which the watch of the event began, if it is its first.
	resumed int64
}

// segment is what a watcher received without a gap: the state at a resource version, and the events
// since. A new segment begins if the server no longer has the events that the watcher has not received.
type segment struct {
	watcher int
	from    int64
	items   map[string]version
	events  []event
	// to is the resource version up to which the server promised that the events are complete.
	to int64
	// ended is true if the events after to are no longer available.
	ended bool
}

// watcher lists and watches as informers do.
type watcher struct {
	run    *Run
	number int
	works  workclient.ManifestWorkInterface

	mu       sync.Mutex
	segments []segment
	resumes  int
	last     error
}

func newWatcher(r *Run, number int) (*watcher, error) {
	clientset, err := r.connect(number, 0)
	if err != nil {
		return nil, fmt.Errorf("watcher %d: %w", number, err)
	}
	return &watcher{run: r, number: number, works: clientset.WorkV1().ManifestWorks(r.config.Namespace)}, nil
}

// work watches until ctx ends.
func (w *watcher) work(ctx context.Context) {
	backoff := wait.Backoff{Duration: firstPause, Factor: 2, Cap: longestPause, Steps: 10, Jitter: 0.5}
	pause := backoff
	for ctx.Err() == nil {
		progress, err := w.watch(ctx)
		if progress {
			pause = backoff
		}
		w.mu.Lock()
		if err != nil {
			w.last = err
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pause.Step()):
		}
	}
}

// watch lists if necessary, and watches until the watch ends. It reports whether the server sent anything.
func (w *watcher) watch(ctx context.Context) (progress bool, err error) {
	options := metav1.ListOptions{LabelSelector: runLabel + "=" + w.run.id, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(watchSeconds))}
	from := w.position()
	// Informers list in one of two ways. The watchers use both.
	var initial *segment
	switch {
	case from != 0:
		w.mu.Lock()
		w.resumes++
		w.mu.Unlock()
	case w.number%2 == 0:
		if from, err = w.list(ctx, options.LabelSelector); err != nil {
			return false, err
		}
	default:
		initial = &segment{watcher: w.number, items: map[string]version{}}
		options.SendInitialEvents, options.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	}
	if from != 0 {
		options.ResourceVersion = strconv.FormatInt(from, 10)
	}
	stream, err := w.works.Watch(ctx, options)
	if err != nil {
		return false, w.expired(err)
	}
	defer stream.Stop()
	resumed := from
	for received := range stream.ResultChan() {
		if received.Type == watch.Error {
			return progress, w.expired(apierrors.FromObject(received.Object))
		}
		work, ok := received.Object.(*workv1.ManifestWork)
		if !ok {
			return progress, fmt.Errorf("watch: %s event of a %T", received.Type, received.Object)
		}
		v, err := versionOf(work)
		if err != nil {
			return progress, err
		}
		switch {
		case initial == nil:
			w.record(event{kind: received.Type, key: work.Name, version: v, resumed: resumed})
			resumed = 0
		case received.Type == watch.Deleted:
			delete(initial.items, work.Name)
		case received.Type != watch.Bookmark:
			initial.items[work.Name] = v
		case work.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			initial.from, initial.to = v.rv, v.rv
			w.begin(*initial)
			initial, resumed = nil, v.rv
		}
		progress = true
	}
	return progress, ctx.Err()
}

// list lists, starts a segment, and returns the resource version of the list.
func (w *watcher) list(ctx context.Context, selector string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := w.works.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, err
	}
	s := segment{watcher: w.number, items: map[string]version{}}
	if s.from, err = strconv.ParseInt(answer.ResourceVersion, 10, 64); err != nil {
		return 0, fmt.Errorf("list: metadata.resourceVersion: %w", err)
	}
	s.to = s.from
	for i := range answer.Items {
		if s.items[answer.Items[i].Name], err = versionOf(&answer.Items[i]); err != nil {
			return 0, err
		}
	}
	w.begin(s)
	return s.from, nil
}

// begin starts a segment.
func (w *watcher) begin(s segment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.segments = append(w.segments, s)
}

// expired returns err. If it says that the events are no longer available, the next watch lists again.
func (w *watcher) expired(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.segments) > 0 && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
		w.segments[len(w.segments)-1].ended = true
	}
	return err
}

func (w *watcher) record(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.segments[len(w.segments)-1]
	s.events = append(s.events, e)
	s.to = max(s.to, e.version.rv)
}

// position returns the resource version from which the watcher continues, or 0 if it must list.
func (w *watcher) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.segments) == 0 || w.segments[len(w.segments)-1].ended {
		return 0
	}
	return w.segments[len(w.segments)-1].to
}

func (w *watcher) listed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.segments) > 0
}

// failure returns the last error of the watcher.
func (w *watcher) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return errors.New("no error")
	}
	return w.last
}
