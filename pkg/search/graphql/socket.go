package graphql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

const (
	// initTimeout bounds the time until a client sends connection_init.
	initTimeout = 10 * time.Second
	// writeTimeout bounds the time to write a message. The connection of a slower client is closed.
	writeTimeout = 10 * time.Second
	// maxOperations bounds the concurrent operations of one connection.
	maxOperations = 64
	// maxQueries bounds the concurrent queries of one connection, and maxQueriesInAll those of all
	// connections. Only these constants bound them, because API Priority and Fairness treats a
	// connection as one request.
	maxQueries      = 2
	maxQueriesInAll = 32
)

// upgrader accepts clients that are not web pages, and web pages of the same origin.
var upgrader = websocket.Upgrader{
	HandshakeTimeout: writeTimeout, ReadBufferSize: 4 << 10, WriteBufferSize: 16 << 10,
	Subprotocols: protocols,
}

// socket is a connection on which operations run.
type socket struct {
	*handler
	connection *websocket.Conn
	// cancel ends all goroutines of the connection.
	cancel context.CancelFunc
	access *access

	writing sync.Mutex

	// queries bounds the concurrent queries of the connection.
	queries *semaphore.Weighted

	lock       sync.Mutex
	operations map[string]*context.CancelFunc
	running    wait.Group
}

// serveSocket serves a connection until the client, the lifetime or the server ends it.
func (h *handler) serveSocket(w http.ResponseWriter, r *http.Request) {
	caller, _ := request.UserFrom(r.Context())
	if !slices.ContainsFunc(websocket.Subprotocols(r), func(name string) bool { return slices.Contains(protocols, name) }) {
		writeErrors(w, http.StatusBadRequest, fmt.Sprintf("a WebSocket requires one of the subprotocols %v", protocols))
		return
	}
	release, err := h.connections.take(caller)
	if err != nil {
		writeErrors(w, http.StatusTooManyRequests, err.Error())
		return
	}
	defer release()
	access, err := newAccess(r.Context(), h.authorizer)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Cannot read the attributes of a WebSocket request", "user", caller.GetName())
		writeErrors(w, http.StatusInternalServerError, "internal error")
		return
	}
	connection, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		// The upgrader has responded.
		klog.FromContext(r.Context()).V(2).Info("Cannot open a WebSocket", "user", caller.GetName(), "err", err)
		return
	}
	// The context of the request does not end with a hijacked connection.
	ctx, cancel := context.WithTimeout(r.Context(), h.limits.Lifetime)
	defer cancel()
	s := &socket{
		handler: h, connection: connection, cancel: cancel, access: access,
		operations: map[string]*context.CancelFunc{}, queries: semaphore.NewWeighted(maxQueries),
	}
	s.serve(ctx)
}

func (s *socket) serve(ctx context.Context) {
	var tending wait.Group
	tending.StartWithContext(ctx, s.tend)
	if s.access != nil {
		tending.StartWithContext(ctx, s.keepAllowed)
	}
	code, reason := s.read(ctx)
	s.close(code, reason)
	s.cancel()
	s.running.Wait()
	tending.Wait()
}

// close sends the reason for the end of the connection. Only the first call has an effect.
func (s *socket) close(code int, reason string) {
	// The client may have disconnected.
	_ = s.connection.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
}

// tend sends pings, and closes the connection when ctx ends.
func (s *socket) tend(ctx context.Context) {
	var stopping <-chan struct{}
	if signal := request.ServerShutdownSignalFrom(ctx); signal != nil {
		stopping = signal.ShuttingDown()
	}
	ticker := time.NewTicker(s.limits.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.connection.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)); err != nil {
				s.cancel()
			}
		case <-stopping:
			stopping = nil
			s.cancel()
		case <-ctx.Done():
			s.close(closeGoingAway, "the connection has ended; open a new one")
			// Pending reads and writes return immediately.
			_ = s.connection.Close()
			return
		}
	}
}

