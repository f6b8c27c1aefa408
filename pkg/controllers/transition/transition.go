// Package transition records Events when conditions of objects change, so that users see with kubectl describe
// and kubectl get events what happened to their objects.
package transition

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
)

const (
	// Clusters change conditions as often as they want. An event is a write to the hub, so each namespace has
	// at most eventsBurst events at once, and eventsPerSecond in the long run.
	eventsBurst     = 100
	eventsPerSecond = 1
	// maxNamespaces bounds the memory of the limits. A namespace that is evicted has a full burst again.
	maxNamespaces = 10000
	// maxNoteBytes is the maximum length of the note of an Event.
	maxNoteBytes = 1024
)

// Rule describes the Events of one type of condition.
type Rule struct {
	// Condition is the type of the condition.
	Condition string
	// Action describes in one word what succeeded or failed.
	Action string
	// Omitted reports whether a condition is only an intermediate state, which has no Event. It may be nil.
	Omitted func(metav1.Condition) bool
}

// Kind describes the Events of objects of a kind.
type Kind struct {
	Informer cache.SharedIndexInformer
	// Conditions returns the conditions of an object.
	Conditions func(obj runtime.Object) []metav1.Condition
	Rules      []Rule
	// Changed returns further Events for an update of an object. It may be nil.
	Changed func(old, obj runtime.Object) []Event
}

// Event is the variable content of an Event.
type Event struct {
	// Type is Normal or Warning.
	Type, Reason, Action, Note string
}

// Recorder records the Events of several kinds.
type Recorder struct {
	events events.EventRecorder
	kinds  []Kind
	limits *lru.Cache
}

// NewRecorder returns a Recorder that writes to recorder.
func NewRecorder(recorder events.EventRecorder, kinds ...Kind) *Recorder {
	return &Recorder{events: recorder, kinds: kinds, limits: lru.New(maxNamespaces)}
}

// Run records Events until ctx ends. Objects that exist at its start have no Events for their present conditions.
func (r *Recorder) Run(ctx context.Context) {
	for _, kind := range r.kinds {
		handle, err := kind.Informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, initial bool) {
				if !initial {
					r.record(kind, nil, obj)
				}
			},
			UpdateFunc: func(old, obj any) { r.record(kind, old, obj) },
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to watch objects; Events about their conditions are not recorded")
			continue
		}
		defer func() {
			if err := kind.Informer.RemoveEventHandler(handle); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to stop a watch for Events")
			}
		}()
	}
	<-ctx.Done()
}

func (r *Recorder) record(kind Kind, before, after any) {
	obj, ok := after.(runtime.Object)
	if !ok {
		return
	}
	old, _ := before.(runtime.Object)
	var last []metav1.Condition
	if old != nil {
		last = kind.Conditions(old)
	}
	found := compare(kind.Rules, last, kind.Conditions(obj))
	if kind.Changed != nil && old != nil {
		found = append(found, kind.Changed(old, obj)...)
	}
	for _, event := range found {
		if !r.allowed(obj) {
			dropped.Inc()
			continue
		}
		r.events.Eventf(obj, nil, event.Type, event.Reason, event.Action, "%s", clip(event.Note))
	}
}

// compare returns the Events of the conditions that have another status or reason than before.
func compare(rules []Rule, before, after []metav1.Condition) []Event {
	var found []Event
	for _, rule := range rules {
		condition := meta.FindStatusCondition(after, rule.Condition)
		if condition == nil || rule.Omitted != nil && rule.Omitted(*condition) {
			continue
		}
		if last := meta.FindStatusCondition(before, rule.Condition); last != nil && last.Status == condition.Status && last.Reason == condition.Reason {
			continue
		}
		event := Event{Type: corev1.EventTypeWarning, Reason: condition.Reason, Action: rule.Action, Note: condition.Message}
		if condition.Status == metav1.ConditionTrue {
			event.Type = corev1.EventTypeNormal
		}
		if event.Note == "" {
			event.Note = fmt.Sprintf("The condition %s is %s.", condition.Type, condition.Status)
		}
		found = append(found, event)
	}
	return found
}

// allowed reports whether the namespace of an object may have another Event now. Objects without a namespace
// count for themselves.
func (r *Recorder) allowed(obj runtime.Object) bool {
	object, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	// The name of a namespace contains no slash.
	key := object.GetNamespace()
	if key == "" {
		key = "/" + object.GetName()
	}
	limit, ok := r.limits.Get(key)
	if !ok {
		limit = rate.NewLimiter(eventsPerSecond, eventsBurst)
		r.limits.Add(key, limit)
	}
	return limit.(*rate.Limiter).Allow()
}

// clip returns the first line of a message, shortened to the maximum length. The end, which often contains
// the reason, stays. Further lines of a condition are hints.
func clip(message string) string {
	note, _, _ := strings.Cut(message, "\n")
	if len(note) <= maxNoteBytes {
		return note
	}
	const head = maxNoteBytes / 3
	return strings.ToValidUTF8(note[:head], "") + "..." + strings.ToValidUTF8(note[len(note)-(maxNoteBytes-head-3):], "")
}
