// Package graphql serves the public GraphQL API of search, so that what was made for it
// works unchanged.
package graphql

import (
	"bytes"
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
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/live"
)

//go:embed schema.graphqls
var schema string

const (
	// mostBytes bounds a request, and a message of a WebSocket.
	mostBytes      = 1 << 20
	mostDepth      = 16
	mostSelections = 2000
	requestTimeout = time.Minute
)

// Config is what the API answers from.
type Config struct {
	Engine search.Engine
	Scopes search.Scopes
	// Silent are the clusters whose resources are not known, or may be out of date, whoever
	// asks. The caller is told just of those that it may see. Nil means that there are none.
	Silent func(ctx context.Context) ([]string, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Authorizer decides whether callers may still use what was open to them when they connected. Nil
	// means that they may as long as the connection lives.
	Authorizer authorizer.Authorizer
	// Limits of subscriptions; zero values mean the defaults.
	Limits Limits
	// Watches bounds the watches of each caller, and WatchMemory what all remember; nil for no bound.
	Watches     *callers.Bound
	WatchMemory *live.Memory
}

// Limits bound subscriptions. A connection counts as the subscriptions on it do.
type Limits struct {
	// Subscriptions are how many may be active at a time, 200 by default, and
	// SubscriptionsPerUser how many of one user, 20 by default.
	Subscriptions, SubscriptionsPerUser int
	// Lifetime is how long a connection may live, 12 hours by default.
	Lifetime time.Duration
	// Ping is how often an idle connection is tried, 25 seconds by default. One that does not
	// answer for two of these, plus ten seconds, is closed.
	Ping time.Duration
	// Recheck is how often it is decided again whether the caller of a connection may use it, beside
	// when an operation begins; a minute by default.
	Recheck time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Subscriptions <= 0 {
		l.Subscriptions = 200
	}
	if l.SubscriptionsPerUser <= 0 {
		l.SubscriptionsPerUser = 20
	}
	if l.Lifetime <= 0 {
		l.Lifetime = 12 * time.Hour
	}
	if l.Ping <= 0 {
		l.Ping = 25 * time.Second
	}
	if l.Recheck <= 0 {
		l.Recheck = time.Minute
	}
	return l
}

type handler struct {
	schema        *graphqlgo.Schema
	limits        Limits
	authorizer    authorizer.Authorizer
	connections   *quota
	subscriptions *quota
	// answering are the queries on all connections that are being answered.
	answering semaphore
}

// New returns the handler of the API: queries by POST (JSON) and GET, subscriptions by
// WebSocket (graphql-transport-ws and graphql-ws). Requests carry their user in the context.
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
		answering:     make(semaphore, mostQueriesInAll),
	}
	var err error
	h.schema, err = graphqlgo.ParseSchema(schema, &root{Config: config, subscriptions: h.subscriptions},
		graphqlgo.UseStringDescriptions(),
		graphqlgo.MaxDepth(mostDepth), graphqlgo.MaxQueryLength(mostBytes), graphqlgo.MaxSelections(mostSelections),
		graphqlgo.OverlapValidationLimit(100_000), graphqlgo.MaxParallelism(4),
		graphqlgo.Logger(panics{}), graphqlgo.PanicHandler(panics{}),
		// An event that waits for its turn on a connection must not be left out; the
		// connection itself is closed long before.
		graphqlgo.SubscribeResolverTimeout(time.Hour),
	)
	if err != nil {
		return nil, fmt.Errorf("GraphQL schema: %w", err)
	}
	return h, nil
}

// LongRunning tells whether a request to the handler lasts as long as the caller wants.
func LongRunning(r *http.Request) bool { return websocket.IsWebSocketUpgrade(r) }

// operationRequest is what a client asks for.
type operationRequest struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName"`
	Variables     map[string]any `json:"variables"`
}

