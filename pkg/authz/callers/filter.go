package callers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// Limits of URLs. They are far above the needs of clients: the longest names have 253 characters, and a
// selector of 1,000 clusters has 30 KiB.
const (
	maxPathBytes     = 4 << 10
	maxSelectorBytes = 64 << 10
	maxRequirements  = 256
	maxContinueBytes = 16 << 10
)

// maxWatchInitialization is the maximum time that a watch occupies a seat of API Priority and Fairness. By default a
// watch occupies the seat until the initial events are sent, and a client that does not read may delay that for ever.
const maxWatchInitialization = time.Second

// Limit enforces the limits of requests and watches. It runs after authentication and authorization. Of the
// requests for which longRunning returns true, it limits only watches. A watch occupies a seat of API
// Priority and Fairness for maxWatchInitialization at most.
func Limit(next http.Handler, requests, watches *Bound, longRunning request.LongRunningRequestCheck, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info, known := request.RequestInfoFrom(ctx)
		caller, authenticated := request.UserFrom(ctx)
		if !known || !authenticated {
			next.ServeHTTP(w, r)
			return
		}
		bound, watch := requests, info.IsResourceRequest && info.Verb == "watch"
		switch {
		case watch:
			bound = watches
		case longRunning(r, info):
			next.ServeHTTP(w, r)
			return
		}
		release, err := bound.Take(caller)
		if err != nil {
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
			return
		}
		defer release()
		if watch {
			r = r.WithContext(context.WithValue(ctx, responseKey{}, http.NewResponseController(w)))
			defer time.AfterFunc(maxWatchInitialization, func() { utilflowcontrol.WatchInitialized(ctx) }).Stop()
		}
		next.ServeHTTP(w, r)
	})
}

type responseKey struct{}

// EndResponse makes the writes of the response to a watch fail after a deadline, so that a client that does not read
// cannot keep a watch that has ended. The context is that of a request that Limit has passed on.
func EndResponse(ctx context.Context, deadline time.Time) {
	if response, ok := ctx.Value(responseKey{}).(*http.ResponseController); ok {
		// A connection that does not support deadlines ends with the timeout of the watch.
		_ = response.SetWriteDeadline(deadline)
	}
}

// LimitURL refuses requests with paths, selectors and continue tokens that exceed the limits of URLs, before
// anything evaluates them. The server parses selectors to authorize a request, sends them to the hub, and
// compares them with every object of a list and every event of a watch.
func LimitURL(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	registerMetrics()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkURL(r.URL); err != nil {
			refused.WithLabelValues("URLs").Inc()
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkURL(u *url.URL) error {
	if len(u.Path) > maxPathBytes {
		return apierrors.NewBadRequest(fmt.Sprintf("the path of the URL has %d bytes, at most %d are allowed", len(u.Path), maxPathBytes))
	}
	// A query that is shorter than every limit cannot exceed one.
	if len(u.RawQuery) <= maxRequirements {
		return nil
	}
	query := u.Query()
	for name, limit := range map[string]int{"labelSelector": maxSelectorBytes, "fieldSelector": maxSelectorBytes, "continue": maxContinueBytes} {
		for _, value := range query[name] {
			if len(value) > limit {
				return apierrors.NewBadRequest(fmt.Sprintf("%s: Too long: may not be more than %d bytes", name, limit))
			}
			if n := requirements(value, name == "labelSelector"); name != "continue" && n > maxRequirements {
				return apierrors.NewBadRequest(fmt.Sprintf("%s: Too many: %d requirements: must have at most %d; use the operator \"in\" for several values", name, n, maxRequirements))
			}
		}
	}
	return nil
}

// requirements returns an upper bound of the number of requirements of a selector. In label selectors, which
// have sets, commas in parentheses do not separate requirements.
func requirements(selector string, sets bool) int {
	if !sets {
		return 1 + strings.Count(selector, ",")
	}
	n := 1
	for inside := false; selector != ""; {
		at := strings.IndexAny(selector, ",()")
		if at < 0 {
			break
		}
		switch selector[at] {
		case '(':
			inside = true
		case ')':
			inside = false
		case ',':
			if !inside {
				n++
			}
		}
		selector = selector[at+1:]
	}
	return n
}
