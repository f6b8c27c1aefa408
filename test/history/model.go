package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// state is the state of one object in the model.
type state struct {
	version
	// guessed is true after an unknown operation: the object then has a larger rv than the state.
	guessed bool
}

// model is the sequential specification of one object. Its operations are both inputs and outputs.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, input, _ any) (bool, any) { return step(s.(state), input.(operation)) },
	DescribeOperation: func(input, _ any) string {
		return input.(operation).String()
	},
	DescribeState: func(s any) string { return s.(state).String() },
}

// step returns whether the operation can have its outcome in a state, and the next state.
func step(s state, o operation) (bool, state) {
	switch o.outcome {
	case OK:
		return confirmed(s, o)
	case Refused:
		return refused(s, o), s
	default:
		return true, uncertain(s, o)
	}
}

func confirmed(s state, o operation) (bool, state) {
	after := state{version: o.got}
	switch o.kind {
	case get:
		return s == after, s
	case create:
		return !s.exists && o.got.rv > s.rv && o.got.value == o.value, after
	case restore:
		return true, after
	case remove:
		after.rv = max(o.got.rv, s.rv)
		return s.exists && s.holds(o) && (o.got.rv == 0 || o.got.rv > s.rv), after
	default:
		return s.exists && s.holds(o) && o.got.rv > s.rv && o.got.uid == s.uid && o.got.value == o.value, after
	}
}

// refused reports whether the server may refuse an operation in a state.
func refused(s state, o operation) bool {
	switch metav1.StatusReason(o.reason) {
	case metav1.StatusReasonNotFound:
		return !s.exists
	case metav1.StatusReasonAlreadyExists:
		return s.exists
	default:
		// A patch without a precondition gives up if other writes precede each of its tries.
		return s.exists && (!s.holds(o) || s.guessed || o.uid == "" && o.rv == 0)
	}
}

// uncertain returns the state after an unknown operation, which had an effect if it could have one. An
// operation without effect comes after all others.
func uncertain(s state, o operation) state {
	if s.rv >= o.until || s.exists == (o.kind == create) || o.kind != create && !s.holds(o) {
		return s
	}
	after := state{version: version{exists: o.kind != remove, value: o.value, rv: s.rv}, guessed: true}
	if o.kind != create && o.kind != remove {
		after.uid = s.uid
	}
	return after
}

// holds reports whether an object meets the preconditions of an operation.
func (s state) holds(o operation) bool {
	return (o.uid == "" || o.uid == s.uid) && (o.rv == 0 || o.rv == s.rv && !s.guessed)
}

func (o operation) String() string {
	text := string(o.kind)
	if o.value != "" {
		text += " " + o.value
	}
	if o.rv != 0 {
		text += fmt.Sprintf(" if @%d", o.rv)
	}
	switch {
	case o.outcome == Refused:
		return text + ": " + o.reason
	case o.outcome == Unknown:
		return text + ": unknown"
	case o.kind == remove:
		return fmt.Sprintf("%s: ok @%d", text, o.got.rv)
	default:
		return fmt.Sprintf("%s: %s", text, o.got)
	}
}