// ServeHTTP answers one request, or keeps a WebSocket.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, ok := request.UserFrom(r.Context()); !ok {
		writeErrors(w, http.StatusUnauthorized, "the request has no user")
		return
	}
	if LongRunning(r) {
		h.serveSocket(w, r)
		return
	}
	// The server takes no deadline, and no turn among others, from what it thinks is a watch.
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" {
		writeErrors(w, http.StatusBadRequest, "watch must not be given; subscriptions need a WebSocket")
		return
	}
	asked, code, err := readRequest(w, r)
	if err != nil {
		writeErrors(w, code, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	started := time.Now()
	ctx, lists := withDeferred(ctx)
	response := h.execute(ctx, asked)
	answer, err := envelope(response)
	if err != nil {
		klog.FromContext(ctx).Error(err, "encoding a GraphQL answer")
		writeErrors(w, http.StatusInternalServerError, "internal error")
		return
	}
	observe(started, response)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if response.Data == nil {
		// As public servers answer what they cannot execute.
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	if err := lists.write(w, answer); err != nil {
		klog.FromContext(ctx).V(2).Info("a GraphQL answer was not written", "err", err)
	}
}

// execute answers a query. The lists of the answer are still in ctx.
func (h *handler) execute(ctx context.Context, asked *operationRequest) *graphqlgo.Response {
	doc, err := readDocument(asked.Query)
	if err != nil {
		return &graphqlgo.Response{Errors: queryErrors(err)}
	}
	if doc.subscribes(asked.OperationName) {
		return &graphqlgo.Response{Errors: queryErrors(badRequest("subscriptions need a WebSocket"))}
	}
	response := h.schema.Exec(search.WithBudget(ctx), asked.Query, asked.OperationName, asked.Variables)
	response.Errors = someErrors(response.Errors)
	return response
}

// readDocument reads a document as far as needed, and refuses one that is expensive to validate.
func readDocument(text string) (*document, error) {
	if len(text) > mostDocumentBytes {
		return nil, badRequest("the document has %d bytes, must have at most %d; pass values as variables", len(text), mostDocumentBytes)
	}
	doc := outline(text)
	switch {
	case doc.tokens > mostTokens:
		return nil, badRequest("the document has %d tokens, must have at most %d; pass values as variables", doc.tokens, mostTokens)
	case doc.introspects > mostIntrospections:
		return nil, badRequest("the document asks for the members of types more than %d times", mostIntrospections)
	}
	return &doc, nil
}

// envelope is a response but for its deferred lists.
func envelope(response *graphqlgo.Response) ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	if len(response.Errors) > 0 {
		errs, err := json.Marshal(response.Errors)
		if err != nil {
			return nil, fmt.Errorf("errors: %w", err)
		}
		out.WriteString(`"errors":`)
		out.Write(errs)
	}
	if response.Data != nil {
		if len(response.Errors) > 0 {
			out.WriteByte(',')
		}
		out.WriteString(`"data":`)
		out.Write(response.Data)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// readRequest returns the HTTP status beside an error.
func readRequest(w http.ResponseWriter, r *http.Request) (*operationRequest, int, error) {
	asked := &operationRequest{}
	switch r.Method {
	case http.MethodGet:
		given := r.URL.Query()
		asked.Query, asked.OperationName = given.Get("query"), given.Get("operationName")
		if variables := given.Get("variables"); variables != "" {
			if err := json.Unmarshal([]byte(variables), &asked.Variables); err != nil {
				return nil, http.StatusBadRequest, fmt.Errorf("variables: %w", err)
			}
		}
	case http.MethodPost:
		// Other types could be sent from any web page.
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return nil, http.StatusUnsupportedMediaType, errors.New("the content type must be application/json")
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBytes))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the request is larger than %d bytes", mostBytes)
		case err != nil:
			return nil, http.StatusBadRequest, fmt.Errorf("reading the request: %w", err)
		}
		if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] == '[' {
			return nil, http.StatusBadRequest, errors.New("several operations in one request are not supported; search takes several inputs")
		}
		if err := json.Unmarshal(body, asked); err != nil {
			return nil, http.StatusBadRequest, fmt.Errorf("decoding the request: %w", err)
		}
	default:
		w.Header().Set("Allow", "GET, POST")
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("method %s is not supported", r.Method)
	}
	if asked.Query == "" {
		return nil, http.StatusBadRequest, errors.New("the request has no query")
	}
	return asked, http.StatusOK, nil
}

// writeErrors answers what is no GraphQL request.
func writeErrors(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// The client may be gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(graphqlgo.Response{Errors: []*graphqlerrors.QueryError{graphqlerrors.Errorf("%s", message)}})
}
