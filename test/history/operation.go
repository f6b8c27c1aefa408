package history

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// forever is the end of an operation that may take effect at any later time.
const forever = time.Duration(math.MaxInt64)

type kind string

const (
	create kind = "create"
	get    kind = "get"
	update kind = "update"
	patch  kind = "patch"
	remove kind = "delete"
	// restore replaces the object by that of a snapshot. The checker adds it to the operations of each object.
	restore kind = "restore"
)

func (k kind) writes() bool { return k != get }

// operation is one request for one object.
type operation struct {
	client int
	key    string
	kind   kind
	// call and ret are the times of the request and of the response.
	call, ret time.Duration
	outcome   Outcome

	// value is what a create, an update or a patch writes.
	value string
	// uid and rv are preconditions of a write, or empty. A patch may have none.
	uid types.UID
	rv  int64
	// cached is true for a get that the server may answer from its cache, not older than rv.
	cached bool

	// reason is the error of a refused operation.
	reason string
	// got is the object after an operation with outcome OK. After a delete, only its rv is set, if a
	// watcher saw it.
	got version
	// until is the resource version up to which an operation with outcome Unknown may have had an effect
	// that nobody saw.
	until int64
}

// version is the state of one object.
type version struct {
	exists bool
	uid    types.UID
	value  string
	rv     int64
}

func (v version) String() string {
	if !v.exists {
		return "no object"
	}
	return fmt.Sprintf("%s@%d", v.value, v.rv)
}

// versionOf returns the version that a ManifestWork shows.
func versionOf(work *workv1.ManifestWork) (version, error) {
	rv, err := strconv.ParseInt(work.ResourceVersion, 10, 64)
	if err != nil {
		return version{}, fmt.Errorf("ManifestWork %s: metadata.resourceVersion: %w", work.Name, err)
	}
	return version{exists: true, uid: work.UID, value: valueOf(work), rv: rv}, nil
}

// list is the answer to one list, which can have several pages.
type list struct {
	client    int
	call, ret time.Duration
	// keys are the objects that the list covers. items are those that it contains.
	keys  []string
	items map[string]version
	// rv is the resource version of the list.
	rv int64
	// cached is true for a list that the server may answer from its cache, not older than notOlder.
	cached   bool
	notOlder int64
}

// attempt is one HTTP request.
type attempt struct {
	call time.Duration
	// harmless is true if the request certainly had no effect.
	harmless bool
}

type attemptsKey struct{}

type recorder struct {
	run   *Run
	inner http.RoundTripper
}

// recordAttempts returns a transport that appends to the attempts in the context of each request.
func (r *Run) recordAttempts(inner http.RoundTripper) http.RoundTripper {
	return recorder{run: r, inner: inner}
}

var _ transport.WrapperFunc = (*Run)(nil).recordAttempts

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	call := r.run.since()
	response, err := r.inner.RoundTrip(request)
	if attempts, ok := request.Context().Value(attemptsKey{}).(*[]attempt); ok {
		*attempts = append(*attempts, attempt{call: call,
			harmless: err != nil && notSent(err) || err == nil && response.StatusCode == http.StatusTooManyRequests})
	}
	return response, err
}

// outcomeOf returns the outcome of a call for an object.
func outcomeOf(err error, key string) Outcome {
	if err == nil {
		return OK
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		if notSent(err) {
			return Failed
		}
		return Unknown
	}
	text, unexpected := unexpectedResponse(status.Status())
	code := status.Status().Code
	switch {
	case !unexpected && status.Status().Details != nil && status.Status().Details.Name == key &&
		(apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
		return Refused
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		return Failed
	// The hub has no connection to the server.
	case code == http.StatusServiceUnavailable && (text == "service unavailable" || strings.HasPrefix(text, "error trying to reach service: dial ")):
		return Failed
	default:
		return Unknown
	}
}

// unexpectedResponse returns the text of a response that is not an API object, such as those of the hub for a group
// that it does not serve at the moment.
func unexpectedResponse(status metav1.Status) (string, bool) {
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
				return strings.TrimSpace(cause.Message), true
			}
		}
	}
	return "", false
}

// notSent reports whether the connection failed before the request was sent.
func notSent(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &certificate)
}

// describe returns a short text of the error, the same for all errors of its type.
func describe(err error) string {
	status := apierrors.APIStatus(nil)
	var network *net.OpError
	var errno syscall.Errno
	switch {
	case errors.As(err, &status):
		return strings.TrimSpace(fmt.Sprintf("%d %s", status.Status().Code, apierrors.ReasonForError(err)))
	case errors.As(err, &network) && errors.As(err, &errno):
		return network.Op + ": " + errno.Error()
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	default:
		// Numbers of streams and ports differ.
		text := err.Error()
		return strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return '0'
			}
			return r
		}, strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:]))
	}
}
