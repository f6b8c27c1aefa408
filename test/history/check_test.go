package history

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const key = "object"

// confirmedWrite returns an operation that writes a value at a resource version.
func confirmedWrite(k kind, call time.Duration, value string, rv int64) operation {
	return operation{key: key, kind: k, call: call, ret: call + 1, outcome: OK, value: value, got: version{exists: true, uid: "u", value: value, rv: rv}}
}

func lostWrite(k kind, call time.Duration, value string) operation {
	return operation{key: key, kind: k, call: call, ret: forever, outcome: Unknown, value: value}
}

func quorumRead(call time.Duration, value string, rv int64) operation {
	return operation{key: key, kind: get, call: call, ret: call + 1, outcome: OK, got: version{exists: true, uid: "u", value: value, rv: rv}}
}

func refusal(k kind, call time.Duration, reason metav1.StatusReason) operation {
	return operation{key: key, kind: k, call: call, ret: call + 1, outcome: Refused, reason: string(reason)}
}

func received(k watch.EventType, value string, rv int64) event {
	return event{kind: k, key: key, version: version{exists: true, uid: "u", value: value, rv: rv}}
}

// TestUnknownOutcomes checks what the checker concludes about requests without a response.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	removal := func(call time.Duration, outcome Outcome) operation {
		return operation{key: key, kind: remove, call: call, ret: call + 1, outcome: outcome, uid: "u"}
	}
	complete := segment{from: 1, to: 100}
	seen := func(events ...event) segment { return segment{from: 1, to: 100, events: events} }
	for _, row := range []struct {
		name       string
		operations []operation
		watches    []segment
		want       []Kind
	}{
		{"a lost create without effect", []operation{lostWrite(create, 1, "a"), refusal(get, 3, metav1.StatusReasonNotFound)}, []segment{complete}, nil},
		{"a lost create that a reader sees", []operation{lostWrite(create, 1, "a"), quorumRead(3, "a", 5)}, nil, nil},
		{"a lost create that disappears", []operation{lostWrite(create, 1, "a"), quorumRead(3, "a", 5), refusal(get, 5, metav1.StatusReasonNotFound)}, nil, []Kind{Linearizability}},
		{"a lost create that a watcher sees late", []operation{lostWrite(create, 1, "a"), refusal(get, 3, metav1.StatusReasonNotFound), quorumRead(5, "a", 5)}, []segment{seen(received(watch.Added, "a", 5))}, nil},
		{"a lost create that nobody sees explains a refusal", []operation{lostWrite(create, 1, "a"), refusal(create, 3, metav1.StatusReasonAlreadyExists)}, nil, nil},
		{"a refusal without a cause", []operation{lostWrite(create, 1, "a"), refusal(create, 3, metav1.StatusReasonAlreadyExists)}, []segment{complete}, []Kind{Linearizability}},
		{"the watchers have a gap in which the lost create explains a refusal", []operation{lostWrite(create, 1, "a"), refusal(create, 3, metav1.StatusReasonAlreadyExists)}, []segment{{from: 1, to: 10}, {from: 20, to: 100}}, nil},
		{"the lost create is later than the gap", []operation{{key: "other", kind: create, ret: 1, outcome: OK, value: "x", got: version{exists: true, value: "x", rv: 50}}, lostWrite(create, 2, "a"), refusal(create, 4, metav1.StatusReasonAlreadyExists)},
			[]segment{{from: 1, to: 10}, {from: 20, to: 100, items: map[string]version{}, events: []event{{kind: watch.Added, key: "other", version: version{exists: true, value: "x", rv: 50}}}}}, []Kind{Linearizability}},
		{"a lost patch is between two reads", []operation{confirmedWrite(create, 1, "a", 5), lostWrite(patch, 3, "b"), quorumRead(5, "a", 5), quorumRead(7, "b", 8)}, nil, nil},
		{"a lost patch has an effect before its request", []operation{confirmedWrite(create, 1, "a", 5), quorumRead(3, "b", 8), lostWrite(patch, 5, "b")}, nil, []Kind{Linearizability}},
		{"a lost patch has two effects", []operation{confirmedWrite(create, 1, "a", 5), lostWrite(patch, 3, "b"), quorumRead(5, "b", 8), confirmedWrite(patch, 7, "c", 9), quorumRead(9, "b", 10)}, nil, []Kind{Linearizability, Unexplained}},
		{"a retried patch has two effects", []operation{confirmedWrite(create, 1, "a", 5), lostWrite(patch, 3, "b"), confirmedWrite(patch, 4, "c", 7), confirmedWrite(patch, 6, "b", 8)},
			[]segment{seen(received(watch.Added, "a", 5), received(watch.Modified, "b", 6), received(watch.Modified, "c", 7), received(watch.Modified, "b", 8))}, nil},
		{"a lost delete had an effect", []operation{confirmedWrite(create, 1, "a", 5), removal(3, Unknown), refusal(get, 5, metav1.StatusReasonNotFound)}, []segment{seen(received(watch.Added, "a", 5), received(watch.Deleted, "a", 7))}, nil},
		{"a deletion without a request", []operation{confirmedWrite(create, 1, "a", 5), refusal(get, 5, metav1.StatusReasonNotFound)}, []segment{seen(received(watch.Added, "a", 5), received(watch.Deleted, "a", 7))}, []Kind{Linearizability, Unexplained}},
		{"an acknowledged delete that no watcher receives", []operation{confirmedWrite(create, 1, "a", 5), removal(3, OK)}, []segment{seen(received(watch.Added, "a", 5))}, []Kind{WatchMissing}},
		{"an object that was not deleted is missing", []operation{confirmedWrite(create, 1, "a", 5), refusal(get, 3, metav1.StatusReasonNotFound)}, nil, []Kind{Linearizability}},
		{"a lost update", []operation{confirmedWrite(create, 1, "a", 5), confirmedWrite(patch, 3, "b", 6), quorumRead(5, "a", 5)}, nil, []Kind{Linearizability}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for i := range row.operations {
				if o := &row.operations[i]; o.outcome == Unknown {
					o.ret = forever
				}
			}
			h := &recording{operations: row.operations, watches: row.watches, fence: 100}
			h.expect(t, row.want)
		})
	}
}

