package callers

import (
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

// Bounds of what a URL may contain. They are far above what clients send: the longest names have 253
// characters, and a selector of 1,000 clusters has 30 KiB.
const (
	maxPathBytes     = 4 << 10
	maxSelectorBytes = 64 << 10
	maxRequirements  = 256
	maxContinueBytes = 16 << 10
)

// maxWatchInitialization is how long a watch counts as a running request for API Priority and Fairness.
// That ends once the initial events are sent, which a client that does not read prevents.
const maxWatchInitialization = time.Second

// Limit serves requests that are authenticated and authorized, as many of each caller as requests allows,
// and as many watches as watches allows. longRunning reports whether a request is a long-running one: of
// these only watches are limited here. A watch gives up its seat of API Priority and Fairness after a second at the latest.
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
			defer time.AfterFunc(maxWatchInitialization, func() { utilflowcontrol.WatchInitialized(ctx) }).Stop()
		}
		next.ServeHTTP(w, r)
	})
}

// LimitURL refuses requests with paths, selectors and tokens that are longer than any client needs, before
// anything evaluates them: the server parses selectors to authorize a request, sends them
// to the hub, and compares them with every object of a list and every event of a watch.
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
		return apierrors.NewBadRequest(fmt.Sprintf("the path of the URL has %d bytes, must have at most %d", len(u.Path), maxPathBytes))
	}
	// What is shorter than every bound needs no closer look.
	if len(u.RawQuery) <= maxRequirements {
		return nil
	}
	for name, values := range u.Query() {
		limit := 0
		switch name {
		case "labelSelector", "fieldSelector":
			limit = maxSelectorBytes
		case "continue":
			limit = maxContinueBytes
		default:
			continue
		}
		for _, value := range values {
			if len(value) > limit {
				return apierrors.NewBadRequest(fmt.Sprintf("%s: Too long: may not be more than %d bytes", name, limit))
			}
			if name == "continue" {
				continue
			}
			if n := requirements(value, name == "labelSelector"); n > maxRequirements {
				return apierrors.NewBadRequest(fmt.Sprintf("%s: Too many: %d requirements: must have at most %d; compare with several values by \"in\"", name, n, maxRequirements))
			}
		}
	}
	return nil
}

// requirements returns how many requirements a selector has at most. In label selectors, which have sets,
// the commas between values in parentheses separate none.
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
