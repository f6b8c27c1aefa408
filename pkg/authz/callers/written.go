package callers

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
)

const (
	// maxRetrySeconds is the maximum Retry-After of refusals.
	maxRetrySeconds = 60
	// pruneAbove is the number of buckets above which full buckets are dropped.
	pruneAbove = 1024
)

// Rate is a token bucket: it allows Burst bytes at once, and PerSecond bytes per second afterwards.
type Rate struct{ Burst, PerSecond int64 }

// WriteRates limit the bytes that are written to the objects of one namespace. A Burst of 0 means no limit.
type WriteRates struct {
	// Caller applies to every caller, and Cluster to the identities of a managed cluster instead. Bytes
	// that exceed this rate use Namespace, which all callers share.
	Caller, Cluster, Namespace Rate
	// Minimum is the minimum number of bytes that a write counts. Even a small write has costs: several
	// versions of the object, and the reports of agents that follow.
	Minimum int64
}

// Written limits the bytes that callers write to the objects of a namespace. A quota of stored objects is
// not enough: replaced versions stay in the watch cache for more than a minute, and in etcd until the
// compaction. It is safe for concurrent use.
type Written struct {
	rates WriteRates
	flag  string
	clock clock.PassiveClock

	mu      sync.Mutex
	buckets map[bucket]*rate.Limiter
	// pruneAt is the number of buckets at which full buckets are dropped next.
	pruneAt int
}

// bucket identifies a token bucket. The shared bucket of a namespace has no caller.
type bucket struct{ namespace, caller string }

// NewWritten returns a Written. flag is the name of the flag that sets the rates.
func NewWritten(rates WriteRates, flag string) *Written {
	registerMetrics()
	return &Written{rates: rates, flag: flag, clock: clock.RealClock{}, buckets: map[bucket]*rate.Limiter{}, pruneAt: pruneAbove}
}

// Take counts bytes that the caller of a request is about to write to an object of a namespace, which is
// empty for cluster-scoped objects. undo reverts the count, for a write that changes nothing. Take returns
// an API error with status 429 if the caller exceeds its rate. A nil Written has no limit.
func (w *Written) Take(ctx context.Context, namespace string, bytes int64) (undo func(), err error) {
	u, known := request.UserFrom(ctx)
	if w == nil || !known || Exempt(u) {
		return func() {}, nil
	}
	caller, own := Of(u), w.rates.Caller
	if clusterOf(u) != "" {
		own = w.rates.Cluster
	}
	bytes = max(bytes, w.rates.Minimum)
	if own.Burst == 0 || w.rates.Namespace.Burst == 0 {
		return func() {}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now, soonest := w.clock.Now(), time.Duration(math.MaxInt64)
	w.prune(now)
	for _, b := range []struct {
		bucket
		Rate
	}{{bucket{namespace, caller}, own}, {bucket{namespace, ""}, w.rates.Namespace}} {
		limiter := w.buckets[b.bucket]
		if limiter == nil {
			limiter = rate.NewLimiter(rate.Limit(b.PerSecond), int(b.Burst))
			w.buckets[b.bucket] = limiter
		}
		taken := limiter.ReserveN(now, int(bytes))
		if !taken.OK() {
			continue
		}
		delay := taken.DelayFrom(now)
		if delay == 0 {
			return func() { taken.CancelAt(now) }, nil
		}
		taken.CancelAt(now)
		soonest = min(soonest, delay)
	}
	refused.WithLabelValues("written bytes").Inc()
	retry := int(min(maxRetrySeconds, math.Ceil(soonest.Seconds())))
	where := "cluster-scoped objects"
	if namespace != "" {
		where = fmt.Sprintf("the objects of namespace %q", namespace)
	}
	return nil, apierrors.NewTooManyRequests(fmt.Sprintf(
		"%s exceeds the write rate for %s: each caller may write %d bytes at once and %d bytes a second, and share %d bytes a second with other callers; write less often, or raise --%s of the hub-apiserver",
		describe(caller), where, own.Burst, own.PerSecond, w.rates.Namespace.PerSecond, w.flag), retry)
}

// Handle refuses writes of callers that exceed their rates before the object is decoded and validated, because these
// steps are the most expensive. applies reports whether a request writes an object. Dry runs are not refused.
func (w *Written) Handle(next http.Handler, applies func(*request.RequestInfo) bool, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		info, known := request.RequestInfoFrom(r.Context())
		if !known || !info.IsResourceRequest || info.Subresource != "" || !applies(info) || r.URL.Query().Has("dryRun") {
			next.ServeHTTP(rw, r)
			return
		}
		undo, err := w.Take(r.Context(), info.Namespace, 0)
		if err != nil {
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, rw, r)
			return
		}
		undo()
		next.ServeHTTP(rw, r)
	})
}

// prune drops full buckets, which are equal to new ones. The caller holds mu.
func (w *Written) prune(now time.Time) {
	if len(w.buckets) < w.pruneAt {
		return
	}
	for b, limiter := range w.buckets {
		if limiter.TokensAt(now) >= float64(limiter.Burst()) {
			delete(w.buckets, b)
		}
	}
	w.pruneAt = max(pruneAbove, 2*len(w.buckets))
}
