// Package graphql serves the upstream GraphQL API of search, so that existing clients work unchanged.
package graphql

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	graphqlgo "github.com/graph-gophers/graphql-go"
	graphqlerrors "github.com/graph-gophers/graphql-go/errors"
	"golang.org/x/sync/semaphore"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

//go:embed schema.graphqls
var schema string

const (
	// maxBytes bounds a request and a WebSocket message.
	maxBytes       = 1 << 20
	maxDepth       = 16
	maxSelections  = 2000
	requestTimeout = time.Minute
)

// Config contains the dependencies of the API.
type Config struct {
	Engine search.Engine
	Scopes search.Scopes
	// Stale returns all clusters whose resources are unknown or may be out of date. The response
	// names the clusters in the caller's scope. A nil Stale means that there are none.
	Stale func(ctx context.Context) ([]string, error)
	// Now is the clock. It defaults to time.Now.
	Now func() time.Time
	// Authorizer checks again whether a caller is allowed to use an open connection. If it is nil,
	// the decision at the start applies for the lifetime of the connection.
	Authorizer authorizer.Authorizer
	// Limits are the limits of connections and subscriptions. Zero values mean the defaults.
	Limits Limits
	// Watches bounds the watches of each caller. WatchMemory bounds the memory of all watches. Nil
	// means no bound.
	Watches     *callers.Bound
	WatchMemory *watch.Memory
}

// Limits bounds connections and subscriptions. Subscriptions and SubscriptionsPerUser apply to each
// of the two separately.
type Limits struct {
	// Subscriptions is the maximum of all users, 200 by default. SubscriptionsPerUser is the
	// maximum of one user, 20 by default.
	Subscriptions, SubscriptionsPerUser int
	// Lifetime is the maximum lifetime of a connection, 12 hours by default.
	Lifetime time.Duration
	// Ping is the interval of pings, 25 seconds by default. A connection is closed if the client does not respond
	// for two intervals plus ten seconds.
	Ping time.Duration
	// Recheck is the interval at which the permission to use a connection is checked, in addition
	// to the check at the start of an operation; one minute by default.
	Recheck time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Subscriptions: cmp.Or(l.Subscriptions, 200), SubscriptionsPerUser: cmp.Or(l.SubscriptionsPerUser, 20),
		Lifetime: cmp.Or(l.Lifetime, 12*time.Hour), Ping: cmp.Or(l.Ping, 25*time.Second), Recheck: cmp.Or(l.Recheck, time.Minute),
	}
}

type handler struct {
	schema        *graphqlgo.Schema
	limits        Limits
	authorizer    authorizer.Authorizer
	connections   *quota
	subscriptions *quota
	// answering bounds the concurrent queries of all connections.
	answering *semaphore.Weighted
}

// New returns the handler of the API. It serves queries by POST (JSON) and GET, and subscriptions over WebSocket
// (graphql-transport-ws and graphql-ws). The context of a request must contain the user.
func New(config Config) (http.Handler, error) {
	registerMetrics()
	if config.Now == nil {
		config.Now = time.Now
	}
	limits := config.Limits.withDefaults()
	h := &handler{
		limits:        limits,
		authorizer:    config.Authorizer,
		connections:   newQuota("connections", limits.Subscriptions, limits.SubscriptionsPerUser),
		subscriptions: newQuota("subscriptions", limits.Subscriptions, limits.SubscriptionsPerUser),
		answering:     semaphore.NewWeighted(maxQueriesInAll),
	}
	var err error
	h.schema, err = graphqlgo.ParseSchema(schema, &root{Config: config, subscriptions: h.subscriptions},
		graphqlgo.UseStringDescriptions(), graphqlgo.UseFieldResolvers(),
		graphqlgo.MaxDepth(maxDepth), graphqlgo.MaxQueryLength(maxBytes), graphqlgo.MaxSelections(maxSelections),
		graphqlgo.OverlapValidationLimit(100_000), graphqlgo.MaxParallelism(4),
		graphqlgo.Logger(panics{}), graphqlgo.PanicHandler(panics{}),
		// No event may be dropped while it waits for a slow connection. A slow connection is closed
		// long before this timeout.
		graphqlgo.SubscribeResolverTimeout(time.Hour),
	)
	if err != nil {
		return nil, fmt.Errorf("GraphQL schema: %w", err)
	}
	return h, nil
}