// read processes the messages of the client. It returns the reason for the end of the connection.
func (s *socket) read(ctx context.Context) (code int, reason string) {
	s.connection.SetReadLimit(maxBytes)
	alive := func() error {
		return s.connection.SetReadDeadline(time.Now().Add(2*s.limits.Ping + writeTimeout))
	}
	s.connection.SetPongHandler(func(string) error { return alive() })
	if err := s.connection.SetReadDeadline(time.Now().Add(initTimeout)); err != nil {
		return closeGoingAway, ""
	}
	begun := false
	for {
		_, data, err := s.connection.ReadMessage()
		if err != nil {
			var timeout net.Error
			if !begun && errors.As(err, &timeout) && timeout.Timeout() {
				return closeInitTimeout, "Connection initialisation timeout"
			}
			return closeNormal, ""
		}
		if begun {
			if err := alive(); err != nil {
				return closeGoingAway, ""
			}
		}
		var message frame
		if err := json.Unmarshal(data, &message); err != nil {
			return closeBadMessage, "Invalid message"
		}
		if s.connection.Subprotocol() == formerProtocol {
			if message.Type == connectionEnd {
				return closeNormal, ""
			}
			message.Type = cmp.Or(formerClients[message.Type], message.Type)
		}
		switch message.Type {
		case connectionInit:
			if begun {
				return closeTooManyInits, "Too many initialisation requests"
			}
			begun = true
			s.send(frame{Type: connectionAck})
			if err := alive(); err != nil {
				return closeGoingAway, ""
			}
		case ping:
			s.send(frame{Type: pong, Payload: message.Payload})
		case pong:
		case operationComplete:
			s.stop(message.ID)
		case operationStart:
			if !begun {
				return closeUnauthorized, "Unauthorized"
			}
			if code, reason := s.start(ctx, &message); code != 0 {
				return code, reason
			}
		default:
			return closeBadMessage, "Unknown message type"
		}
	}
}

// start runs an operation. It returns a close code if the connection must be closed instead.
func (s *socket) start(ctx context.Context, message *frame) (code int, reason string) {
	var op operationRequest
	if message.ID == "" || json.Unmarshal(message.Payload, &op) != nil {
		return closeBadMessage, "Invalid message"
	}
	ctx, cancel := context.WithCancel(ctx)
	s.lock.Lock()
	_, duplicate := s.operations[message.ID]
	full := len(s.operations) >= maxOperations
	if !duplicate && !full {
		s.operations[message.ID] = &cancel
	}
	s.lock.Unlock()
	switch {
	case duplicate:
		cancel()
		// The reason of a close frame has at most 123 bytes.
		return closeDuplicate, "Subscriber for this id already exists"
	case full:
		cancel()
		return closePolicyViolation, "Too many operations"
	}
	s.running.Start(func() {
		defer cancel()
		last := s.operate(ctx, message.ID, &op)
		s.lock.Lock()
		stopped := s.operations[message.ID] != &cancel
		if !stopped {
			delete(s.operations, message.ID)
		}
		s.lock.Unlock()
		// A client may reuse the ID of an operation that it stopped, so it must not receive the end
		// of the previous operation.
		if !stopped {
			s.send(last)
		}
	})
	return 0, ""
}

func (s *socket) stop(id string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if cancel := s.operations[id]; cancel != nil {
		(*cancel)()
		delete(s.operations, id)
	}
}

// send writes a message. If the client does not receive it in time, the connection ends.
func (s *socket) send(message frame) {
	data, err := json.Marshal(message)
	if err != nil {
		klog.Background().Error(err, "Cannot encode a WebSocket message", "type", message.Type)
		s.cancel()
		return
	}
	s.sendRaw(data)
}

func (s *socket) sendRaw(data []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.connection.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		err = s.connection.WriteMessage(websocket.TextMessage, data)
	}
	if err != nil {
		s.cancel()
	}
}