// expect checks the kinds of the violations of a recording.
func (h *recording) expect(t *testing.T, want []Kind) {
	t.Helper()
	violations, err := h.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []Kind
	for _, v := range violations {
		kinds = append(kinds, v.Kind)
	}
	slices.Sort(kinds)
	if diff := cmp.Diff(want, slices.Compact(kinds)); diff != "" {
		t.Errorf("kinds of %v (-want +got):\n%s", violations, diff)
	}
}

// TestRestored checks that a snapshot takes back what was written after it, and nothing else.
func TestRestored(t *testing.T) {
	t.Parallel()
	// The snapshot is of revision 5. The write with revision 8 is lost. The server is back at revision 1000.
	create5, lost8 := confirmedWrite(create, 1, "a", 5), confirmedWrite(patch, 3, "b", 8)
	before := segment{from: 1, to: 10, events: []event{received(watch.Added, "a", 5), received(watch.Modified, "b", 8)}, ended: true}
	after := func(value string, rv int64, events ...event) segment {
		return segment{from: 1001, to: 1100, items: map[string]version{key: {exists: true, uid: "u", value: value, rv: rv}}, events: events}
	}
	both := []segment{before, after("a", 5)}
	for _, row := range []struct {
		name       string
		operations []operation
		watches    []segment
		want       []Kind
	}{
		{"the state of the snapshot", []operation{create5, lost8, quorumRead(30, "a", 5)}, both, nil},
		{"the lost write is still there", []operation{create5, lost8, quorumRead(30, "b", 8)}, []segment{before, after("b", 8)}, []Kind{Linearizability, List}},
		{"a reader sees the lost write after the restore", []operation{create5, lost8, quorumRead(30, "a", 5), quorumRead(32, "b", 8)}, both, []Kind{Linearizability}},
		{"an object of the snapshot is missing", []operation{create5, lost8, refusal(get, 30, metav1.StatusReasonNotFound)}, []segment{before, {from: 1001, to: 1100}}, []Kind{Linearizability}},
		{"a write after the restore is lost", []operation{create5, lost8, confirmedWrite(patch, 30, "c", 1005), quorumRead(33, "a", 5)},
			[]segment{before, after("a", 5, received(watch.Modified, "c", 1005))}, []Kind{Linearizability}},
		{"a watcher misses a write after the restore", []operation{create5, lost8, confirmedWrite(patch, 30, "c", 1005)}, both, []Kind{WatchMissing}},
		{"a watch continues across the restore", []operation{create5, lost8, quorumRead(30, "a", 5)},
			[]segment{{from: 1, to: 1100, events: before.events}}, []Kind{WatchMissing}},
		{"a cached read with a lost resource version", []operation{create5, lost8, {key: key, kind: get, call: 30, ret: 31, outcome: OK, cached: true, rv: 8, got: create5.got}}, both, nil},
		{"the snapshot is older than the watchers", []operation{create5, lost8}, []segment{{from: 8, to: 10, items: map[string]version{key: lost8.got}, ended: true}, after("a", 5)}, nil},
		{"nobody watched when the snapshot was saved", []operation{create5, lost8},
			[]segment{{from: 1, to: 4, ended: true}, {from: 6, to: 10, items: map[string]version{key: create5.got}, events: []event{received(watch.Modified, "b", 8)}, ended: true}, after("a", 5)}, []Kind{Undecided}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := &recording{operations: row.operations, watches: row.watches, fence: 1100, restored: &restoration{at: 20, revision: 5, from: 1000}}
			h.expect(t, row.want)
		})
	}
}

