package graphql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/graphql"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const (
	transportWS = "graphql-transport-ws"
	legacyWS    = "graphql-ws"
	watchQuery  = `subscription($input: SearchInput) { watch(input: $input) { uid operation newData oldData timestamp } }`
)

// client is a client of one of the protocols.
type client struct {
	t          testing.TB
	connection *websocket.Conn
	protocol   string
}

func (s *server) dial(caller, protocol string, header http.Header) (*websocket.Conn, *http.Response, error) {
	s.t.Helper()
	if header == nil {
		header = http.Header{}
	}
	header.Set(userHeader, caller)
	dialer := websocket.Dialer{Subprotocols: []string{protocol}, HandshakeTimeout: await.Patience}
	connection, response, err := dialer.DialContext(s.t.Context(), "ws"+strings.TrimPrefix(s.url, "http"), header)
	if err == nil {
		s.t.Cleanup(func() { _ = connection.Close() })
	}
	return connection, response, err
}

// connect opens a connection and waits for its acknowledgement.
func (s *server) connect(caller, protocol string) *client {
	s.t.Helper()
	connection, _, err := s.dial(caller, protocol, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &client{t: s.t, connection: connection, protocol: protocol}
	c.send(`{"type":"connection_init","payload":{}}`)
	if got := c.receive(); got.Type != "connection_ack" {
		s.t.Fatalf("message = %+v, want connection_ack", got)
	}
	return c
}

type received struct {
	ID, Type string
	Payload  json.RawMessage
}

func (c *client) send(message string) {
	c.t.Helper()
	if err := c.connection.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) read() (received, error) {
	var got received
	for {
		if err := c.connection.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			return got, err
		}
		_, data, err := c.connection.ReadMessage()
		if err != nil {
			return got, err
		}
		got = received{}
		if err := json.Unmarshal(data, &got); err != nil {
			return got, fmt.Errorf("%w in %s", err, data)
		}
		if got.Type != "ka" {
			return got, nil
		}
	}
}