// LongRunning reports whether a request to the handler has no deadline.
func LongRunning(r *http.Request) bool { return websocket.IsWebSocketUpgrade(r) }

// operationRequest is a GraphQL request.
type operationRequest struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName"`
	Variables     map[string]any `json:"variables"`
}

// ServeHTTP executes a query, or serves a WebSocket.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, ok := request.UserFrom(r.Context()); !ok {
		writeErrors(w, http.StatusUnauthorized, "the request has no user")
		return
	}
	if LongRunning(r) {
		h.serveSocket(w, r)
		return
	}
	// The generic API server sets no deadline for watches, and API Priority and Fairness treats
	// them differently.
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" {
		writeErrors(w, http.StatusBadRequest, "the parameter watch is not supported; subscriptions require a WebSocket")
		return
	}
	op, code, err := readRequest(w, r)
	if err != nil {
		writeErrors(w, code, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	started := time.Now()
	ctx, lists := withDeferred(ctx)
	response := h.execute(ctx, op)
	answer, err := json.Marshal(response)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot encode a GraphQL response")
		writeErrors(w, http.StatusInternalServerError, "internal error")
		return
	}
	observe(started, response)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if response.Data == nil {
		// Upstream servers use this status for requests that they cannot execute.
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	if err := lists.lists.Write(w, answer); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot write a GraphQL response", "err", err)
	}
}

// execute executes a query. The lists of the response stay in the deferred of ctx.
func (h *handler) execute(ctx context.Context, op *operationRequest) *graphqlgo.Response {
	doc, err := readDocument(op.Query)
	if err != nil {
		return &graphqlgo.Response{Errors: queryErrors(err)}
	}
	if doc.subscribes(op.OperationName) {
		return &graphqlgo.Response{Errors: queryErrors(badRequest("subscriptions require a WebSocket"))}
	}
	response := h.schema.Exec(search.AllowStale(search.WithBudget(ctx)), op.Query, op.OperationName, op.Variables)
	response.Errors = someErrors(response.Errors)
	return response
}

// readDocument outlines a document. It returns an error for a document that is expensive to
// validate.
func readDocument(text string) (*document, error) {
	if len(text) > maxDocumentBytes {
		return nil, badRequest("the document has %d bytes; the maximum is %d; pass values as variables", len(text), maxDocumentBytes)
	}
	doc := outline(text)
	switch {
	case doc.tokens > maxTokens:
		return nil, badRequest("the document has %d tokens; the maximum is %d; pass values as variables", doc.tokens, maxTokens)
	case doc.introspects > maxIntrospections:
		return nil, badRequest("the document selects the members of types more than %d times", maxIntrospections)
	}
	return &doc, nil
}

// readRequest reads a request. With an error, it returns the HTTP status of the error.
func readRequest(w http.ResponseWriter, r *http.Request) (*operationRequest, int, error) {
	op := &operationRequest{}
	switch r.Method {
	case http.MethodGet:
		parameters := r.URL.Query()
		op.Query, op.OperationName = parameters.Get("query"), parameters.Get("operationName")
		if variables := parameters.Get("variables"); variables != "" {
			if err := json.Unmarshal([]byte(variables), &op.Variables); err != nil {
				return nil, http.StatusBadRequest, fmt.Errorf("variables: %w", err)
			}
		}
	case http.MethodPost:
		// Any web page could send requests with other content types.
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return nil, http.StatusUnsupportedMediaType, errors.New("the content type must be application/json")
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the request is larger than %d bytes", maxBytes)
		case err != nil:
			return nil, http.StatusBadRequest, fmt.Errorf("reading the request: %w", err)
		}
		if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] == '[' {
			return nil, http.StatusBadRequest, errors.New("batches of operations are not supported; pass several inputs to search instead")
		}
		if err := json.Unmarshal(body, op); err != nil {
			return nil, http.StatusBadRequest, fmt.Errorf("decoding the request: %w", err)
		}
	default:
		w.Header().Set("Allow", "GET, POST")
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("method %s is not supported", r.Method)
	}
	if op.Query == "" {
		return nil, http.StatusBadRequest, errors.New("the request has no query")
	}
	return op, http.StatusOK, nil
}

// writeErrors responds to a request that is not a GraphQL request.
func writeErrors(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(graphqlgo.Response{Errors: []*graphqlerrors.QueryError{graphqlerrors.Errorf("%s", message)}})
}