// TestOutages bounds the cost of many requests of unknown outcome.
func TestOutages(t *testing.T) {
	t.Parallel()
	h := &recording{fence: 1000}
	h.operations = append(h.operations, confirmedWrite(create, 1, "a", 5))
	// The watchers miss the changes between 10 and 20, and begin again before the clients fail.
	h.watches = []segment{{from: 1, to: 10, events: []event{received(watch.Added, "a", 5)}}, {from: 20, to: 1000, items: map[string]version{key: {exists: true, uid: "u", value: "a", rv: 5}}}}
	h.operations = append(h.operations, operation{key: "other", kind: create, call: 2, ret: 3, outcome: OK, value: "x", got: version{exists: true, value: "x", rv: 30}})
	h.watches[1].events = append(h.watches[1].events, event{kind: watch.Added, key: "other", version: version{exists: true, value: "x", rv: 30}})
	for i := range 1000 {
		h.operations = append(h.operations, lostWrite(patch, time.Duration(10+i), fmt.Sprintf("lost-%d", i)))
	}
	// A checker that tries them all does not finish: they have no effect before this read.
	h.operations = append(h.operations, quorumRead(2000, "a", 5), confirmedWrite(patch, 2002, "b", 100), quorumRead(2004, "b", 100))
	h.watches[1].events = append(h.watches[1].events, received(watch.Modified, "b", 100))
	violations, err := h.check(t.Context())
	if err != nil || len(violations) > 0 {
		t.Errorf("check = %v, %v, want no violations", violations, err)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	works := schema.GroupResource{Group: "work.open-cluster-management.io", Resource: "manifestworks"}
	fromHub := func(code int, text string) error {
		return apierrors.NewGenericServerResponse(code, "POST", works, key, text, 0, true)
	}
	refused := &url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for _, row := range []struct {
		err  error
		want Outcome
		text string
	}{
		{nil, OK, ""},
		{apierrors.NewAlreadyExists(works, key), Refused, "409 AlreadyExists"},
		{apierrors.NewConflict(works, key, errors.New("changed")), Refused, "409 Conflict"},
		{apierrors.NewNotFound(works, key), Refused, "404 NotFound"},
		{apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "history"), Failed, "404 NotFound"},
		{fromHub(404, "404 page not found"), Failed, "404 NotFound"},
		{apierrors.NewTooManyRequests("busy", 1), Failed, "429 TooManyRequests"},
		{fromHub(503, "service unavailable"), Failed, "503 ServiceUnavailable"},
		{fromHub(503, "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"), Failed, "503 ServiceUnavailable"},
		{fromHub(503, "error trying to reach service: EOF"), Unknown, "503 ServiceUnavailable"},
		{apierrors.NewTimeoutError("etcd", 1), Unknown, "504 Timeout"},
		{apierrors.NewInternalError(errors.New("etcd")), Unknown, "500 InternalError"},
		{refused, Failed, "dial: connection refused"},
		{&url.Error{Op: "Post", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}, Unknown, "read: connection reset by peer"},
		{&url.Error{Op: "Post", Err: context.DeadlineExceeded}, Unknown, "timeout"},
		{errors.New("http2: stream ID 17; INTERNAL_ERROR"), Unknown, "stream ID 00; INTERNAL_ERROR"},
	} {
		if got := outcomeOf(row.err, key); got != row.want {
			t.Errorf("outcomeOf(%v) = %s, want %s", row.err, got, row.want)
		}
		if row.err == nil {
			continue
		}
		if got := describe(row.err); got != row.text {
			t.Errorf("describe(%v) = %q, want %q", row.err, got, row.text)
		}
	}
}