func (c *client) receive() received {
	c.t.Helper()
	got, err := c.read()
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// names returns the names of the messages that differ between the protocols.
func (c *client) names() (subscribe, data, stop string) {
	if c.protocol == transportWS {
		return "subscribe", "next", "complete"
	}
	return "start", "data", "stop"
}

func (c *client) subscribe(id, text, variables string) {
	c.t.Helper()
	subscribe, _, _ := c.names()
	c.send(fmt.Sprintf(`{"id":%q,"type":%q,"payload":%s}`, id, subscribe, operation(c.t, text, variables)))
}

func (c *client) stop(id string) {
	c.t.Helper()
	_, _, stop := c.names()
	c.send(fmt.Sprintf(`{"id":%q,"type":%q}`, id, stop))
}

// watchEvent is an event in the form that clients receive.
type watchEvent struct {
	UID, Operation   string
	NewData, OldData map[string]any
	Timestamp        time.Time
}

func (c *client) event(id string) watchEvent {
	c.t.Helper()
	_, data, _ := c.names()
	got := c.receive()
	if got.Type != data || got.ID != id {
		c.t.Fatalf("message = %s of %s: %s, want data of %s", got.Type, got.ID, got.Payload, id)
	}
	var payload struct {
		Data   struct{ Watch watchEvent }
		Errors []any
	}
	if err := json.Unmarshal(got.Payload, &payload); err != nil || len(payload.Errors) > 0 {
		c.t.Fatalf("%v in payload %s, want an event", err, got.Payload)
	}
	return payload.Data.Watch
}

// watching subscribes and waits until the subscription receives changes.
func (s *server) watching(c *client, id, input string) {
	s.t.Helper()
	c.subscribe(id, watchQuery, `{"input":`+input+`}`)
	// The protocols do not confirm a subscription, so the test makes changes until an event
	// arrives.
	events := make(chan received, 1)
	failed := make(chan error, 1)
	go func() {
		got, err := c.read()
		if err != nil {
			failed <- err
			return
		}
		events <- got
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := 0
	for begun := false; !begun; {
		select {
		case got := <-events:
			if !strings.Contains(string(got.Payload), "east/begin") {
				s.t.Fatalf("message = %s: %s, want the event of east/begin", got.Type, got.Payload)
			}
			begun = true
		case err := <-failed:
			s.t.Fatal(err)
		case <-tick.C:
			last++
			s.report("east", nil, fmt.Sprintf(`{"uid":"east/begin","kind":"Pod","name":"begin","try":%d}`, last))
		}
	}
	s.report("east", nil, `{"uid":"east/begin","kind":"Pod","name":"begin","try":-1}`)
	for c.event(id).NewData["try"] != -1.0 {
		continue
	}
}

func TestSubscriptions(t *testing.T) {
	for _, protocol := range []string{transportWS, legacyWS} {
		t.Run(protocol, func(t *testing.T) {
			s := shop(t)
			c := s.connect("jane", protocol)
			s.watching(c, "1", `{"filters":[{"property":"kind","values":["Pod"]}]}`)

			s.report("west", nil, `{"uid":"west/p2","kind":"Pod","name":"hidden"}`)
			s.report("east", nil, `{"uid":"east/x1","kind":"Node","name":"other"}`)
			s.report("east", nil, `{"uid":"east/p9","kind":"Pod","name":"new","restarts":1}`)
			event := c.event("1")
			if event.UID != "east/p9" || event.Operation != "INSERT" || event.OldData != nil ||
				event.NewData["restarts"] != 1.0 || event.NewData["cluster"] != "east" || !event.Timestamp.Equal(now) {
				t.Errorf("event = %+v, want INSERT of east/p9 with restarts 1", event)
			}
			s.report("east", nil, `{"uid":"east/p9","kind":"Pod","name":"new","restarts":2}`)
			if event = c.event("1"); event.Operation != "UPDATE" || event.OldData["restarts"] != 1.0 || event.NewData["restarts"] != 2.0 {
				t.Errorf("event = %+v, want UPDATE from restarts 1 to 2", event)
			}
			s.report("east", nil, `{"uid":"east/p9","kind":"Job","name":"new"}`)
			if event = c.event("1"); event.Operation != "DELETE" || event.UID != "east/p9" || event.NewData != nil || event.OldData["restarts"] != 2.0 {
				t.Errorf("event = %+v, want DELETE of east/p9 with restarts 2", event)
			}

			s.scopes.set("jane", visibility.Scope{})
			gone := map[string]bool{}
			for range 3 {
				event := c.event("1")
				if event.Operation != "DELETE" || event.NewData != nil || event.OldData["status"] != nil {
					t.Errorf("event of a revoked item = %+v, want DELETE without properties", event)
				}
				gone[event.UID] = true
			}
			for _, uid := range []string{"east/p1", "east/p2", "east/begin"} {
				if !gone[uid] {
					t.Errorf("revoked item %s has no DELETE event, want one", uid)
				}
			}
			s.report("east", nil, `{"uid":"east/p1","kind":"Pod","name":"web-1","status":"Secret"}`)

			// The next message is the response to a query on the same connection.
			c.subscribe("2", `query($with: Boolean = true) { search(input: {keywords: ["web"]}) { count items @include(if: $with) } }`, "")
			_, data, _ := c.names()
			got := c.receive()
			if got.ID != "2" || got.Type != data {
				t.Fatalf("message = %s of %s: %s, want data of 2", got.Type, got.ID, got.Payload)
			}
			same(t, "answer", string(got.Payload), `{"data":{"search":[{"count":0,"items":[]}]}}`)
			if got := c.receive(); got.ID != "2" || got.Type != "complete" {
				t.Errorf("message = %s of %s, want complete of 2", got.Type, got.ID)
			}

			c.stop("1")
			c.subscribe("1", `{ messages { id } }`, "")
			if got := c.receive(); got.ID != "1" || got.Type != data {
				t.Errorf("message = %s of %s, want the response to the reused ID 1", got.Type, got.ID)
			}
		})
	}
}

func TestSubscriptionErrors(t *testing.T) {
	for _, protocol := range []string{transportWS, legacyWS} {
		t.Run(protocol, func(t *testing.T) {
			s := shop(t, func(c *graphql.Config) { c.Limits.SubscriptionsPerUser = 1 })
			c := s.connect("jane", protocol)
			s.watching(c, "1", `{"filters":[{"property":"kind","values":["Pod"]}]}`)
			tests := []struct{ name, query, want string }{
				{"too many subscriptions", `subscription { watch { uid } }`, "1 open GraphQL subscriptions"},
				{"a syntax error", `subscription {`, "syntax error"},
				{"an unknown field", `{ nothing }`, "nothing"},
				{"a bad query", `subscription { watch(input: {filters: [{property: "", values: ["a"]}]}) { uid } }`, "property"},
			}
			for _, test := range tests {
				c.subscribe(test.name, test.query, "")
				got := c.receive()
				payload := string(got.Payload)
				if got.ID != test.name || got.Type != "error" || !strings.Contains(payload, test.want) {
					t.Errorf("%s: message = %s of %s: %s, want an error with %q", test.name, got.Type, got.ID, payload, test.want)
				}
				if !strings.HasPrefix(payload, "[") {
					t.Errorf("%s: payload of the error = %s, want a list", test.name, payload)
				}
			}
			if _, response, err := s.dial("jane", protocol, nil); err == nil || response.StatusCode != http.StatusTooManyRequests {
				t.Errorf("error of the second connection = %v, want 429", err)
			}
			s.connect("admin", protocol)
		})
	}
}

func TestConnections(t *testing.T) {
	t.Run("a page of another origin", func(t *testing.T) {
		s := serve(t)
		_, response, err := s.dial("jane", transportWS, http.Header{"Origin": {"https://elsewhere.example"}})
		if err == nil || response.StatusCode != http.StatusForbidden {
			t.Errorf("dial() = %v, want 403", err)
		}
	})
	t.Run("a page of the same origin", func(t *testing.T) {
		s := serve(t)
		if _, _, err := s.dial("jane", transportWS, http.Header{"Origin": {s.url}}); err != nil {
			t.Errorf("dial() = %v, want nil", err)
		}
	})
	t.Run("another protocol", func(t *testing.T) {
		s := serve(t)
		if _, response, err := s.dial("jane", "chat", nil); err == nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("dial() = %v, want 400", err)
		}
	})
	closes := []struct {
		name     string
		messages []string
		code     int
	}{
		{"no JSON", []string{`hello`}, 4400},
		{"an unknown message", []string{`{"type":"hello"}`}, 4400},
		{"a message of the former protocol", []string{`{"type":"connection_terminate"}`}, 4400},
		{"an operation too early", []string{`{"id":"1","type":"subscribe","payload":{"query":"{messages{id}}"}}`}, 4401},
		{"two connection_init", []string{`{"type":"connection_init"}`, `{"type":"connection_init"}`}, 4429},
		{"an ID twice", []string{
			`{"type":"connection_init"}`,
			`{"id":"1","type":"subscribe","payload":{"query":"subscription { watch { uid } }"}}`,
			`{"id":"1","type":"subscribe","payload":{"query":"subscription { watch { uid } }"}}`,
		}, 4409},
		{"an operation without an ID", []string{`{"type":"connection_init"}`, `{"type":"subscribe","payload":{"query":"{messages{id}}"}}`}, 4400},
	}
	for _, test := range closes {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t)
			connection, _, err := s.dial("jane", transportWS, nil)
			if err != nil {
				t.Fatal(err)
			}
			c := &client{t: t, connection: connection, protocol: transportWS}
			for _, message := range test.messages {
				c.send(message)
			}
			if code := c.closed(); code != test.code {
				t.Errorf("close code = %d, want %d", code, test.code)
			}
		})
	}
	t.Run("pings", func(t *testing.T) {
		s := serve(t)
		c := s.connect("jane", transportWS)
		c.send(`{"type":"ping","payload":{"a":1}}`)
		if got := c.receive(); got.Type != "pong" || string(got.Payload) != `{"a":1}` {
			t.Errorf("message = %+v, want pong with the payload", got)
		}
	})
	t.Run("the lifetime", func(t *testing.T) {
		s := serve(t, func(c *graphql.Config) { c.Limits.Lifetime = 200 * time.Millisecond })
		c := s.connect("jane", transportWS)
		if code := c.closed(); code != websocket.CloseGoingAway {
			t.Errorf("close code = %d, want %d", code, websocket.CloseGoingAway)
		}
	})
	t.Run("a connection that is kept alive", func(t *testing.T) {
		s := serve(t, func(c *graphql.Config) { c.Limits.Ping = 5 * time.Millisecond })
		c := s.connect("jane", transportWS)
		pings := make(chan struct{}, 64)
		answer := c.connection.PingHandler()
		c.connection.SetPingHandler(func(data string) error {
			select {
			case pings <- struct{}{}:
			default:
			}
			return answer(data)
		})
		go func() { _, _ = c.read() }()
		for range 3 {
			select {
			case <-pings:
			case <-time.After(await.Patience):
				t.Fatal("timeout waiting for a ping")
			}
		}
	})
}

