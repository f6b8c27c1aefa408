package apiserver

import (
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/search/live"
)

// Seconds after which a refused caller may try again.
const (
	requestRetrySeconds = 1
	watchRetrySeconds   = 30
)

// RequestLimits are the limits of each caller.
type RequestLimits struct {
	// PerCaller is how many requests of a caller run at a time, WatchesPerCaller how many
	// watches it has; 0 for no limit.
	PerCaller, WatchesPerCaller int
	// WatchMemoryBytes is what all watches of searches may take to remember what their clients know.
	WatchMemoryBytes int64
}

// callerLimits are what a server holds its callers to.
type callerLimits struct {
	watches     *callers.Bound
	watchMemory *live.Memory
}

// limitRequests has a generic server refuse what a caller has too much of. API Priority and Fairness, which stays
// in front, decides whose request runs first, but does not count watches and has no limit for a caller.
func (c CompletedConfig) limitRequests() *callerLimits {
	limits := c.extra.Requests
	requests := callers.NewBound("requests", "max-requests-inflight-per-caller", limits.PerCaller, requestRetrySeconds)
	out := &callerLimits{
		watches:     callers.NewBound("watches", "max-watches-per-caller", limits.WatchesPerCaller, watchRetrySeconds),
		watchMemory: live.NewMemory(limits.WatchMemoryBytes, "search-watch-memory-bytes"),
	}
	build := c.generic.BuildHandlerChainFunc
	c.generic.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		limited := callers.Limit(api, requests, out.watches, config.LongRunningFunc, config.Serializer)
		return callers.LimitURL(build(limited, config), config.Serializer)
	}
	return out
}
