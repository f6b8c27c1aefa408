package apiserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/search/live"
)

// Seconds after which a refused caller may try again.
const (
	requestRetrySeconds = 1
	watchRetrySeconds   = 30
)

// WriteRatesFlag is the flag that sets RequestLimits.Written.
const WriteRatesFlag = "write-rates"

// RequestLimits are the limits of each caller.
type RequestLimits struct {
	// PerCaller is how many requests of a caller run at a time, WatchesPerCaller how many
	// watches it has; 0 for no limit.
	PerCaller, WatchesPerCaller int
	// Written is how many bytes callers may write to the objects of a namespace.
	Written callers.WriteRates
	// WatchMemoryBytes is what all watches of searches may take to remember what their clients know.
	WatchMemoryBytes int64
}

// callerLimits are what a server holds its callers to.
type callerLimits struct {
	watches     *callers.Bound
	written     *callers.Written
	watchMemory *live.Memory
}

// limitRequests has a generic server refuse what a caller has too much of. API Priority and Fairness, which stays
// in front, decides whose request runs first, but does not count watches and has no limit for a caller.
func (c CompletedConfig) limitRequests() *callerLimits {
	limits := c.extra.Requests
	requests := callers.NewBound("requests", "max-requests-inflight-per-caller", limits.PerCaller, requestRetrySeconds)
	out := &callerLimits{
		watches:     callers.NewBound("watches", "max-watches-per-caller", limits.WatchesPerCaller, watchRetrySeconds),
		written:     callers.NewWritten(limits.Written, WriteRatesFlag),
		watchMemory: live.NewMemory(limits.WatchMemoryBytes, "search-watch-memory-bytes"),
	}
	build := c.generic.BuildHandlerChainFunc
	c.generic.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		bodies := quota.LimitBodies(api, config.MaxRequestBodyBytes, writesObject(), ignoreStatus(), config.Serializer)
		limited := callers.Limit(out.written.Handle(bodies, writesObject(), config.Serializer), requests, out.watches, config.LongRunningFunc, config.Serializer)
		return callers.LimitURL(build(limited, config), config.Serializer)
	}
	return out
}

// writesObject returns a function that reports whether the body of a request is a stored object,
// or a patch of one.
func writesObject() func(*request.RequestInfo) bool {
	stored := sets.New[schema.GroupResource]()
	for _, row := range Resources(Dependencies{}) {
		for _, version := range row.Versions {
			stored.Insert(version.WithResource(row.Name).GroupResource())
		}
	}
	return func(info *request.RequestInfo) bool {
		return (info.Verb == "create" || info.Verb == "update" || info.Verb == "patch") &&
			stored.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	}
}