// closed waits until the connection is closed and returns the code.
func (c *client) closed() int {
	c.t.Helper()
	for {
		_, err := c.read()
		var closed *websocket.CloseError
		if errors.As(err, &closed) {
			return closed.Code
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// gate counts requests for scopes, and blocks them until it opens.
type gate struct {
	*scopes
	open    chan struct{}
	arrived chan struct{}
}

func (g *gate) Scope(ctx context.Context, caller user.Info) (visibility.Scope, error) {
	g.arrived <- struct{}{}
	select {
	case <-g.open:
	case <-ctx.Done():
		return visibility.Scope{}, ctx.Err()
	}
	return g.scopes.Scope(ctx, caller)
}

// TestQueriesOfAConnectionWaitForEachOther checks the limit of concurrent queries of a connection.
// API Priority and Fairness treats a connection as one request, regardless of the number of
// operations.
func TestQueriesOfAConnectionWaitForEachOther(t *testing.T) {
	const queries, atATime = 20, 2
	g := &gate{open: make(chan struct{}), arrived: make(chan struct{}, queries)}
	s := serve(t, func(c *graphql.Config) {
		g.scopes = c.Scopes.(*scopes)
		c.Scopes = g
	})
	c := s.connect("jane", transportWS)
	for i := range queries {
		c.subscribe(fmt.Sprint(i), `{ search(input: {keywords: ["web"]}) { count } }`, "")
	}
	for range atATime {
		select {
		case <-g.arrived:
		case <-time.After(await.Patience):
			t.Fatal("timeout waiting for a query")
		}
	}
	// The connection responds to this message after it has read all previous messages.
	c.send(`{"type":"ping"}`)
	if got := c.receive(); got.Type != "pong" {
		t.Fatalf("message = %s of %s, want pong", got.Type, got.ID)
	}
	if more := len(g.arrived); more > 0 {
		t.Errorf("concurrent queries = %d, want %d", atATime+more, atATime)
	}
	close(g.open)
	completed := map[string]bool{}
	for len(completed) < queries {
		if got := c.receive(); got.Type == "complete" {
			completed[got.ID] = true
		} else if got.Type != "next" {
			t.Fatalf("message = %s of %s: %s, want next", got.Type, got.ID, got.Payload)
		}
	}
}
