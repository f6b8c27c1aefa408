package apiserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

// requestRetrySeconds and watchRetrySeconds are the values of Retry-After.
const (
	requestRetrySeconds = 1
	watchRetrySeconds   = 30
)

// WriteRatesFlag is the flag that sets RequestLimits.Written.
const WriteRatesFlag = "write-rates"

// RequestLimits are the limits of each caller.
type RequestLimits struct {
	// PerCaller and WatchesPerCaller are the maximum numbers of concurrent requests and of watches of a
	// caller. 0 means no limit.
	PerCaller, WatchesPerCaller int
	// Written limits the bytes that callers write to the objects of a namespace.
	Written callers.WriteRates
	// WatchMemoryBytes limits the memory that all watches of searches hold.
	WatchMemoryBytes int64
}

type callerLimits struct {
	watches     *callers.Bound
	written     *callers.Written
	watchMemory *watch.Memory
}

// limitRequests makes a generic server refuse requests over the limits of a caller. API Priority and
// Fairness runs before and orders requests, but it does not count watches and has no limit for a caller.
func (c CompletedConfig) limitRequests() *callerLimits {
	limits := c.extra.Requests
	requests := callers.NewBound("requests", "max-requests-inflight-per-caller", limits.PerCaller, requestRetrySeconds)
	out := &callerLimits{
		watches:     callers.NewBound("watches", "max-watches-per-caller", limits.WatchesPerCaller, watchRetrySeconds),
		written:     callers.NewWritten(limits.Written, WriteRatesFlag),
		watchMemory: watch.NewMemory(limits.WatchMemoryBytes, "search-watch-memory-bytes"),
	}
	build := c.generic.BuildHandlerChainFunc
	c.generic.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		bodies := quota.LimitBodies(api, config.MaxRequestBodyBytes, writesObject(), ignoreStatus(), config.Serializer)
		limited := callers.Limit(out.written.Handle(bodies, writesObject(), config.Serializer), requests, out.watches, config.LongRunningFunc, config.Serializer)
		return callers.LimitURL(build(limited, config), config.Serializer)
	}
	return out
}

// storedResources returns the group resources of the wanted rows.
func storedResources(wanted func(*definition.Resource) bool) sets.Set[schema.GroupResource] {
	stored := sets.New[schema.GroupResource]()
	for _, row := range Resources(Dependencies{}) {
		for _, version := range row.Versions {
			if wanted(&row) {
				stored.Insert(version.WithResource(row.Name).GroupResource())
			}
		}
	}
	return stored
}

// writesObject returns a function that reports whether the body of a request is a stored object or a
// patch of one.
func writesObject() func(*request.RequestInfo) bool {
	stored := storedResources(func(*definition.Resource) bool { return true })
	return func(info *request.RequestInfo) bool {
		return (info.Verb == "create" || info.Verb == "update" || info.Verb == "patch") &&
			stored.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	}
}

// withoutStatus empties the status of an object in JSON. It keeps all other bytes, so that duplicate and
// unknown fields are still detected.
func withoutStatus(body []byte) []byte {
	if !bytes.Contains(body, []byte(`"status"`)) {
		return body
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return body
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return body
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return body
		}
		if end := int(decoder.InputOffset()); key == "status" && value[0] == '{' {
			return slices.Concat(body[:end-len(value)], []byte("{}"), body[end:])
		}
	}
	return body
}

// ignoreStatus returns a function that empties the status in the body of writes of objects with a status
// subresource. Such a write does not change the status, so its JSON types do not matter. Published
// samples contain a boolean instead of the string of a condition ("status: True").
func ignoreStatus() func(*request.RequestInfo, []byte) []byte {
	resources := storedResources((*definition.Resource).HasStatus)
	return func(info *request.RequestInfo, body []byte) []byte {
		if info.Subresource != "" || !resources.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) {
			return body
		}
		return withoutStatus(body)
	}
}
